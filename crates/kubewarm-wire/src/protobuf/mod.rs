//! Kubernetes protobuf: the wire format, the field tables of built-in kinds, and the JSON of their
//! objects.

mod check;
mod envelope;
mod field_tables;
mod go_json;
mod go_values;
mod json_encoder;
mod metadata;
mod path_lookup;
mod values;
mod wire_format;

pub use self::{
    check::check_message,
    envelope::{
        FieldHead, ITEMS, ListHead, MAGIC, Unknown, bookmark_message, item_length,
        parse_watch_event, parse_watch_event_start, write_item, write_list_head, write_list_tail,
        write_watch_event,
    },
    field_tables::{kind_of_message, message_of_kind},
    json_encoder::JsonEncoder,
    metadata::{
        ListMeta, METADATA, ObjectNames, Omissions, for_each_annotation, for_each_label,
        has_same_labels, metadata_field, with_version, write_without,
    },
    path_lookup::can_have_value,
    values::field_values,
    wire_format::{ProtobufError, write_bytes, write_number},
};
pub(crate) use self::{
    envelope::message_start,
    go_json::{write_integer, write_string},
    metadata::managed_fields,
    wire_format::{FieldReader, WireType, read_varint, write_message, write_varint},
};
