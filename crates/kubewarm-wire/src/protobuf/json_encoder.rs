//! Turns the protobuf of a built-in object into the JSON that the API server would send.

use super::{
    field_tables::{FieldCardinality, FieldType, MessageField, MessageTable, table},
    go_json::{write_compact, write_integer, write_string, write_time},
    go_values::{is_null_if_absent, is_omitted, number, read_entry, seconds},
    wire_format::{FieldReader, ProtobufError, RawField, find_field, varint},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubewarm_api::model::MessageId;

/// Writes objects as JSON. Reuses its buffer for all objects.
#[derive(Debug, Default)]
pub struct JsonEncoder {
    /// A stack of slots: one for each field of each message from the object down to the current
    /// message. Only slots of present fields are valid. The encoder never reads the other slots, so
    /// it need not clear them.
    slots: Vec<Slot>,
    /// The number of slots in use, which belong to the current message and its parents.
    used: usize,
}

/// The byte range of a field in its message, from its first tag to the end of its last value: a
/// repeated field occurs several times.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    first_tag: usize,
    start: usize,
    end: usize,
}

impl Slot {
    /// Extends the slot by a further value of the same field, or creates the slot for the first
    /// value.
    fn extended(earlier: Option<Self>, raw: &RawField) -> Self {
        let first_tag = earlier.map_or(raw.tag, |slot| slot.first_tag);
        Self { first_tag, start: raw.start, end: raw.end }
    }

    /// The bytes of the field's last value, in the message `bytes`.
    fn value(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn all(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.first_tag..self.end).unwrap_or_default()
    }
}

impl JsonEncoder {
    /// Appends the JSON of an object, without `kind` and `apiVersion`. `message` is the message of
    /// its kind.
    ///
    /// The JSON equals that of Go's encoder byte for byte. `out` is unspecified after an error.
    ///
    /// # Errors
    ///
    /// [`ProtobufError`] if `bytes` is not a message of this kind. Cannot occur if
    /// [`check_message`] accepts the bytes.
    ///
    /// # Cost
    ///
    /// About 1.5 ns for each byte of JSON.
    ///
    /// [`check_message`]: super::check_message
    pub fn write_object(
        &mut self,
        message: MessageId,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        self.used = 0;
        self.message(message, bytes, out)
    }

    /// Appends a JSON object that contains only this field of the message `bytes`. The object is
    /// `{}` if Go omits the field from JSON.
    pub(super) fn write_field(
        &mut self,
        field: &'static MessageField,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        let mut slot = None;
        let mut fields = FieldReader::new(bytes);
        while let Some(raw) = fields.next_field()? {
            if raw.number == field.number {
                slot = Some(Slot::extended(slot, &raw));
            }
        }
        out.push(b'{');
        self.member(field, slot, bytes, out)?;
        close(b'}', out);
        Ok(())
    }

    fn message(
        &mut self,
        message: MessageId,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        out.push(b'{');
        self.members(table(message), bytes, out)?;
        close(b'}', out);
        Ok(())
    }

    /// Writes each member with a comma behind it. `close` then replaces the last comma.
    fn members(
        &mut self,
        table: &'static MessageTable,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        let base = self.used;
        self.used += table.fields.len();
        if self.slots.len() < self.used {
            self.slots.resize(self.used, Slot::default());
        }
        let mut present = 0_u64;
        let mut fields = FieldReader::new(bytes);
        while let Some(raw) = fields.next_field()? {
            let unknown = ProtobufError::UnknownField { message: table.name, number: raw.number };
            let position = table.position(raw.number).ok_or(unknown)?;
            let Some(slot) = self.slots.get_mut(base + position) else { continue };
            let is_present = present >> position & 1 == 1;
            *slot = Slot::extended(is_present.then_some(*slot), &raw);
            present |= 1 << position;
        }
        // Most messages have few of their fields, so visit only these.
        let mut written = table.written_if_absent | present;
        while written != 0 {
            let position = written.trailing_zeros() as usize;
            written &= written - 1;
            let is_present = present >> position & 1 == 1;
            let slot = self.slots.get(base + position).copied().filter(|_| is_present);
            if let Some(field) = table.fields.get(position) {
                self.member(field, slot, bytes, out)?;
            }
        }
        self.used = base;
        Ok(())
    }

