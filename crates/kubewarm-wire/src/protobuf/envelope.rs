//! The messages around objects: `runtime.Unknown`, lists and watch events.
//!
//! Each response and each event's object begins with `k8s\0` and is a message `runtime.Unknown`:
//! `typeMeta` (1), `raw` (2), `contentEncoding` (3) and `contentType` (4). The API server writes
//! the last two as empty texts.

use super::{
    metadata::{ListMeta, METADATA, bookmark},
    wire_format::{
        FieldReader, ProtobufError, bytes_field_length, find_field, read_varint, write_bytes,
        write_length,
    },
};
use crate::BookmarkKind;

/// The bytes before each message `runtime.Unknown`.
pub const MAGIC: &[u8] = b"k8s\0";
const TYPE_META: u32 = 1;
const RAW: u32 = 2;
/// Empty `contentEncoding` and `contentType`.
const UNKNOWN_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];
/// The field number of `items` in the message of every list.
pub const ITEMS: u32 = 2;

/// A response or an event's object: its kind, and its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// `apiVersion`.
    pub api_version: &'a str,
    /// `kind`.
    pub kind: &'a str,
    /// The message of the kind.
    pub raw: &'a [u8],
}

impl<'a> Unknown<'a> {
    /// Parses bytes that begin with `k8s\0`.
    ///
    /// # Errors
    ///
    /// [`ProtobufError::Malformed`] if the bytes are not such a message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let bytes = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed)?;
        let (api_version, kind) = read_types(find_field(bytes, TYPE_META)?.unwrap_or_default())?;
        Ok(Self { api_version, kind, raw: find_field(bytes, RAW)?.unwrap_or_default() })
    }

    /// Appends the object as one object of the API server.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(self.raw.len(), out);
        out.extend_from_slice(self.raw);
        out.extend_from_slice(UNKNOWN_TAIL);
    }

    /// Appends everything before `raw`, which has `length` bytes.
    fn write_head(&self, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        write_length(TYPE_META, self.types_length(), out);
        write_bytes(1, self.api_version.as_bytes(), out);
        write_bytes(2, self.kind.as_bytes(), out);
        write_length(RAW, length, out);
    }

    fn types_length(&self) -> usize {
        bytes_field_length(self.api_version.len()) + bytes_field_length(self.kind.len())
    }

    fn length(&self) -> usize {
        MAGIC.len()
            + bytes_field_length(self.types_length())
            + bytes_field_length(self.raw.len())
            + UNKNOWN_TAIL.len()
    }
}

/// The head of a list that arrives in parts: everything before its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead<'a> {
    /// `apiVersion` of the list.
    pub api_version: &'a str,
    /// `kind` of the list, such as `PodList`.
    pub kind: &'a str,
    /// Number of bytes of the list's message, which follows.
    pub length: usize,
}

/// The head of a field that arrives in parts: its tag and the length of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldHead {
    /// The number of the field.
    pub number: u32,
    /// Number of bytes of the value, which follows.
    pub length: usize,
}

impl FieldHead {
    /// Parses `bytes` as the head of a field that has a length. Returns `None` if the head is
    /// incomplete: the caller then adds the next byte and calls again.
    ///
    /// # Errors
    ///
    /// [`ProtobufError::Malformed`] if no such head begins with `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, ProtobufError> {
        // A head consists of two varints (tag and length), each of at most ten bytes.
        if bytes.len() > 20 {
            return Err(ProtobufError::Malformed);
        }
        let mut at = 0;
        let Ok(tag) = read_varint(bytes, &mut at) else { return Ok(None) };
        let Ok(length) = read_varint(bytes, &mut at) else { return Ok(None) };
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0 && tag & 7 == 2);
        let length = usize::try_from(length).ok().filter(|_| at == bytes.len());
        let (number, length) = number.zip(length).ok_or(ProtobufError::Malformed)?;
        Ok(Some(Self { number, length }))
    }
}

