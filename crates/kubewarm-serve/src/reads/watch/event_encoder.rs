//! Encodes the events of a watch, with whole objects or with `Table`s.

use crate::reads::kind_info::KindInfo;
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_wire::{
    BookmarkKind, EventType, JsonBuffer, MediaType, ObjectBody, ObjectForm, ResponseForm,
    ResponseFormat, TableEnvelope, TableForm, protobuf, tables::TablePrinter,
};
use std::sync::Arc;

/// Encodes the events of a watch. Watches with equal encoders share their encoded event lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventEncoder {
    api_version: Arc<str>,
    kind: Arc<str>,
    /// The part of each object that an event contains, such as only metadata. Events with `Table`s do not use this
    /// field.
    of: ObjectForm,
    media_type: MediaType,
    /// The form of `Table`s and the printer of their rows; `None` if events contain objects. Each event has a
    /// `Table` of one row. Ages in the row are relative to the time of encoding.
    rows: Option<(TableForm, TablePrinter)>,
}

impl EventEncoder {
    pub(super) fn new(kind: &KindInfo, format: ResponseFormat) -> Self {
        let ResponseFormat { media_type, form } = format;
        let (of, rows) = match form {
            ResponseForm::Object(part) => (part, None),
            ResponseForm::Table(form) => (ObjectForm::Full, Some((form, kind.printer()))),
        };
        let (api_version, kind) = (kind.api_version(), Arc::clone(&kind.document.kind));
        Self { api_version, kind, of, media_type, rows }
    }

    /// Writes an event about the object `stored`. Returns `false` if kubewarm cannot write the event because `stored`
    /// is not an object. Only the first event of a watch contains the table's columns, because clients keep the
    /// columns of the first event.
    pub(super) fn event(
        &self,
        of: EventType,
        stored: ObjectBody<'_>,
        is_first: bool,
        buffer: &mut JsonBuffer,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.media_type == MediaType::Protobuf {
            self.message(of.as_str(), stored.bytes, out);
            return true;
        }
        let Some(stored) = stored.to_json(buffer) else { return false };
        let Some((form, printer)) = &self.rows else {
            kubewarm_wire::write_event(of, |out| self.object(stored, out), out);
            return true;
        };
        let row = self.row(*form, printer, stored, is_first);
        row.map(|row| kubewarm_wire::write_event(of, row, out)).is_some()
    }

    /// Writes a bookmark for the resource version `version`. As in the API server, a bookmark in a watch of
    /// `Table`s has one row, with an object that contains only this version.
    pub(super) fn bookmark(
        &self,
        version: &ResourceVersion,
        bookmark: BookmarkKind,
        is_first: bool,
        out: &mut Vec<u8>,
    ) {
        if self.media_type == MediaType::Protobuf {
            let stored = protobuf::bookmark_message(&version.to_string(), bookmark);
            return self.message("BOOKMARK", &stored, out);
        }
        let stored = kubewarm_wire::bookmark_object(version, bookmark);
        let Some((form, printer)) = &self.rows else {
            return kubewarm_wire::write_bookmark(|out| self.object(&stored, out), out);
        };
        let mut form = *form;
        if bookmark == BookmarkKind::InitialEnd {
            // An annotation of the row's object marks the end of the initial objects. So the row contains the
            // object's metadata even if the client requests rows without objects.
            form.object.get_or_insert(ObjectForm::Metadata(form.version));
        }
        if let Some(row) = self.row(form, printer, &stored, is_first) {
            kubewarm_wire::write_bookmark(row, out);
        }
    }

    /// Writes an event in protobuf.
    fn message(&self, of: &str, stored: &[u8], out: &mut Vec<u8>) {
        kubewarm_wire::write_event_message(of, &self.api_version, &self.kind, stored, self.of, out);
    }

    fn object(&self, stored: &[u8], out: &mut Vec<u8>) {
        kubewarm_wire::write_object(&self.api_version, &self.kind, stored, self.of, out);
    }

