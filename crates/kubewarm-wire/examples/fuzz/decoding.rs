//! Decodes hostile protobuf in every way in which kubewarm decodes it.

use kubewarm_api::model::{FieldPath, ObjectEncoding};
use kubewarm_wire::{
    JsonBuffer, ObjectBody,
    json::FieldPathSet,
    protobuf::{
        FieldHead, ListHead, ListMeta, ObjectNames, Omissions, Unknown, check_message,
        for_each_annotation, for_each_label, has_same_labels, message_of_kind, metadata_field,
        parse_watch_event, parse_watch_event_start, with_version, write_without,
    },
};

/// Maximum bytes of JSON for each byte of protobuf. JSON is longer, because Go writes zero values
/// that protobuf omits: an empty message of two bytes can have several.
const MAX_GROWTH: usize = 100;

/// Decodes `bytes` as a response and as an event. Panics if the JSON is longer than `MAX_GROWTH`
/// permits, or if a message that `check_message` accepts cannot be written as JSON.
pub(crate) fn decode(bytes: &[u8]) {
    let _ = (ListHead::parse(bytes), FieldHead::parse(bytes), ListMeta::parse(bytes));
    let _ = (parse_watch_event(bytes), parse_watch_event_start(bytes));
    let Ok(Unknown { api_version, kind, raw }) = Unknown::parse(bytes) else { return };
    let Some(message) = message_of_kind(api_version, kind) else { return };
    let is_valid = check_message(message, raw).is_ok();
    let body = ObjectBody { encoding: ObjectEncoding::Protobuf(message), bytes: raw };
    let mut buffer = JsonBuffer::default();
    let length = body.to_json(&mut buffer).map(<[u8]>::len);
    assert!(length.is_some() || !is_valid, "a checked object cannot be written");
    assert!(length.unwrap_or(0) <= 1_000 + raw.len() * MAX_GROWTH, "{length:?} of {}", raw.len());
    let paths = ["metadata.name", "spec.containers[*].image", "status.phase", "spec.replicas"];
    let paths: FieldPathSet =
        paths.into_iter().filter_map(|path| FieldPath::parse(path).ok()).collect();
    body.for_each_value(&paths, &mut |_, _| {});
    let _ = (ObjectNames::of_object(raw), ObjectNames::of_start(raw), metadata_field(raw));
    let _ = (for_each_label(raw, |_, _| {}), for_each_annotation(raw, |_, _| {}));
    let _ = (has_same_labels(raw, bytes), with_version(raw, "7"));
    let without = Omissions {
        is_without_managed_fields: true,
        annotation: Some("a"),
        is_metadata_only: false,
    };
    let _ = write_without(raw, without, &mut Vec::new());
}
