//! Splits an object into the part of its managedFields that many objects have in common, and the
//! rest. Stores keep the common part once, which saves memory.

#[cfg(test)]
mod tests;

use crate::{
    ObjectBody,
    protobuf::{FieldReader, WireType, read_varint, write_varint},
};
use kubewarm_api::model::ObjectEncoding;
use memchr::memmem;

/// Number of the field `time` in `ManagedFieldsEntry`, from the same `generated.proto` as the
/// metadata's fields.
const TIME: u32 = 4;
/// Number of the field `fieldsV1` in `ManagedFieldsEntry`.
const FIELDS: u32 = 7;

/// Maximum number of values that [`ManagedFieldsTemplate::split`] takes out of one object. Three
/// entries with a time, an owner and some IPs have fewer than ten. Further values stay in the
/// template's text.
const MAX_VALUES: usize = 32;

/// Maximum length of one value, in bytes, so that one byte is enough for the length.
const MAX_VALUE_BYTES: usize = 127;

/// Minimum number of bytes that a template must take out of an object. Below this number, the
/// template's own memory costs more than the split saves.
const MIN_REMOVED_BYTES: usize = 64;

/// The managedFields of an object without the values that differ between objects of one
/// application: times, and UIDs and IPs in keys. In this JSON, `□` marks the gaps:
///
/// ```text
/// [{"manager":"kubelet","time":"□","fieldsV1":{"f:podIPs":{"k:{\"ip\":\"□\"}":{}}}}]
/// ```
///
/// [`ManagedFieldsTemplate::split`] turns an object into a template and a *reduced body*. The
/// reduced body contains the position of the managedFields, the values for the gaps, and the
/// object's other bytes:
///
/// ```text
/// position (varint) │ length (1 byte), value │ … │ bytes before managedFields │ bytes after managedFields
/// ```
///
/// In protobuf, the length byte stands directly before each time, as in the object's other fields
/// with times. So zstd finds equal times in both places.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ManagedFieldsTemplate {
    /// The bytes between the gaps.
    text: Box<[u8]>,
    gaps: Box<[TemplateGap]>,
    /// Number of gaps for a value, at most [`MAX_VALUES`].
    values: u8,
    /// Bytes by which an object is longer than its reduced body.
    removed: usize,
}

/// A position in the template's text at which [`ManagedFieldsTemplate::join`] inserts bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TemplateGap {
    /// Byte offset in the text.
    at: u32,
    content: GapContent,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum GapContent {
    /// The object's next value.
    Value,
    /// The length of a protobuf message, as a varint: `fixed` bytes plus the lengths of the
    /// object's next `values` values.
    Length { fixed: u32, values: u8 },
}

/// A template while [`ManagedFieldsTemplate::split`] reads the managedFields.
struct TemplateBuilder<'a> {
    text: Vec<u8>,
    gaps: Vec<TemplateGap>,
    /// The beginning of the reduced body, to which the builder appends values.
    reduced: &'a mut Vec<u8>,
    values: u8,
}

impl ManagedFieldsTemplate {
    /// Splits an object, and replaces the contents of `reduced` with the reduced body. Returns
    /// `None` if the object has no managedFields, or if they are too short.
    ///
    /// Use the result only if [`ManagedFieldsTemplate::join`] returns the same object.
    /// [`ManagedFieldsTemplate::join`] writes the shortest varints, so it changes protobuf with
    /// longer ones, which no API server writes.
    ///
    /// # Cost
    ///
    /// One pass over the metadata and two over the managedFields, at about 1 ns a byte.
    pub fn split(body: ObjectBody<'_>, reduced: &mut Vec<u8>) -> Option<Self> {
        let range = body.managed_fields()?;
        let (head, rest) = body.bytes.split_at_checked(range.start)?;
        let (fields, tail) = rest.split_at_checked(range.len())?;
        reduced.clear();
        write_varint(head.len() as u64, reduced);
        let (text, gaps) = (Vec::with_capacity(fields.len()), Vec::new());
        let mut builder = TemplateBuilder { text, gaps, reduced, values: 0 };
        match body.encoding {
            ObjectEncoding::Json => builder.add_text(fields)?,
            ObjectEncoding::Protobuf(_) => builder.add_message(fields, |builder, _, entry| {
                builder.add_message(entry, TemplateBuilder::add_entry_field)
            })?,
        }
        let TemplateBuilder { text, gaps, values, .. } = builder;
        let (text, gaps) = (text.into(), gaps.into());
        reduced.extend_from_slice(head);
        reduced.extend_from_slice(tail);
        let removed = body.bytes.len().checked_sub(reduced.len())?;
        (removed >= MIN_REMOVED_BYTES).then_some(Self { text, gaps, values, removed })
    }

