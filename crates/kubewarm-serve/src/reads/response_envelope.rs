//! Encodes the objects of a response as items of a list, as rows of a `Table` or as a single
//! object.

use super::{
    DamagedObjectError, item_position::ItemPosition, kind_info::KindInfo, row_printer::RowPrinter,
};
use crate::metrics::ReadMetrics;
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_cache::store::StoredObject;
use kubewarm_wire::{
    JsonBuffer, ListEnvelope, MediaType, ObjectBody, ResponseForm, ResponseFormat, TableEnvelope,
    protobuf::write_list_tail,
};
use std::sync::Arc;

/// The format of a response body. Each variant contains the values that kubewarm writes before and
/// after the objects of the response.
#[derive(Debug)]
pub(super) enum ResponseEnvelope {
    List(ListEnvelope),
    /// A list in protobuf, and the sum of [`item_length`](kubewarm_wire::protobuf::item_length) for
    /// all items, because the encoded list contains this length before its first item.
    ProtobufList(ListEnvelope, usize),
    /// A `Table`. The rows show ages relative to the timestamp.
    Table(TableEnvelope, RowPrinter, Timestamp),
}

impl ResponseEnvelope {
    /// Creates the format of a response with several objects. `next` is the continue token of the
    /// next page, and `remaining` is the number of objects after this page. `items_length` is
    /// needed only for a list in protobuf.
    pub(super) fn new(
        kind: &KindInfo,
        format: ResponseFormat,
        version: ResourceVersion,
        next: Option<String>,
        remaining: Option<u64>,
        items_length: usize,
        metrics: &ReadMetrics,
    ) -> Self {
        let form = format.form;
        let (api_version, name) = (kind.api_version(), Arc::clone(&kind.document.kind));
        let item_form = match form {
            ResponseForm::Object(part) => part,
            ResponseForm::Table(form) => {
                let rows = kind.row_printer(metrics);
                let printer = &rows.printer;
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
                return Self::Table(envelope, rows, Timestamp::now());
            }
        };
        let envelope = ListEnvelope {
            api_version,
            kind: name,
            list_kind: kind.list_kind(),
            is_custom: kind.definition.is_some(),
            item_form,
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

    /// Writes one object as an item of a list or a row of a `Table`.
    ///
    /// # Errors
    ///
    /// [`DamagedObjectError`] if `body` is not in its encoding. The response must then fail,
    /// because a list without the object would be wrong.
    pub(super) fn write(
        &self,
        body: ObjectBody<'_>,
        position: ItemPosition,
        buffer: &mut JsonBuffer,
        out: &mut Vec<u8>,
    ) -> Result<(), DamagedObjectError> {
        if let Self::ProtobufList(envelope, _) = self {
            envelope.write_protobuf_item(body.bytes, out);
            return Ok(());
        }
        let body = body.to_json(buffer).ok_or(DamagedObjectError)?;
        match self {
            Self::ProtobufList(..) => {}
            Self::List(envelope) => match position {
                ItemPosition::First => envelope.write_first_item(body, out),
                ItemPosition::Next => envelope.write_next_item(body, out),
            },
            Self::Table(envelope, printer, now) => {
                let cells = printer.row(&envelope.api_version, &envelope.kind, body, *now);
                match position {
                    ItemPosition::First => envelope.write_first_row(&cells, body, out),
                    ItemPosition::Next => envelope.write_next_row(&cells, body, out),
                }
            }
        }
        Ok(())
    }

    pub(super) fn tail(&self, is_empty: bool, out: &mut Vec<u8>) {
        match self {
            Self::List(envelope) => envelope.write_tail(is_empty, out),
            Self::ProtobufList(..) => write_list_tail(out),
            Self::Table(envelope, ..) => envelope.write_tail(is_empty, out),
        }
    }
}

/// Returns the complete response to a get.
///
/// # Errors
///
/// [`DamagedObjectError`] if the object is not in its encoding.
pub(super) fn whole(
    kind: &KindInfo,
    object: &StoredObject,
    format: ResponseFormat,
    metrics: &ReadMetrics,
) -> Result<Vec<u8>, DamagedObjectError> {
    let body = object.body();
    let mut out = Vec::with_capacity(body.bytes.len() + 128);
    let part = match format.form {
        ResponseForm::Object(part) => part,
        ResponseForm::Table(_) => {
            let version = object.version.clone().unwrap_or_else(|| 0.into());
            let envelope = ResponseEnvelope::new(kind, format, version, None, None, 0, metrics);
            envelope.head(&mut out);
            envelope.write(body, ItemPosition::First, &mut JsonBuffer::default(), &mut out)?;
            envelope.tail(false, &mut out);
            return Ok(out);
        }
    };
    let (api_version, name) = (kind.api_version(), &kind.document.kind);
    match format.media_type {
        MediaType::Protobuf => {
            kubewarm_wire::write_single_message(&api_version, name, body.bytes, part, &mut out);
        }
        MediaType::Json => {
            let mut buffer = JsonBuffer::default();
            let json = body.to_json(&mut buffer).ok_or(DamagedObjectError)?;
            kubewarm_wire::write_single_object(&api_version, name, json, part, &mut out);
        }
    }
    Ok(out)
}
