//! Parses one event of a watch: the type of the event and the bytes of its object.

use super::{
    metadata::{ObjectMetadata, PartialMetadata},
    peek,
};
use crate::protobuf::{self, ObjectNames, Unknown, message_of_kind};
use kubewarm_api::model::{ObjectEncoding, ResourceVersion, Tombstone};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// The type of a watch event, also the label `type` of the metric
/// `kubewarm_upstream_watch_events_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "UPPERCASE")]
pub enum UpstreamEventType {
    /// `ADDED`: an object was created, or began to match the watch's selector.
    Added,
    /// `MODIFIED`: an object changed.
    Modified,
    /// `DELETED`: an object was deleted, or no longer matches the watch's selector.
    Deleted,
    /// `BOOKMARK`: the watch has reached a resource version. The event contains no change of an
    /// object.
    Bookmark,
    /// `ERROR`: the API server sends a `Status` object and ends the watch.
    Error,
}

/// A watch event: its type, and its unparsed object.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct UpstreamEvent<'a> {
    #[serde(rename = "type")]
    /// What happened to the object.
    pub kind: UpstreamEventType,
    #[serde(borrow, deserialize_with = "raw")]
    /// The bytes of the object, without the event around it.
    pub object: &'a [u8],
    /// The encoding of `object`. `None` if the object is in protobuf, and the field tables lack its
    /// kind.
    #[serde(skip, default = "json")]
    pub encoding: Option<ObjectEncoding>,
}

/// A bookmark: the watch has sent all changes up to a resource version.
#[derive(Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The version.
    pub version: ResourceVersion,
    /// Whether the bookmark ends the initial list of a watch with `sendInitialEvents` (streaming
    /// list).
    pub is_initial_events_end: bool,
}

