//! Checks every field of a message against the field tables before kubewarm stores the object.

use super::{
    field_tables::{FieldCardinality, FieldType, table},
    metadata::METADATA,
    wire_format::{FieldReader, ProtobufError, WireType, find_field},
};
use kubewarm_api::model::MessageId;
use serde::de::IgnoredAny;

/// The types of the fields 1, 2 and so on in messages without a field table, because [`FieldType`]
/// has a variant for each of them.
const TIMESTAMP: &[&FieldType] = &[&FieldType::Int, &FieldType::Int];
const INT_OR_STRING: &[&FieldType] = &[&FieldType::Int, &FieldType::Int, &FieldType::String];
const ONE_TEXT: &[&FieldType] = &[&FieldType::String];

/// Checks that the field tables contain every field of an object, also in nested messages. After
/// this check, kubewarm can convert the object to JSON without losing a field.
///
/// # Errors
///
/// [`ProtobufError::UnknownField`] for a field that the tables lack, [`ProtobufError::Malformed`]
/// for bytes that are not a message.
///
/// # Cost
///
/// A few nanoseconds for each field, and one pass over embedded JSON.
pub fn check_message(message: MessageId, bytes: &[u8]) -> Result<(), ProtobufError> {
    let table = table(message);
    let mut fields = FieldReader::new(bytes);
    while let Some(raw) = fields.next_field()? {
        let unknown = ProtobufError::UnknownField { message: table.name, number: raw.number };
        let field = table.field(raw.number).ok_or(unknown)?;
        // Rejects metadata that is repeated or not first, because some readers use the first such
        // field, others the last. The API server writes metadata once and first.
        if raw.number == METADATA && raw.tag > 0 && field.name == "metadata" {
            return Err(ProtobufError::Malformed);
        }
        let value = fields.value(&raw);
        match field.shape {
            FieldCardinality::Single | FieldCardinality::Repeated => {
                check_value(&field.kind, raw.wire_type, value, table.name)?;
            }
            FieldCardinality::Map if raw.wire_type == WireType::Length => {
                check_fields(&[&FieldType::String, &field.kind], value, table.name)?;
            }
            FieldCardinality::Map => return Err(ProtobufError::Malformed),
        }
    }
    Ok(())
}

/// Checks a message whose field 1 has the first type of `kinds`, field 2 the second type, and so
/// on.
fn check_fields(
    kinds: &[&FieldType],
    bytes: &[u8],
    message: &'static str,
) -> Result<(), ProtobufError> {
    let mut fields = FieldReader::new(bytes);
    while let Some(raw) = fields.next_field()? {
        let unknown = ProtobufError::UnknownField { message, number: raw.number };
        let kind = kinds.get(raw.number as usize - 1).ok_or(unknown)?;
        check_value(kind, raw.wire_type, fields.value(&raw), message)?;
    }
    Ok(())
}

fn check_value(
    kind: &FieldType,
    wire_type: WireType,
    value: &[u8],
    message: &'static str,
) -> Result<(), ProtobufError> {
    let is_number = matches!(kind, FieldType::Bool | FieldType::Int);
    if is_number != (wire_type == WireType::Varint) {
        return Err(ProtobufError::Malformed);
    }
    match kind {
        FieldType::Message(id) => check_message(*id, value),
        FieldType::List(element) => check_fields(&[element], value, message),
        FieldType::Time | FieldType::MicroTime => check_fields(TIMESTAMP, value, message),
        FieldType::IntOrString => check_fields(INT_OR_STRING, value, message),
        FieldType::Quantity => check_fields(ONE_TEXT, value, message),
        FieldType::Raw => {
            check_fields(ONE_TEXT, value, message)?;
            check_json(value)
        }
        FieldType::String | FieldType::Bytes | FieldType::Bool | FieldType::Int => Ok(()),
    }
}

/// Rejects bytes that are not exactly one JSON value. kubewarm copies them into the JSON of the
/// object, where other bytes could end the object and begin another one.
///
/// The API server itself does not guarantee valid JSON: it does not parse these bytes in every
/// object. With the feature gate `CBORServingAndStorage`, they can be CBOR.
fn check_json(raw: &[u8]) -> Result<(), ProtobufError> {
    let json = find_field(raw, 1)?.filter(|json| !json.is_empty());
    let parsed = json.map(serde_json::from_slice::<IgnoredAny>).transpose();
    parsed.map(drop).map_err(|_| ProtobufError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{message_of_kind, write_bytes, write_message},
        *,
    };

    /// A `ConfigMap` with an entry of managed fields that contains `json`.
    fn config_map(json: &[u8]) -> Vec<u8> {
        let mut object = Vec::new();
        let raw = |out: &mut Vec<u8>| write_bytes(1, json, out);
        let entry = |out: &mut Vec<u8>| write_message(7, raw, out);
        let metadata = |out: &mut Vec<u8>| write_message(17, entry, out);
        write_message(METADATA, metadata, &mut object);
        object
    }

    #[test]
    fn embedded_bytes_must_be_one_json_value() {
        let message = message_of_kind("v1", "ConfigMap").unwrap();
        for json in ["", "{}", r#"{"f:data":{"k:{\"a\":1}":{}}}"#, " [1, \"x\"] ", "null"] {
            assert_eq!(check_message(message, &config_map(json.as_bytes())), Ok(()), "{json}");
        }
        let forged = br#"{}}]}},{"metadata":{"namespace":"kube-system","managedFields":[{"x":{}"#;
        for bytes in [&forged[..], b"{} {}", b"{", b"\xd9\xd9\xf7\xa0"] {
            let checked = check_message(message, &config_map(bytes));
            assert_eq!(checked, Err(ProtobufError::Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn an_object_begins_with_its_only_metadata() {
        let message = message_of_kind("v1", "ConfigMap").unwrap();
        let metadata = config_map(b"{}");
        let mut data = Vec::new();
        write_bytes(2, b"\x0a\x01a", &mut data);
        for (parts, expected) in [
            ([&metadata, &data], Ok(())),
            ([&data, &metadata], Err(ProtobufError::Malformed)),
            ([&metadata, &metadata], Err(ProtobufError::Malformed)),
        ] {
            assert_eq!(check_message(message, &parts.map(|part| &part[..]).concat()), expected);
        }
    }
}