impl<'a> ListHead<'a> {
    /// Parses `bytes` as the head of a list. Returns `None` if the head is incomplete: the caller
    /// then adds the next byte and calls again.
    ///
    /// # Errors
    ///
    /// [`ProtobufError::Malformed`] if no head begins with `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, ProtobufError> {
        let Some(fields) = bytes.strip_prefix(MAGIC) else {
            return if MAGIC.starts_with(bytes) { Ok(None) } else { Err(ProtobufError::Malformed) };
        };
        let Some([types, rest]) = split_field(fields, TYPE_META)? else { return Ok(None) };
        let Some(FieldHead { number: RAW, length }) = FieldHead::parse(rest)? else {
            return Ok(None);
        };
        let (api_version, kind) = read_types(types)?;
        Ok(Some(Self { api_version, kind, length }))
    }
}

/// Splits `bytes` behind its first field, which must have the number `number`. Returns the field's
/// value and the rest; `None` if the field is incomplete.
fn split_field(bytes: &[u8], number: u32) -> Result<Option<[&[u8]; 2]>, ProtobufError> {
    let mut at = 0;
    let Ok(tag) = read_varint(bytes, &mut at) else { return Ok(None) };
    if tag != u64::from(number) << 3 | 2 {
        return Err(ProtobufError::Malformed);
    }
    let Ok(length) = read_varint(bytes, &mut at) else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed)?;
    let split = bytes.get(at..).and_then(|rest| rest.split_at_checked(length));
    Ok(split.map(|(value, rest)| [value, rest]))
}

fn read_types(types: &[u8]) -> Result<(&str, &str), ProtobufError> {
    let text = |number| {
        let text = find_field(types, number)?.unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| ProtobufError::Malformed)
    };
    Ok((text(1)?, text(2)?))
}

/// Returns the value of the first field with this number, even if the value's end is missing. With
/// it, kubewarm reads the name in an event that is cut off. Returns `None` if an earlier field is
/// incomplete.
pub(super) fn enter_field(bytes: &[u8], number: u32) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let mut at = 0;
        let tag = read_varint(rest, &mut at).ok()?;
        let value = match tag & 7 {
            0 => read_varint(rest, &mut at).ok().map(|_| at)?,
            2 => {
                let length = usize::try_from(read_varint(rest, &mut at).ok()?).ok()?;
                let end = at.saturating_add(length);
                if tag >> 3 == u64::from(number) {
                    return rest.get(at..end.min(rest.len()));
                }
                end
            }
            _ => return None,
        };
        rest = rest.get(value..)?;
    }
}

/// Returns the part of an object's message that `bytes` contains, even if the message's end is
/// missing. As for [`Unknown::parse`], `bytes` begins with `k8s\0`.
pub(crate) fn message_start(bytes: &[u8]) -> Option<&[u8]> {
    enter_field(bytes.strip_prefix(MAGIC)?, RAW)
}

/// Parses the start of a watch event whose end is missing, so that kubewarm can report the name of
/// its object. Returns the event's type, and the start of the object's message.
pub fn parse_watch_event_start(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let kind = enter_field(event, 1)?;
    Some((kind, message_start(enter_field(enter_field(event, 2)?, 1)?)?))
}

/// Appends a list up to its first item. `items_length` is the sum of [`item_length`] for all items.
pub fn write_list_head(
    api_version: &str,
    kind: &str,
    metadata: &ListMeta<'_>,
    items_length: usize,
    out: &mut Vec<u8>,
) {
    let mut head = Vec::new();
    metadata.write(&mut head);
    let length = bytes_field_length(head.len()) + items_length;
    Unknown { api_version, kind, raw: &[] }.write_head(length, out);
    write_bytes(METADATA, &head, out);
}

/// Appends one item of a list.
pub fn write_item(object: &[u8], out: &mut Vec<u8>) {
    write_bytes(ITEMS, object, out);
}

/// Returns the number of bytes that [`write_item`] appends for an object of `length` bytes.
pub const fn item_length(length: usize) -> usize {
    bytes_field_length(length)
}

