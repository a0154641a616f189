//! Encodes the events of a watch, with whole objects or with `Table`s.

use crate::{
    metrics::ReadMetrics,
    reads::{
        DamagedObjectError, item_position::ItemPosition, kind_info::KindInfo,
        row_printer::RowPrinter,
    },
};
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_wire::{
    BookmarkKind, EventType, JsonBuffer, MediaType, ObjectBody, ObjectPart, ResponseForm,
    ResponseFormat, TableEnvelope, TableForm, protobuf,
};
use std::sync::Arc;

/// Encodes the events of a watch. Watches with equal encoders share their encoded event lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventEncoder {
    api_version: Arc<str>,
    kind: Arc<str>,
    /// The part of each object that an event contains, such as only metadata. Events with `Table`s
    /// do not use this field.
    part: ObjectPart,
    pub(super) media_type: MediaType,
    /// The form of `Table`s and the printer of their rows; `None` if events contain objects. Each
    /// event has a `Table` of one row. Ages in the row are relative to the time of encoding.
    rows: Option<(TableForm, RowPrinter)>,
}

impl EventEncoder {
    pub(super) fn new(kind: &KindInfo, format: ResponseFormat, metrics: &ReadMetrics) -> Self {
        let ResponseFormat { media_type, form } = format;
        let (part, rows) = match form {
            ResponseForm::Object(part) => (part, None),
            ResponseForm::Table(form) => {
                (ObjectPart::Full, Some((form, kind.row_printer(metrics))))
            }
        };
        let (api_version, kind) = (kind.api_version(), Arc::clone(&kind.document.kind));
        Self { api_version, kind, part, media_type, rows }
    }

    /// Writes an event about the object `stored`. Only the first event of a watch contains the
    /// table's columns, because clients keep the columns of the first event.
    ///
    /// # Errors
    ///
    /// [`DamagedObjectError`] if `stored` is not in its encoding. The watch must then end, because
    /// the client would miss the event.
    pub(super) fn event(
        &self,
        event_type: EventType,
        stored: ObjectBody<'_>,
        position: ItemPosition,
        buffer: &mut JsonBuffer,
        out: &mut Vec<u8>,
    ) -> Result<(), DamagedObjectError> {
        if self.media_type == MediaType::Protobuf {
            self.message(event_type.as_str(), stored.bytes, out);
            return Ok(());
        }
        let stored = stored.to_json(buffer).ok_or(DamagedObjectError)?;
        match &self.rows {
            None => kubewarm_wire::write_event(event_type, |out| self.object(stored, out), out),
            Some((form, rows)) => {
                kubewarm_wire::write_event(
                    event_type,
                    self.row(*form, rows, stored, position),
                    out,
                );
            }
        }
        Ok(())
    }

    /// Writes a bookmark for the resource version `version`. As in the API server, a bookmark in a
    /// watch of `Table`s has one row, with an object that contains only this version.
    pub(super) fn bookmark(
        &self,
        version: &ResourceVersion,
        bookmark: BookmarkKind,
        position: ItemPosition,
        out: &mut Vec<u8>,
    ) {
        if self.media_type == MediaType::Protobuf {
            let stored = protobuf::bookmark_message(&version.to_string(), bookmark);
            return self.message("BOOKMARK", &stored, out);
        }
        let stored = kubewarm_wire::bookmark_object(version, bookmark);
        let Some((form, rows)) = &self.rows else {
            return kubewarm_wire::write_bookmark(|out| self.object(&stored, out), out);
        };
        let mut form = *form;
        if bookmark == BookmarkKind::InitialEnd {
            // An annotation of the row's object marks the end of the initial objects. So the row
            // contains the object's metadata even if the client requests rows without objects.
            form.object.get_or_insert(ObjectPart::Metadata(form.version));
        }
        kubewarm_wire::write_bookmark(self.row(form, rows, &stored, position), out);
    }

    /// Writes an event in protobuf.
    fn message(&self, event_type: &str, stored: &[u8], out: &mut Vec<u8>) {
        kubewarm_wire::write_event_message(
            event_type,
            &self.api_version,
            &self.kind,
            stored,
            self.part,
            out,
        );
    }

    fn object(&self, stored: &[u8], out: &mut Vec<u8>) {
        kubewarm_wire::write_object(&self.api_version, &self.kind, stored, self.part, out);
    }