    fn member(
        &mut self,
        field: &'static MessageField,
        slot: Option<Slot>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        let value = slot.map(|slot| slot.value(bytes));
        if field.is_inline() {
            if let FieldType::Message(id) = field.kind
                && (slot.is_some() || !field.is_pointer)
            {
                self.members(table(id), value.unwrap_or_default(), out)?;
            }
            return Ok(());
        }
        if is_omitted(field, value)? {
            return Ok(());
        }
        out.extend_from_slice(&field.quoted);
        let all = slot.map_or(&[][..], |slot| slot.all(bytes));
        match field.shape {
            _ if slot.is_none() && is_null_if_absent(field) => out.extend_from_slice(b"null"),
            FieldCardinality::Single => self.value(&field.kind, value.unwrap_or_default(), out)?,
            FieldCardinality::Repeated => {
                self.elements(field.number, &field.kind, field.element_start, all, out)?;
            }
            FieldCardinality::Map => self.entries(field, all, out)?,
        }
        out.push(b',');
        Ok(())
    }

    fn elements(
        &mut self,
        number: u32,
        kind: &'static FieldType,
        element_start: &'static [u8],
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        out.push(b'[');
        let mut fields = FieldReader::new(bytes);
        while let Some(field) = fields.next_field()? {
            if field.number == number {
                let start = out.len() + 1;
                self.value(kind, fields.value(&field), out)?;
                if !element_start.is_empty() {
                    out.splice(start..start, element_start.iter().copied());
                }
                out.push(b',');
            }
        }
        close(b']', out);
        Ok(())
    }

    fn entries(
        &mut self,
        field: &'static MessageField,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        out.push(b'{');
        let mut fields = FieldReader::new(bytes);
        while let Some(raw) = fields.next_field()? {
            if raw.number == field.number {
                let (key, value) = read_entry(fields.value(&raw))?;
                write_string(key, out);
                out.push(b':');
                self.value(&field.kind, value, out)?;
                out.push(b',');
            }
        }
        close(b'}', out);
        Ok(())
    }

    /// Writes one value. Empty bytes stand for an absent field, so the function writes the zero
    /// value.
    fn value(
        &mut self,
        kind: &'static FieldType,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        match kind {
            FieldType::String => write_string(value, out),
            FieldType::Bytes => write_base64(value, out),
            FieldType::Bool => {
                out.extend_from_slice(if varint(value)? == 0 { b"false" } else { b"true" });
            }
            FieldType::Int => write_integer(varint(value)?.cast_signed(), out),
            FieldType::Time => write_time(seconds(value)?, None, out),
            FieldType::MicroTime => {
                write_time(seconds(value)?, Some(number(value, 2)? / 1_000), out);
            }
            FieldType::IntOrString => {
                if number(value, 1)? == 0 {
                    write_integer(number(value, 2)?, out);
                } else {
                    write_string(find_field(value, 3)?.unwrap_or_default(), out);
                }
            }
            FieldType::Quantity => write_string(find_field(value, 1)?.unwrap_or(b"0"), out),
            FieldType::Raw => match find_field(value, 1)? {
                Some(json) if !json.is_empty() => write_compact(json, out),
                _ => out.extend_from_slice(b"null"),
            },
            FieldType::Message(id) => self.message(*id, value, out)?,
            FieldType::List(element) => self.elements(1, element, b"", value, out)?,
        }
        Ok(())
    }
}

/// Replaces the comma behind the last member or element by `bracket`.
fn close(bracket: u8, out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(bracket);
}

fn write_base64(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + value.len().div_ceil(3) * 4, 0);
    // The buffer has exactly the encoded length, so encoding cannot fail.
    let _length = out.get_mut(start..).map(|place| STANDARD.encode_slice(value, place));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{
        super::{field_values, message_of_kind},
        *,
    };
    use kubewarm_api::model::FieldPath;

    #[test]
    fn claims_of_a_stateful_set_have_their_kind() {
        let stateful_set = message_of_kind("apps/v1", "StatefulSet").unwrap();
        // A spec with two empty claims.
        let bytes = [0x12, 4, 0x22, 0, 0x22, 0];
        let mut json = Vec::new();
        JsonEncoder::default().write_object(stateful_set, &bytes, &mut json).unwrap();
        let claim = r#"{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":"#;
        assert_eq!(String::from_utf8(json).unwrap().matches(claim).count(), 2);
        // Indexes and field selectors find the kind of a claim too, although protobuf lacks it.
        let path = FieldPath::parse("spec.volumeClaimTemplates[*].kind").unwrap();
        let (paths, mut kinds) = ([path].into_iter().collect(), Vec::new());
        let mut each = |_, kind: &str| kinds.push(kind.to_owned());
        field_values(stateful_set, &bytes, &paths, &mut each).unwrap();
        assert_eq!(kinds, ["PersistentVolumeClaim"; 2]);
    }
}
