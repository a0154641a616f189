//! Writes response bodies in protobuf from stored objects. The functions copy the objects, and
//! never decode them.

use super::{
    ListEnvelope, ObjectPart, StatusError,
    protobuf::{ListMeta, Unknown, metadata_field, write_item, write_list_head, write_watch_event},
};

impl ListEnvelope {
    /// Writes everything before the first item of a list in protobuf. `items_length` is the sum of
    /// [`item_length`](super::protobuf::item_length) for all items.
    pub fn write_protobuf_head(&self, items_length: usize, out: &mut Vec<u8>) {
        let (api_version, kind) = self.types();
        let version = self.version.to_string();
        let metadata = ListMeta {
            version: &version,
            next: self.next.as_deref().unwrap_or_default(),
            remaining: self.remaining.filter(|remaining| *remaining > 0),
        };
        write_list_head(api_version, kind, &metadata, items_length, out);
    }

    /// Writes one item of a list in protobuf.
    pub fn write_protobuf_item(&self, stored: &[u8], out: &mut Vec<u8>) {
        write_item(part(stored, self.item_form), out);
    }
}

/// Writes one object as the complete response to a get.
pub fn write_single_message(
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectPart,
    out: &mut Vec<u8>,
) {
    unknown(api_version, kind, stored, form).write(out);
}

/// Writes an event of a watch. `event_type` is its type, such as `ADDED`.
pub fn write_event_message(
    event_type: &str,
    api_version: &str,
    kind: &str,
    stored: &[u8],
    form: ObjectPart,
    out: &mut Vec<u8>,
) {
    write_watch_event(event_type, &unknown(api_version, kind, stored, form), out);
}

/// Writes the event `ERROR`, which must be the last event of a watch.
pub fn write_error_message(failure: &StatusError, out: &mut Vec<u8>) {
    let raw = failure.message_bytes();
    write_watch_event("ERROR", &Unknown { api_version: "v1", kind: "Status", raw: &raw }, out);
}

/// Returns the `Status` of a failed request as a response body.
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
    form: ObjectPart,
) -> Unknown<'a> {
    let raw = part(stored, form);
    match form {
        ObjectPart::Full => Unknown { api_version, kind, raw },
        ObjectPart::Metadata(version) => {
            Unknown { api_version: version.api_version(), kind: "PartialObjectMetadata", raw }
        }
    }
}

/// Returns the part of the stored object that a response contains. Every stored object begins with
/// its metadata, and `PartialObjectMetadata` has metadata as its only field. So the bytes of this
/// field are the complete message.
fn part(stored: &[u8], form: ObjectPart) -> &[u8] {
    match form {
        ObjectPart::Full => stored,
        ObjectPart::Metadata(_) => metadata_field(stored),
    }
}
