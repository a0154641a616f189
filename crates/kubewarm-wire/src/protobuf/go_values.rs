//! Reads values as Go does after it has decoded a message: which values are zero, and which fields
//! JSON omits.

use super::{
    field_tables::{FieldType, MessageField, OmissionRule},
    go_json::ZERO_TIME,
    wire_format::{FieldReader, ProtobufError, find_field, varint},
};

/// Whether Go omits the field from JSON. `value` is the field's last value, or `None` if the
/// message lacks the field.
pub(super) fn is_omitted(
    field: &MessageField,
    value: Option<&[u8]>,
) -> Result<bool, ProtobufError> {
    let Some(value) = value else { return Ok(!field.is_written_if_absent()) };
    let is_number = matches!(field.kind, FieldType::Bool | FieldType::Int);
    Ok(match field.omission {
        OmissionRule::Never => false,
        OmissionRule::ZeroTime => seconds(value)? == ZERO_TIME,
        // A pointer, list or map that protobuf contains is never nil, and a struct is never empty.
        // So Go's `omitempty` omits none of them.
        OmissionRule::Empty if field.has_nil() || !field.kind.has_empty_value() => false,
        OmissionRule::Empty if is_number => varint(value)? == 0,
        OmissionRule::Empty => value.is_empty(),
    })
}

/// Whether Go writes the absent field as `null`. For `false`, Go writes the zero value of the
/// field's type, such as `0` or `""`.
pub(super) fn is_null_if_absent(field: &MessageField) -> bool {
    field.has_nil() || matches!(field.kind, FieldType::Bytes | FieldType::List(_))
}

/// Reads key and value of a map entry. Both are empty if absent.
pub(super) fn read_entry(entry: &[u8]) -> Result<(&[u8], &[u8]), ProtobufError> {
    let (mut key, mut value) = (&[][..], &[][..]);
    let mut fields = FieldReader::new(entry);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => key = fields.value(&field),
            _ => value = fields.value(&field),
        }
    }
    Ok((key, value))
}

/// Reads a varint field of the message `value`; 0 if the field is absent.
pub(super) fn number(value: &[u8], field: u32) -> Result<i64, ProtobufError> {
    Ok(varint(find_field(value, field)?.unwrap_or_default())?.cast_signed())
}

/// Reads the seconds of a `Timestamp` message. Empty bytes are Go's zero time.
pub(super) fn seconds(value: &[u8]) -> Result<i64, ProtobufError> {
    if value.is_empty() { Ok(ZERO_TIME) } else { number(value, 1) }
}