    /// Replaces the contents of `into` with the object of a reduced body. Returns `None` if the
    /// reduced body belongs to another template or is damaged, or if the allocation fails. `into`
    /// then contains no usable bytes.
    ///
    /// # Cost
    ///
    /// One copy of the object's bytes, and about 5 ns for each gap.
    pub fn join(&self, reduced: &[u8], into: &mut Vec<u8>) -> Option<()> {
        into.clear();
        into.try_reserve_exact(reduced.len().checked_add(self.removed)?).ok()?;
        let mut rest = 0;
        let position = usize::try_from(read_varint(reduced, &mut rest).ok()?).ok()?;
        let mut values = [&[][..]; MAX_VALUES];
        for value in values.get_mut(..usize::from(self.values))? {
            let start = rest + 1;
            rest = start + usize::from(*reduced.get(rest)?);
            *value = reduced.get(start..rest)?;
        }
        let (head, tail) = reduced.get(rest..)?.split_at_checked(position)?;
        into.extend_from_slice(head);
        let (mut from, mut next) = (0, 0);
        for TemplateGap { at, content } in &self.gaps {
            into.extend_from_slice(self.text.get(from..*at as usize)?);
            from = *at as usize;
            match content {
                GapContent::Value => {
                    into.extend_from_slice(values.get(next)?);
                    next += 1;
                }
                GapContent::Length { fixed, values: count } => {
                    let inside = values.get(next..next + usize::from(*count))?;
                    let length: usize = inside.iter().map(|value| value.len()).sum();
                    write_varint(u64::from(*fixed) + length as u64, into);
                }
            }
        }
        into.extend_from_slice(self.text.get(from..)?);
        into.extend_from_slice(tail);
        (into.len() == reduced.len() + self.removed).then_some(())
    }

    /// Returns the number of bytes by which an object is longer than its reduced body.
    pub fn removed(&self) -> usize {
        self.removed
    }

    /// Returns the template's memory in bytes, without `size_of::<Self>()`.
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.gaps)
    }
}

impl TemplateBuilder<'_> {
    /// Adds JSON text. A text value becomes a gap if it consists of the characters of times, UIDs
    /// and IPs, because such values differ between objects.
    ///
    /// Names such as `cafe` consist of these characters too. As gaps, they only take more memory.
    fn add_text(&mut self, text: &[u8]) -> Option<()> {
        let mut from = 0;
        for colon in memmem::find_iter(text, b"\":") {
            let rest = text.get(colon + 2..)?;
            // Within keys, the JSON of the key is a string, so its quotes are escaped.
            let quote = match rest {
                [b'"', ..] => 1,
                [b'\\', b'"', ..] => 2,
                _ => continue,
            };
            let rest = rest.get(quote..)?;
            let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'.' | b':' | b'-' | b'T' | b'Z');
            let length = rest.iter().position(|byte| !is_part(byte))?;
            let start = colon + 2 + quote;
            if matches!(rest.get(length), Some(b'"' | b'\\')) && self.has_space(length) {
                self.text.extend_from_slice(text.get(from..start)?);
                from = start + length;
                self.add_value(text.get(start..from)?)?;
            }
        }
        self.text.extend_from_slice(text.get(from..)?);
        Some(())
    }

    fn has_space(&self, length: usize) -> bool {
        (1..=MAX_VALUE_BYTES).contains(&length) && usize::from(self.values) < MAX_VALUES
    }

    fn add_value(&mut self, value: &[u8]) -> Option<()> {
        self.add_gap(GapContent::Value)?;
        self.reduced.push(u8::try_from(value.len()).ok()?);
        self.reduced.extend_from_slice(value);
        self.values += 1;
        Some(())
    }

    fn add_gap(&mut self, content: GapContent) -> Option<()> {
        let at = u32::try_from(self.text.len()).ok()?;
        self.gaps.push(TemplateGap { at, content });
        Some(())
    }

    /// Adds the fields of a protobuf message. For each field with a length, `add` adds the value.
    fn add_message(
        &mut self,
        message: &[u8],
        mut add: impl FnMut(&mut Self, u32, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let mut fields = FieldReader::new(message);
        while let Some(field) = fields.next_field().ok()? {
            if field.wire_type == WireType::Varint {
                self.text.extend_from_slice(message.get(field.tag..field.end)?);
                continue;
            }
            let value = fields.value(&field);
            write_varint(u64::from(field.number) << 3 | 2, &mut self.text);
            let (gap, values, bytes) = (self.gaps.len(), self.values, self.reduced.len());
            self.add_gap(GapContent::Length { fixed: 0, values: 0 })?;
            add(self, field.number, value)?;
            let values = self.values - values;
            let bytes = self.reduced.len() - bytes - usize::from(values);
            let fixed = u32::try_from(value.len() - bytes).ok()?;
            self.gaps.get_mut(gap)?.content = GapContent::Length { fixed, values };
        }
        Some(())
    }

    /// Adds the value of a field of `ManagedFieldsEntry`.
    fn add_entry_field(&mut self, number: u32, value: &[u8]) -> Option<()> {
        match number {
            TIME if self.has_space(value.len()) => self.add_value(value),
            // The only field of `FieldsV1` is its JSON text.
            FIELDS => self.add_message(value, |builder, _, text| builder.add_text(text)),
            _ => {
                self.text.extend_from_slice(value);
                Some(())
            }
        }
    }
}
