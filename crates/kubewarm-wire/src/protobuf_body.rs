//! Writes response bodies in protobuf from stored objects. The functions copy the objects, and never decode them.

use super::{
    ObjectForm, StatusError,
    protobuf::{
        ListMeta, Unknown, item_length, metadata_field, write_item, write_list_head,
        write_list_tail, write_watch_event,
    },
};
use kubewarm_api::model::ResourceVersion;
use std::sync::Arc;

/// The parts of a list response in protobuf before and after its items, like
/// [`ListEnvelope`](super::ListEnvelope). The length of the list is written before the first item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufListEnvelope {
    /// `apiVersion` of the list.
    pub api_version: Arc<str>,
    /// The `kind` of the list, such as `PodList`.
    pub list_kind: Arc<str>,
    /// The part of each item that the list contains.
    pub item_form: ObjectForm,
    /// `metadata.resourceVersion` of the list.
    pub version: ResourceVersion,
    /// The continue token for the next page; `None` on the last page.
    pub next: Option<String>,
    /// Number of objects on later pages. The response omits the number 0.
    pub remaining: Option<u64>,
    /// The sum of [`Self::item_length`] for all items.
    pub items_length: usize,
}

impl ProtobufListEnvelope {
    /// Writes everything before the first item.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        let (api_version, kind) = match self.item_form {
            ObjectForm::Full => (&*self.api_version, &*self.list_kind),
            ObjectForm::Metadata(version) => (version.api_version(), "PartialObjectMetadataList"),
        };
        let version = self.version.to_string();
        let metadata = ListMeta {
            version: &version,
            next: self.next.as_deref().unwrap_or_default(),
            remaining: self.remaining.filter(|remaining| *remaining > 0),
        };
        write_list_head(api_version, kind, &metadata, self.items_length, out);
    }

    /// Returns the number of bytes that [`Self::write_item`] writes.
    #[must_use]
    pub fn item_length(stored: &[u8], form: ObjectForm) -> usize {
        item_length(part(stored, form).len())
    }

    /// Writes one item.
    pub fn write_item(&self, stored: &[u8], out: &mut Vec<u8>) {
        write_item(part(stored, self.item_form), out);
    }

    /// Writes everything behind the last item.
    pub fn write_tail(out: &mut Vec<u8>) {
        write_list_tail(out);
    }
}

/// Writes one object as the complete response to a get.
pub fn write_single_message(
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectForm,
    out: &mut Vec<u8>,
) {
    unknown(api_version, kind, stored, form).write(out);
}

/// Writes an event of a watch. `of` is its type, such as `ADDED`.
pub fn write_event_message(
    of: &str,
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectForm,
    out: &mut Vec<u8>,
) {
    write_watch_event(of, &unknown(api_version, kind, stored, form), out);
}

/// Writes the event `ERROR`, which must be the last event of a watch.
pub fn write_error_message(failure: &StatusError, out: &mut Vec<u8>) {
    let raw = failure.message_bytes();
    write_watch_event("ERROR", &Unknown { api_version: "v1", kind: "Status", raw: &raw }, out);
}

/// Returns the `Status` of a failed request as a response body.
#[must_use]
pub fn status_message(failure: &StatusError) -> Vec<u8> {
    let mut out = Vec::new();
    let raw = failure.message_bytes();
    Unknown { api_version: "v1", kind: "Status", raw: &raw }.write(&mut out);
    out
}

fn unknown<'a>(
    api_version: &'a str,
    kind: &'a str,
    stored: &'a [u8],
    form: ObjectForm,
) -> Unknown<'a> {
    let raw = part(stored, form);
    match form {
        ObjectForm::Full => Unknown { api_version, kind, raw },
        ObjectForm::Metadata(version) => {
            Unknown { api_version: version.api_version(), kind: "PartialObjectMetadata", raw }
        }
    }
}

/// Returns the part of the stored object that a response contains. Every object begins with its metadata, so the field
/// `metadata` alone is a `PartialObjectMetadata`.
fn part(stored: &[u8], form: ObjectForm) -> &[u8] {
    match form {
        ObjectForm::Full => stored,
        ObjectForm::Metadata(_) => metadata_field(stored),
    }
}
