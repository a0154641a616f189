//! Encodes the objects of a response as items of a list, as rows of a `Table` or as a single object.

use super::kind_info::KindInfo;
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_cache::store::StoredObject;
use kubewarm_wire::{
    JsonBuffer, ListEnvelope, MediaType, ObjectBody, ResponseForm, ResponseFormat, TableEnvelope,
    protobuf::write_list_tail, tables::TablePrinter,
};
use std::sync::Arc;

/// The format of a response body. Each variant contains the values that kubewarm writes before and after the
/// objects of the response.
#[derive(Debug)]
pub(super) enum ResponseEnvelope {
    List(ListEnvelope),
    /// A list in protobuf, and the sum of [`item_length`](kubewarm_wire::protobuf::item_length) for all items.
    ProtobufList(ListEnvelope, usize),
    /// A `Table`. The rows show ages relative to the timestamp.
    Table(TableEnvelope, TablePrinter, Timestamp),
}

impl ResponseEnvelope {
    /// Creates the format of a response with several objects. `next` is the continue token of the next page, and
    /// `remaining` is the number of objects after this page. `items_length` is needed only for a list in protobuf.
    pub(super) fn new(
        kind: &KindInfo,
        format: ResponseFormat,
        version: ResourceVersion,
        next: Option<String>,
        remaining: Option<u64>,
        items_length: usize,
    ) -> Self {
        let form = format.form;
        let (api_version, name) = (kind.api_version(), Arc::clone(&kind.document.kind));
        let of = match form {
            ResponseForm::Object(part) => part,
            ResponseForm::Table(form) => {
                let printer = kind.printer();
                let envelope = TableEnvelope {
                    api_version,
                    kind: name,
                    form,
                    columns: printer.columns().into(),
                    version,
                    next,
                    remaining,
                    has_rows_if_empty: printer.has_rows_if_empty(),
                };
                return Self::Table(envelope, printer, Timestamp::now());
            }
        };
        let envelope = ListEnvelope {
            api_version,
            kind: name,
            list_kind: kind.list_kind(),
            is_custom: kind.definition.is_some(),
            item_form: of,
            version,
            next,
            remaining,
        };
        match format.media_type {
            MediaType::Json => Self::List(envelope),
            MediaType::Protobuf => Self::ProtobufList(envelope, items_length),
        }
    }

    pub(super) fn head(&self, out: &mut Vec<u8>) {
        match self {
            Self::List(envelope) => envelope.write_head(out),
            Self::ProtobufList(envelope, length) => envelope.write_protobuf_head(*length, out),
            Self::Table(envelope, ..) => envelope.write_head(out),
        }
    }

    /// Writes one object as an item of a list or a row of a `Table`. Returns `false` if kubewarm cannot write it
    /// because `body` is not an object.
    pub(super) fn write(
        &self,
        body: ObjectBody<'_>,
        is_first: bool,
        buffer: &mut JsonBuffer,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Self::ProtobufList(envelope, _) = self {
            envelope.write_protobuf_item(body.bytes, out);
            return true;
        }
        let Some(body) = body.to_json(buffer) else {
            tracing::error!("an item is left out: the stored object is not in its encoding");
            return false;
        };
        match self {
            Self::ProtobufList(..) => {}
            Self::List(envelope) if is_first => envelope.write_first_item(body, out),
            Self::List(envelope) => envelope.write_next_item(body, out),
            Self::Table(envelope, printer, now) => {
                let Some(cells) = printer.row(&envelope.api_version, &envelope.kind, body, *now)
                else {
                    tracing::error!(kind = %envelope.kind, "a row is left out: the stored object is not JSON");
                    return false;
                };
                if is_first {
                    envelope.write_first_row(&cells, body, out);
                } else {
                    envelope.write_next_row(&cells, body, out);
                }
            }
        }
        true
    }

    pub(super) fn tail(&self, is_empty: bool, out: &mut Vec<u8>) {
        match self {
            Self::List(envelope) => envelope.write_tail(is_empty, out),
            Self::ProtobufList(..) => write_list_tail(out),
            Self::Table(envelope, ..) => envelope.write_tail(is_empty, out),
        }
    }
}

pub(super) fn whole(kind: &KindInfo, object: &StoredObject, format: ResponseFormat) -> Vec<u8> {
    let body = object.body();
    let mut out = Vec::with_capacity(body.bytes.len() + 128);
    let part = match format.form {
        ResponseForm::Object(part) => part,
        ResponseForm::Table(_) => {
            let version = object.version.clone().unwrap_or_else(|| 0.into());
            let envelope = ResponseEnvelope::new(kind, format, version, None, None, 0);
            envelope.head(&mut out);
            let is_empty = !envelope.write(body, true, &mut JsonBuffer::default(), &mut out);
            envelope.tail(is_empty, &mut out);
            return out;
        }
    };
    let (api_version, name) = (kind.api_version(), &kind.document.kind);
    match format.media_type {
        MediaType::Protobuf => {
            kubewarm_wire::write_single_message(&api_version, name, body.bytes, part, &mut out);
        }
        MediaType::Json => {
            let mut buffer = JsonBuffer::default();
            // The informer has checked the object, so it can be written as JSON.
            let json = body.to_json(&mut buffer).unwrap_or_default();
            kubewarm_wire::write_single_object(&api_version, name, json, part, &mut out);
        }
    }
    out
}