    /// Returns a function that writes the object as a `Table` of one row.
    fn row<'s>(
        &self,
        form: TableForm,
        rows: &RowPrinter,
        stored: &'s [u8],
        position: ItemPosition,
    ) -> impl FnOnce(&mut Vec<u8>) + use<'s> {
        let Self { api_version, kind, .. } = self;
        let cells = rows.row(api_version, kind, stored, Timestamp::now());
        let envelope = TableEnvelope {
            api_version: Arc::clone(api_version),
            kind: Arc::clone(kind),
            form,
            columns: match position {
                ItemPosition::First => rows.printer.columns().into(),
                ItemPosition::Next => "null".into(),
            },
            version: kubewarm_wire::version_of(stored).unwrap_or_else(|| 0.into()),
            next: None,
            remaining: None,
            // This field has no effect, because the `Table` of an event always has one row and is
            // never empty.
            has_rows_if_empty: true,
        };
        move |out: &mut Vec<u8>| envelope.write_single_row_table(&cells, stored, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::{kind, metrics};
    use kubewarm_wire::MetaVersion;
    use serde_json::{Value, json};

    const POD: &[u8] =
        br#"{"metadata":{"name":"a","resourceVersion":"7"},"status":{"phase":"Running"}}"#;

    const METADATA: ObjectPart = ObjectPart::Metadata(MetaVersion::V1);

    fn table(object: Option<ObjectPart>) -> ResponseForm {
        ResponseForm::Table(TableForm { version: MetaVersion::V1, object })
    }

    fn rows(object: Option<ObjectPart>) -> EventEncoder {
        EventEncoder::new(&kind(""), ResponseFormat::json(table(object)), &metrics())
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
        event_type: EventType,
        stored: &[u8],
        position: ItemPosition,
        out: &mut Vec<u8>,
    ) -> Result<(), DamagedObjectError> {
        lines.event(event_type, ObjectBody::json(stored), position, &mut JsonBuffer::default(), out)
    }

    fn event(lines: &EventEncoder, stored: &[u8], position: ItemPosition) -> Value {
        written(|out| encode(lines, EventType::Modified, stored, position, out).unwrap())
    }

    #[test]
    fn an_event_is_a_table_of_one_row_and_only_the_first_has_columns() {
        let lines = rows(Some(METADATA));
        let first = event(&lines, POD, ItemPosition::First);
        let table = &first["object"];
        assert_eq!((&first["type"], &table["kind"]), (&json!("MODIFIED"), &json!("Table")));
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        let columns = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(columns[0]["name"], "Name");
        assert_eq!(table["rows"].as_array().unwrap().len(), 1);
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!((cells.len(), &cells[0]), (columns.len(), &json!("a")));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let further = event(&lines, POD, ItemPosition::Next);
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
            (Some(ObjectPart::Full), "Pod"),
        ] {
            let lines = rows(object);
            let end = written(|out| {
                lines.bookmark(&9.into(), BookmarkKind::InitialEnd, ItemPosition::First, out);
            });
            let row = &end["object"]["rows"][0];
            assert_eq!(end["type"], "BOOKMARK");
            assert!(
                end["object"]["columnDefinitions"].is_array(),
                "the first event of a watch has columns"
            );
            assert_eq!((&row["object"]["kind"], &row["object"]["metadata"]), (&json!(kind), &mark));
            let later = written(|out| {
                lines.bookmark(&9.into(), BookmarkKind::Progress, ItemPosition::Next, out);
            });
            let object_of = &later["object"]["rows"][0]["object"];
            assert_eq!(object_of.is_null(), object.is_none(), "{later}");
            assert_eq!(later["object"]["metadata"]["resourceVersion"], "9");
        }
    }

    #[test]
    fn an_object_that_is_not_json_has_a_row_with_its_name() {
        let event =
            event(&rows(None), br#"{"metadata":{"name":"a"},"spec":tru}"#, ItemPosition::First);
        let cells = event["object"]["rows"][0]["cells"].as_array().unwrap();
        assert_eq!((&cells[0], cells[1..].iter().all(Value::is_null)), (&json!("a"), true));
        let columns = &event["object"]["columnDefinitions"];
        assert_eq!(columns.as_array().unwrap().len(), cells.len());
    }

    #[test]
    fn an_event_about_a_damaged_object_is_an_error() {
        let pod = kubewarm_wire::protobuf::message_of_kind("v1", "Pod").unwrap();
        let encoding = kubewarm_api::model::ObjectEncoding::Protobuf(pod);
        let damaged = ObjectBody { encoding, bytes: b"\x0a\x7f" };
        let (mut buffer, mut out) = (JsonBuffer::default(), Vec::new());
        let written =
            rows(None).event(EventType::Added, damaged, ItemPosition::First, &mut buffer, &mut out);
        assert_eq!(written, Err(DamagedObjectError));
    }

    #[test]
    fn watches_with_the_same_columns_and_form_have_equal_encodings() {
        assert_eq!(rows(None), rows(None));
        assert_ne!(rows(None), rows(Some(ObjectPart::Full)));
        let plain = |form| EventEncoder::new(&kind(""), ResponseFormat::json(form), &metrics());
        assert_ne!(
            plain(ResponseForm::Object(ObjectPart::Full)),
            plain(ResponseForm::Object(METADATA))
        );
        // A built-in kind and a custom resource have different columns, so their `EventEncoder`s
        // are not equal.
        let table = ResponseFormat::json(table(Some(METADATA)));
        let custom = kind("spec.x");
        let encoder_for = |kind: &KindInfo| EventEncoder::new(kind, table, &metrics());
        assert_ne!(encoder_for(&custom), encoder_for(&kind("")));
    }
}
