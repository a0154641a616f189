//! What the events of a watch are written as: the one place where their form is chosen.

use crate::reads::Kind;
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_wire::{
    EventFrame, EventType, Form, Included, Part, TableForm, TableFrame, tables::Printer,
};
use std::sync::Arc;

/// Writes events. Those of two watches are the same where these are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// About objects.
    Objects(EventFrame),
    /// About tables of one row, as of the moment of writing.
    Rows(Rows),
}

/// What a table of one row is written from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    form: TableForm,
    api_version: Arc<str>,
    kind: Arc<str>,
    printer: Printer,
}

/// Whether a table says its columns: that of a watch's first event does, and its client keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    Said,
    Known,
}

impl Lines {
    pub(super) fn new(kind: &Kind, form: Form) -> Self {
        let (api_version, name) = (Arc::clone(&kind.api_version), Arc::clone(&kind.document.kind));
        let of = match form {
            Form::Full => Part::Full,
            Form::Metadata(version) => Part::Metadata(version),
            Form::Table(form) => {
                return Self::Rows(Rows { form, api_version, kind: name, printer: kind.printer() });
            }
        };
        Self::Objects(EventFrame { api_version, kind: name, of })
    }

    /// Writes an event about what is `stored`; answers whether anything was written, which is not so of what is
    /// no JSON.
    pub(super) fn event(
        &self,
        of: EventType,
        stored: &[u8],
        columns: Columns,
        out: &mut Vec<u8>,
    ) -> bool {
        let rows = match self {
            Self::Objects(frame) => {
                frame.event(of, stored, out);
                return true;
            }
            Self::Rows(rows) => rows,
        };
        let Some(cells) = rows.cells(stored) else { return false };
        let frame = rows.frame(stored, columns);
        kubewarm_wire::event(of, |out| frame.one_row(&cells, stored, out), out);
        true
    }

    /// Writes how far the watch has come, and whether the state that it began with is complete. As with the
    /// API server, a table says that by the row of an object that has nothing but a version.
    pub(super) fn bookmark(
        &self,
        (version, is_initial_end): (&ResourceVersion, bool),
        columns: Columns,
        out: &mut Vec<u8>,
    ) {
        let rows = match self {
            Self::Objects(frame) => return frame.bookmark(version, is_initial_end, out),
            Self::Rows(rows) => rows,
        };
        let stored = kubewarm_wire::progress(version, is_initial_end);
        let Some(cells) = rows.cells(&stored) else { return };
        let mut frame = rows.frame(&stored, columns);
        if is_initial_end && frame.form.object == Included::None {
            // The end is marked in the metadata, whatever was asked for.
            frame.form.object = Included::Metadata;
        }
        kubewarm_wire::bookmark(|out| frame.one_row(&cells, &stored, out), out);
    }
}

impl Rows {
    fn cells(&self, stored: &[u8]) -> Option<String> {
        let cells = self.printer.row((&self.api_version, &self.kind), stored, Timestamp::now());
        let failed = |error| tracing::error!(kind = %self.kind, %error, "an event is left out");
        cells.map_err(failed).ok()
    }

    fn frame(&self, stored: &[u8], columns: Columns) -> TableFrame {
        let version = kubewarm_wire::version_of(stored);
        TableFrame {
            api_version: Arc::clone(&self.api_version),
            kind: Arc::clone(&self.kind),
            form: self.form,
            columns: match columns {
                Columns::Said => self.printer.columns().into(),
                Columns::Known => "null".into(),
            },
            version: version.unwrap_or_else(|| 0.into()),
            next: None,
            remaining: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::kind;
    use kubewarm_wire::MetaVersion;
    use serde_json::{Value, json};

    const POD: &[u8] =
        br#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"phase":"Running"}}"#;

    fn rows(object: Included) -> Lines {
        Lines::new(&kind(""), Form::Table(TableForm { object, ..TableForm::default() }))
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        write(&mut out);
        let end = out.iter().position(|byte| *byte == b'\n');
        assert_eq!(end, Some(out.len() - 1), "one line");
        serde_json::from_slice(&out).unwrap()
    }

    fn event(lines: &Lines, stored: &[u8], columns: Columns) -> Value {
        written(|out| assert!(lines.event(EventType::Modified, stored, columns, out)))
    }

    #[test]
    fn an_event_is_a_table_of_one_row_and_the_first_says_the_columns() {
        let lines = rows(Included::Metadata);
        let first = event(&lines, POD, Columns::Said);
        let table = &first["object"];
        assert_eq!((&first["type"], &table["kind"]), (&json!("MODIFIED"), &json!("Table")));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(columns[0]["name"], "Name");
        assert_eq!(table["rows"].as_array().unwrap().len(), 1);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!((cells.len(), &cells[0]), (columns.len(), &json!("a")));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let further = event(&lines, POD, Columns::Known);
        assert_eq!(further["object"]["columnDefinitions"], Value::Null);
        assert_eq!(further["object"]["rows"], table["rows"]);
    }

    #[test]
    fn the_end_of_the_state_is_marked_whatever_a_table_is_to_have_of_its_objects() {
        let mark =
            json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
        for (object, kind) in [
            (Included::None, "PartialObjectMetadata"),
            (Included::Metadata, "PartialObjectMetadata"),
            (Included::Object, "Pod"),
        ] {
            let lines = rows(object);
            let end = written(|out| lines.bookmark((&9.into(), true), Columns::Said, out));
            let row = &end["object"]["rows"][0];
            assert_eq!(end["type"], "BOOKMARK");
            assert!(end["object"]["columnDefinitions"].is_array(), "it may be the first event");
            assert_eq!((&row["object"]["kind"], &row["object"]["metadata"]), (&json!(kind), &mark));
            let later = written(|out| lines.bookmark((&9.into(), false), Columns::Known, out));
            let object_of = &later["object"]["rows"][0]["object"];
            assert_eq!(object_of.is_null(), object == Included::None, "{later}");
            assert_eq!(later["object"]["metadata"]["resourceVersion"], "9");
        }
    }

    #[test]
    fn what_is_no_json_is_left_out() {
        let mut out = Vec::new();
        assert!(!rows(Included::None).event(EventType::Added, b"{", Columns::Said, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn lines_are_shared_by_those_who_print_alike() {
        assert_eq!(rows(Included::None), rows(Included::None));
        assert_ne!(rows(Included::None), rows(Included::Object));
        let plain = |form| Lines::new(&kind(""), form);
        assert_ne!(plain(Form::Full), plain(Form::Metadata(MetaVersion::V1)));
        // Of a definition that has been given other columns since.
        let table = Form::Table(TableForm::default());
        let custom = kind("spec.x");
        assert_ne!(Lines::new(&custom, table), Lines::new(&kind(""), table));
    }
}