    /// Returns a function that writes the object as a `Table` of one row; `None` if the object is not JSON.
    fn row<'s>(
        &self,
        form: TableForm,
        printer: &TablePrinter,
        stored: &'s [u8],
        is_first: bool,
    ) -> Option<impl FnOnce(&mut Vec<u8>) + use<'s>> {
        let Self { api_version, kind, .. } = self;
        let Some(cells) = printer.row(api_version, kind, stored, Timestamp::now()) else {
            tracing::error!(%kind, "an event is left out: the stored object is not JSON");
            return None;
        };
        let envelope = TableEnvelope {
            api_version: Arc::clone(api_version),
            kind: Arc::clone(kind),
            form,
            columns: if is_first { printer.columns().into() } else { "null".into() },
            version: kubewarm_wire::version_of(stored).unwrap_or_else(|| 0.into()),
            next: None,
            remaining: None,
            // This field has no effect, because the `Table` of an event always has one row.
            has_rows_if_empty: true,
        };
        Some(move |out: &mut Vec<u8>| envelope.write_single_row_table(&cells, stored, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::kind;
    use kubewarm_wire::MetaVersion;
    use serde_json::{Value, json};

    const POD: &[u8] =
        br#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"phase":"Running"}}"#;

    const METADATA: ObjectForm = ObjectForm::Metadata(MetaVersion::V1);

    fn table(object: Option<ObjectForm>) -> ResponseForm {
        ResponseForm::Table(TableForm { version: MetaVersion::V1, object })
    }

    fn rows(object: Option<ObjectForm>) -> EventEncoder {
        EventEncoder::new(&kind(""), ResponseFormat::json(table(object)))
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        write(&mut out);
        let end = out.iter().position(|byte| *byte == b'\n');
        assert_eq!(end, Some(out.len() - 1), "one line");
        serde_json::from_slice(&out).unwrap()
    }

    fn encode(
        lines: &EventEncoder,
        of: EventType,
        stored: &[u8],
        is_first: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        lines.event(of, ObjectBody::json(stored), is_first, &mut JsonBuffer::default(), out)
    }

    fn event(lines: &EventEncoder, stored: &[u8], is_first: bool) -> Value {
        written(|out| assert!(encode(lines, EventType::Modified, stored, is_first, out)))
    }

    #[test]
    fn an_event_is_a_table_of_one_row_and_only_the_first_has_columns() {
        let lines = rows(Some(METADATA));
        let first = event(&lines, POD, true);
        let table = &first["object"];
        assert_eq!((&first["type"], &table["kind"]), (&json!("MODIFIED"), &json!("Table")));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(columns[0]["name"], "Name");
        assert_eq!(table["rows"].as_array().unwrap().len(), 1);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!((cells.len(), &cells[0]), (columns.len(), &json!("a")));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let further = event(&lines, POD, false);
        assert_eq!(further["object"]["columnDefinitions"], Value::Null);
        assert_eq!(further["object"]["rows"], table["rows"]);
    }

    #[test]
    fn the_end_of_the_initial_objects_is_marked_in_every_form_of_table() {
        let mark =
            json!({"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}});
        for (object, kind) in [
            (None, "PartialObjectMetadata"),
            (Some(METADATA), "PartialObjectMetadata"),
            (Some(ObjectForm::Full), "Pod"),
        ] {
            let lines = rows(object);
            let end = written(|out| lines.bookmark(&9.into(), BookmarkKind::InitialEnd, true, out));
            let row = &end["object"]["rows"][0];
            assert_eq!(end["type"], "BOOKMARK");
            assert!(
                end["object"]["columnDefinitions"].is_array(),
                "the first event of a watch has columns"
            );
            assert_eq!((&row["object"]["kind"], &row["object"]["metadata"]), (&json!(kind), &mark));
            let later =
                written(|out| lines.bookmark(&9.into(), BookmarkKind::Progress, false, out));
            let object_of = &later["object"]["rows"][0]["object"];
            assert_eq!(object_of.is_null(), object.is_none(), "{later}");
            assert_eq!(later["object"]["metadata"]["resourceVersion"], "9");
        }
    }

    #[test]
    fn objects_that_are_not_json_are_left_out() {
        let mut out = Vec::new();
        assert!(!encode(&rows(None), EventType::Added, b"{", true, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn watches_with_the_same_columns_and_form_have_equal_encodings() {
        assert_eq!(rows(None), rows(None));
        assert_ne!(rows(None), rows(Some(ObjectForm::Full)));
        let plain = |form| EventEncoder::new(&kind(""), ResponseFormat::json(form));
        assert_ne!(
            plain(ResponseForm::Object(ObjectForm::Full)),
            plain(ResponseForm::Object(METADATA))
        );
        // A built-in kind and a custom resource have different columns, so their `EventEncoder`s are not equal.
        let table = ResponseFormat::json(table(Some(METADATA)));
        let custom = kind("spec.x");
        assert_ne!(EventEncoder::new(&custom, table), EventEncoder::new(&kind(""), table));
    }
}