/// The usual start of a watch line, for each event type. Usually, only the object and a final brace
/// follow. So kubewarm finds the object without parsing it.
const HEADS: [(UpstreamEventType, &[u8]); 5] = [
    (UpstreamEventType::Added, br#"{"type":"ADDED","object":"#),
    (UpstreamEventType::Modified, br#"{"type":"MODIFIED","object":"#),
    (UpstreamEventType::Deleted, br#"{"type":"DELETED","object":"#),
    (UpstreamEventType::Bookmark, br#"{"type":"BOOKMARK","object":"#),
    (UpstreamEventType::Error, br#"{"type":"ERROR","object":"#),
];

impl fmt::Debug for UpstreamEvent<'_> {
    /// Prints only the object's size, because the object can be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.kind, self.object.len())
    }
}

impl<'a> UpstreamEvent<'a> {
    /// Parses a complete line of a watch response. `None` if the line is not an event.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        if let Some(event) = Self::of_head(line) {
            let object = event.object.strip_suffix(b"}").unwrap_or_default();
            if object.first() == Some(&b'{') && object.last() == Some(&b'}') {
                return Some(Self { object, ..event });
            }
        }
        serde_json::from_slice(line).ok()
    }

    /// Parses the start of a watch line whose end can be missing. `object` is the complete rest of
    /// the line, including the brace that closes the event.
    pub(super) fn of_head(line: &'a [u8]) -> Option<Self> {
        HEADS.iter().find_map(|(kind, head)| {
            let object = line.strip_prefix(*head)?;
            Some(Self { kind: *kind, object, encoding: json() })
        })
    }

    /// Parses a complete event in protobuf. `None` if the bytes are not an event.
    pub(super) fn parse_protobuf(frame: &'a [u8]) -> Option<Self> {
        let (kind, object) = protobuf::parse_watch_event(frame).ok()?;
        let Unknown { api_version, kind: object_kind, raw } = Unknown::parse(object).ok()?;
        let encoding = message_of_kind(api_version, object_kind).map(ObjectEncoding::Protobuf);
        Some(Self { kind: event_type(kind)?, object: raw, encoding })
    }

    /// Parses the start of an event in protobuf whose end can be missing. `object` is the start of
    /// its object.
    pub(super) fn of_protobuf_start(frame: &'a [u8]) -> Option<Self> {
        let (kind, object) = protobuf::parse_watch_event_start(frame)?;
        Some(Self { kind: event_type(kind)?, object, encoding: None })
    }

    fn is_json(&self) -> bool {
        self.encoding == json()
    }

    /// Reads the name and the resource version of a deleted object, and ignores its other fields.
    /// `None` if the name cannot be read.
    pub fn tombstone(&self) -> Option<Tombstone<'a>> {
        if self.is_json() {
            return peek::tombstone(self.object);
        }
        let ObjectNames { name, namespace, version, .. } = ObjectNames::of_start(self.object);
        let version = ResourceVersion::parse(version);
        (!name.is_empty()).then(|| Tombstone {
            namespace: namespace.into(),
            name: name.into(),
            version,
        })
    }

    /// Reads a bookmark; `None` if the object has no version.
    pub fn bookmark(&self) -> Option<Bookmark> {
        if self.is_json() {
            return Bookmark::parse(self.object);
        }
        let names = ObjectNames::of_object(self.object).ok()?;
        let mut is_initial_events_end = false;
        let each = |key: &str, value: &str| {
            is_initial_events_end |= key == "k8s.io/initial-events-end" && value == "true";
        };
        protobuf::for_each_annotation(self.object, each).ok()?;
        Some(Bookmark { version: ResourceVersion::parse(names.version)?, is_initial_events_end })
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a field")]
fn json() -> Option<ObjectEncoding> {
    Some(ObjectEncoding::Json)
}

fn event_type(name: &[u8]) -> Option<UpstreamEventType> {
    let known = [
        (UpstreamEventType::Added, &b"ADDED"[..]),
        (UpstreamEventType::Modified, b"MODIFIED"),
        (UpstreamEventType::Deleted, b"DELETED"),
        (UpstreamEventType::Bookmark, b"BOOKMARK"),
        (UpstreamEventType::Error, b"ERROR"),
    ];
    known.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}

/// Deserializes a value as its raw bytes.
fn raw<'de, D: Deserializer<'de>>(from: D) -> Result<&'de [u8], D::Error> {
    <&RawValue>::deserialize(from).map(|value| value.get().as_bytes())
}

impl Bookmark {
    /// Parses a bookmark and ignores fields other than `metadata`, because bookmarks also contain
    /// the empty required fields of their resource.
    pub(super) fn parse(object: &[u8]) -> Option<Self> {
        let PartialMetadata::<ObjectMetadata<'_>> { metadata } =
            serde_json::from_slice(object).ok()?;
        let end = metadata.annotations().ok()?.initial_events_end;
        Some(Self {
            version: metadata.version()?,
            is_initial_events_end: end.as_deref() == Some("true"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_come_in_any_order() {
        let usual = UpstreamEvent::parse(br#"{"type":"ADDED","object":{"a":{}}}"#).unwrap();
        let other = UpstreamEvent::parse(br#"{ "object" : {"a":{}}, "type":"ADDED" }"#).unwrap();
        assert_eq!(usual, other);
        assert_eq!(usual.object, br#"{"a":{}}"#);
        let extra = UpstreamEvent::parse(br#"{"type":"ADDED","object":{"a":{}} , "x":1}"#).unwrap();
        assert_eq!(extra.object, br#"{"a":{}}"#);
    }

    #[test]
    fn lines_that_are_not_events_are_rejected() {
        for line in [
            &b"{}"[..],
            b"null",
            b"{\"type\":\"NEW\",\"object\":{}}",
            b"{\"type\":\"ADDED\",\"obj",
            b"<html>",
        ] {
            assert!(UpstreamEvent::parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn the_end_of_the_initial_events_is_an_annotation() {
        let end = br#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null}}"#;
        let expected = Bookmark { version: ResourceVersion::from(7), is_initial_events_end: true };
        assert_eq!(Bookmark::parse(end), Some(expected));
        assert!(
            !Bookmark::parse(br#"{"metadata":{"resourceVersion":"7"}}"#)
                .unwrap()
                .is_initial_events_end
        );
        assert_eq!(Bookmark::parse(br#"{"metadata":{}}"#), None);
    }
}