/// Appends the end of a list.
pub fn write_list_tail(out: &mut Vec<u8>) {
    out.extend_from_slice(UNKNOWN_TAIL);
}

/// Appends one event of a watch with its length before it, as four bytes in big-endian order.
/// `kind` is the event's type, such as `ADDED`.
///
/// An event is a message `metav1.WatchEvent`: `type` (1), and `object` (2) with the field `raw`
/// (1).
pub fn write_watch_event(kind: &str, object: &Unknown<'_>, out: &mut Vec<u8>) {
    let object_length = object.length();
    let outer = bytes_field_length(object_length);
    let length = bytes_field_length(kind.len()) + bytes_field_length(outer);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    write_bytes(1, kind.as_bytes(), out);
    write_length(2, outer, out);
    write_length(1, object_length, out);
    object.write(out);
}

/// Parses an event of a watch, without its length: the event's type, and the bytes of its object
/// with `k8s\0`.
///
/// # Errors
///
/// [`ProtobufError::Malformed`] if the bytes are not an event.
pub fn parse_watch_event(event: &[u8]) -> Result<(&[u8], &[u8]), ProtobufError> {
    let (mut kind, mut object) = (&[][..], &[][..]);
    let mut fields = FieldReader::new(event);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => kind = fields.value(&field),
            2 => object = find_field(fields.value(&field), 1)?.unwrap_or_default(),
            _ => {}
        }
    }
    Ok((kind, object))
}

/// Returns the object of a bookmark.
pub fn bookmark_message(version: &str, kind: BookmarkKind) -> Vec<u8> {
    match kind {
        BookmarkKind::InitialEnd => bookmark(version, &[("k8s.io/initial-events-end", "true")]),
        BookmarkKind::Progress => bookmark(version, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_wrapped_as_by_the_api_server() {
        let unknown = Unknown { api_version: "v1", kind: "Pod", raw: b"\x0a\x00" };
        let mut out = Vec::new();
        unknown.write(&mut out);
        // The bytes that Kubernetes 1.36 writes for an object with this message.
        assert_eq!(out, b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00\x1a\x00\x22\x00");
        assert_eq!(out.len(), unknown.length());
        assert_eq!(Unknown::parse(&out), Ok(unknown));
        assert!(Unknown::parse(&out[1..]).is_err());
    }

    #[test]
    fn an_event_has_its_length_before_it() {
        for length in [0, 100, 300, 20_000] {
            let raw = vec![b'x'; length];
            let object = Unknown { api_version: "v1", kind: "Pod", raw: &raw };
            let mut out = Vec::new();
            write_watch_event("ADDED", &object, &mut out);
            let (head, event) = out.split_first_chunk().unwrap();
            assert_eq!(u32::from_be_bytes(*head) as usize, event.len());
            let (kind, message) = parse_watch_event(event).unwrap();
            assert_eq!((kind, Unknown::parse(message)), (&b"ADDED"[..], Ok(object)));
        }
    }

    #[test]
    fn the_length_of_a_list_is_exact() {
        let items = [vec![1; 3], vec![2; 127], vec![3; 128], vec![4; 70_000]];
        let length = items.iter().map(|item| item_length(item.len())).sum();
        let meta = ListMeta { version: "7", next: "token", remaining: Some(300) };
        let mut out = Vec::new();
        write_list_head("v1", "PodList", &meta, length, &mut out);
        for item in &items {
            write_item(item, &mut out);
        }
        write_list_tail(&mut out);
        let list = Unknown::parse(&out).unwrap();
        assert_eq!((list.api_version, list.kind), ("v1", "PodList"));
        let mut fields = FieldReader::new(list.raw);
        let head = fields.next_field().unwrap().unwrap();
        assert_eq!(ListMeta::parse(fields.value(&head)), Ok(meta));
        for item in &items {
            let field = fields.next_field().unwrap().unwrap();
            assert_eq!((field.number, fields.value(&field)), (ITEMS, &item[..]));
        }
        assert!(fields.next_field().unwrap().is_none());
    }
}
