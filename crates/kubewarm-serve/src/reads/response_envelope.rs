//! Encodes the objects of a response as items of a list, as rows of a `Table` or as a single object.

use super::kind_info::KindInfo;
use jiff::Timestamp;
use kubewarm_api::model::ResourceVersion;
use kubewarm_cache::store::StoredObject;
use kubewarm_wire::{ListEnvelope, ResponseForm, TableEnvelope, tables::TablePrinter};
use std::sync::Arc;

/// The format of a response body. Each variant contains the values that kubewarm writes before and after the
/// objects of the response.
#[derive(Debug)]
pub(super) enum ResponseEnvelope {
    List(ListEnvelope),
    /// A `Table`. The rows show ages relative to the timestamp.
    Table(TableEnvelope, TablePrinter, Timestamp),
}

impl ResponseEnvelope {
    /// Creates the format of a response with several objects. `next` is the continue token of the next page, and
    /// `remaining` is the number of objects after this page.
    pub(super) fn new(
        kind: &KindInfo,
        form: ResponseForm,
        version: ResourceVersion,
        next: Option<String>,
        remaining: Option<u64>,
    ) -> Self {
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
        Self::List(ListEnvelope {
            api_version,
            kind: name,
            list_kind: kind.list_kind(),
            is_custom: kind.definition.is_some(),
            item_form: of,
            version,
            next,
            remaining,
        })
    }

    pub(super) fn head(&self, out: &mut Vec<u8>) {
        match self {
            Self::List(envelope) => envelope.write_head(out),
            Self::Table(envelope, ..) => envelope.write_head(out),
        }
    }

    /// Writes one object as an item of a list or a row of a `Table`. Returns `false` if kubewarm cannot write a row
    /// because `body`, the stored object, is not JSON.
    pub(super) fn write(&self, body: &[u8], is_first: bool, out: &mut Vec<u8>) -> bool {
        match self {
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
            Self::Table(envelope, ..) => envelope.write_tail(is_empty, out),
        }
    }
}

pub(super) fn whole(kind: &KindInfo, object: &StoredObject, form: ResponseForm) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.body.len() + 128);
    let part = match form {
        ResponseForm::Object(part) => part,
        ResponseForm::Table(_) => {
            let version = object.version.clone().unwrap_or_else(|| 0.into());
            let envelope = ResponseEnvelope::new(kind, form, version, None, None);
            envelope.head(&mut out);
            let is_empty = !envelope.write(&object.body, true, &mut out);
            envelope.tail(is_empty, &mut out);
            return out;
        }
    };
    kubewarm_wire::write_single_object(
        &kind.api_version(),
        &kind.document.kind,
        &object.body,
        part,
        &mut out,
    );
    out
}
