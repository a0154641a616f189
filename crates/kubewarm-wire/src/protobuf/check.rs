//! Checks every field of a message against the field tables before kubewarm stores the object.

use super::{
    field_tables::{FieldShape, FieldType, table},
    wire_format::{FieldReader, ProtobufError, WireType, find_field},
};
use kubewarm_api::model::MessageId;

/// The fields of the messages that [`FieldType`] describes by name, and of a map entry.
const TIMESTAMP: &[(u32, WireType)] = &[(1, WireType::Varint), (2, WireType::Varint)];
const INT_OR_STRING: &[(u32, WireType)] =
    &[(1, WireType::Varint), (2, WireType::Varint), (3, WireType::Length)];
const ONE_TEXT: &[(u32, WireType)] = &[(1, WireType::Length)];

/// Reads every tag of an object, in nested messages too. So an object that passes can be written as JSON without
/// losing a field.
///
/// # Errors
///
/// [`ProtobufError::UnknownField`] for a field that the tables lack, [`ProtobufError::Malformed`] for bytes that are
/// not a message.
///
/// # Cost
///
/// A few nanoseconds for each field.
pub fn check_message(message: MessageId, bytes: &[u8]) -> Result<(), ProtobufError> {
    let of = table(message);
    let mut fields = FieldReader::new(bytes);
    while let Some(raw) = fields.next_field()? {
        let unknown = ProtobufError::UnknownField { message: of.name, number: raw.number };
        let field = of.field(raw.number).ok_or(unknown)?;
        let value = fields.value(&raw);
        match field.shape {
            FieldShape::Single | FieldShape::Repeated => {
                check_value(&field.kind, raw.wire_type, value, of.name)?;
            }
            FieldShape::Map if raw.wire_type == WireType::Length => {
                check_entry(&field.kind, value, of.name)?;
            }
            FieldShape::Map => return Err(ProtobufError::Malformed),
        }
    }
    Ok(())
}

fn check_entry(kind: &FieldType, entry: &[u8], message: &'static str) -> Result<(), ProtobufError> {
    let mut fields = FieldReader::new(entry);
    while let Some(raw) = fields.next_field()? {
        let value = fields.value(&raw);
        match raw.number {
            1 => check_value(&FieldType::String, raw.wire_type, value, message)?,
            2 => check_value(kind, raw.wire_type, value, message)?,
            number => return Err(ProtobufError::UnknownField { message, number }),
        }
    }
    Ok(())
}

fn check_value(
    kind: &FieldType,
    wire_type: WireType,
    value: &[u8],
    message: &'static str,
) -> Result<(), ProtobufError> {
    let expected = match kind {
        FieldType::Bool | FieldType::Int => WireType::Varint,
        FieldType::String
        | FieldType::Bytes
        | FieldType::Time
        | FieldType::MicroTime
        | FieldType::IntOrString
        | FieldType::Quantity
        | FieldType::Raw
        | FieldType::Message(_)
        | FieldType::List(_) => WireType::Length,
    };
    if wire_type != expected {
        return Err(ProtobufError::Malformed);
    }
    match kind {
        FieldType::Message(id) => check_message(*id, value),
        FieldType::List(element) => {
            let mut fields = FieldReader::new(value);
            while let Some(raw) = fields.next_field()? {
                if raw.number != 1 {
                    return Err(ProtobufError::UnknownField { message, number: raw.number });
                }
                check_value(element, raw.wire_type, fields.value(&raw), message)?;
            }
            Ok(())
        }
        FieldType::Time | FieldType::MicroTime => check_fields(TIMESTAMP, value, message),
        FieldType::IntOrString => check_fields(INT_OR_STRING, value, message),
        FieldType::Quantity => check_fields(ONE_TEXT, value, message),
        FieldType::Raw => {
            check_fields(ONE_TEXT, value, message)?;
            check_json_start(value)
        }
        FieldType::String | FieldType::Bytes | FieldType::Bool | FieldType::Int => Ok(()),
    }
}

/// Rejects CBOR, which API servers with the feature gate `CBORServingAndStorage` can store in place of JSON.
fn check_json_start(raw: &[u8]) -> Result<(), ProtobufError> {
    let is_start = |byte: &u8| b"{[\"tfn-0123456789 \t\r\n".contains(byte);
    let first = find_field(raw, 1)?.and_then(<[u8]>::first);
    if first.is_none_or(is_start) { Ok(()) } else { Err(ProtobufError::Malformed) }
}

fn check_fields(
    known: &[(u32, WireType)],
    value: &[u8],
    message: &'static str,
) -> Result<(), ProtobufError> {
    let mut fields = FieldReader::new(value);
    while let Some(raw) = fields.next_field()? {
        match known.iter().find(|(number, _)| *number == raw.number) {
            Some((_, wire_type)) if *wire_type == raw.wire_type => {}
            Some(_) => return Err(ProtobufError::Malformed),
            None => return Err(ProtobufError::UnknownField { message, number: raw.number }),
        }
    }
    Ok(())
}
