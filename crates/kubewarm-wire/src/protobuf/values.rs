//! Finds the values of field paths in the protobuf of an object, as [`JsonCursor::values`] does in
//! its JSON.

use super::{
    field_tables::{FieldCardinality, FieldType, MessageField, table},
    json_encoder::JsonEncoder,
    wire_format::{FieldReader, ProtobufError, find_field},
};
use crate::json::{FieldPathNode, FieldPathSet, JsonCursor};
use kubewarm_api::model::MessageId;

/// Calls `each` for every scalar that a field path finds, with the path's index in `paths` and the
/// scalar's text.
///
/// The values equal the values in the object's JSON. Only the fields at the ends of the paths are
/// written as JSON.
///
/// # Errors
///
/// [`ProtobufError`] if `bytes` is not a message of this kind. `each` has received some values
/// before the error.
///
/// # Cost
///
/// A few nanoseconds for each field of the messages that the paths lead through.
pub fn field_values(
    message: MessageId,
    bytes: &[u8],
    paths: &FieldPathSet,
    each: &mut impl FnMut(usize, &str),
) -> Result<(), ProtobufError> {
    let mut walk =
        FieldValueReader { paths, each, encoder: JsonEncoder::default(), json: Vec::new() };
    walk.message(message, bytes, paths.root())
}

struct FieldValueReader<'w, E> {
    paths: &'w FieldPathSet,
    each: &'w mut E,
    encoder: JsonEncoder,
    json: Vec<u8>,
}

impl<E: FnMut(usize, &str)> FieldValueReader<'_, E> {
    fn message(
        &mut self,
        message: MessageId,
        bytes: &[u8],
        node: &FieldPathNode,
    ) -> Result<(), ProtobufError> {
        for field in &table(message).fields {
            let inner =
                if field.is_inline() { Some(node) } else { node.fields.get(field.name.as_bytes()) };
            if let Some(inner) = inner {
                self.field(field, bytes, node, inner)?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static MessageField,
        bytes: &[u8],
        parent: &FieldPathNode,
        node: &FieldPathNode,
    ) -> Result<(), ProtobufError> {
        match (&field.kind, field.shape) {
            // Elements with an `element_start` have members in JSON that protobuf lacks. So the
            // last arm converts them to JSON and reads the values from it.
            (FieldType::Message(id), FieldCardinality::Repeated)
                if field.element_start.is_empty() =>
            {
                let Some(node) = &node.elements else { return Ok(()) };
                let mut fields = FieldReader::new(bytes);
                while let Some(raw) = fields.next_field()? {
                    if raw.number == field.number {
                        self.message(*id, fields.value(&raw), node)?;
                    }
                }
            }
            (FieldType::Message(id), FieldCardinality::Single) => {
                let value = find_field(bytes, field.number)?;
                if value.is_some() || !field.is_pointer {
                    self.message(*id, value.unwrap_or_default(), node)?;
                }
            }
            _ => {
                self.json.clear();
                self.encoder.write_field(field, bytes, &mut self.json)?;
                let _ = JsonCursor::new(&self.json).values_at(self.paths, parent, self.each);
            }
        }
        Ok(())
    }
}
