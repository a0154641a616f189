//! One line of a watch: its type, and the object's bytes.

use super::{
    EventKind,
    metadata::{MetadataOnly, ObjectMeta},
};
use kubewarm_api::model::ResourceVersion;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// A parsed line. The object's bytes are not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: EventKind,
    #[serde(borrow, deserialize_with = "raw")]
    pub(super) object: &'a [u8],
}

/// What a bookmark carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    pub(super) version: ResourceVersion,
    /// It ends the initial events of a streaming list.
    pub(super) ends_initial: bool,
}

/// The API server's own order of members, which spares a pass over the object.
const HEADS: [(EventKind, &[u8]); 5] = [
    (EventKind::Added, br#"{"type":"ADDED","object":"#),
    (EventKind::Modified, br#"{"type":"MODIFIED","object":"#),
    (EventKind::Deleted, br#"{"type":"DELETED","object":"#),
    (EventKind::Bookmark, br#"{"type":"BOOKMARK","object":"#),
    (EventKind::Error, br#"{"type":"ERROR","object":"#),
];

impl fmt::Debug for Event<'_> {
    /// How much, never what: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.kind, self.object.len())
    }
}

impl<'a> Event<'a> {
    /// Reads a complete line; `None` if it is no event.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        if let Some(event) = Self::of_head(line) {
            let object = event.object.strip_suffix(b"}").unwrap_or_default();
            if object.first() == Some(&b'{') && object.last() == Some(&b'}') {
                return Some(Self { object, ..event });
            }
        }
        serde_json::from_slice(line).ok()
    }

    /// Reads the head of a line that is cut off: type, and the object as far as it goes.
    pub(super) fn of_head(line: &'a [u8]) -> Option<Self> {
        HEADS.iter().find_map(|(kind, head)| {
            line.strip_prefix(*head).map(|object| Self { kind: *kind, object })
        })
    }
}

/// The bytes of a value.
fn raw<'de, D: Deserializer<'de>>(from: D) -> Result<&'de [u8], D::Error> {
    <&RawValue>::deserialize(from).map(|value| value.get().as_bytes())
}

impl Bookmark {
    /// Reads a bookmark; typed kinds carry empty required parts beside the metadata.
    pub(super) fn parse(object: &[u8]) -> Option<Self> {
        let MetadataOnly::<ObjectMeta<'_>> { metadata } = serde_json::from_slice(object).ok()?;
        let end = metadata.annotations().ok()?.initial_events_end;
        Some(Self { version: metadata.version()?, ends_initial: end.as_deref() == Some("true") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_come_in_any_order() {
        let usual = Event::parse(br#"{"type":"ADDED","object":{"a":{}}}"#).unwrap();
        let other = Event::parse(br#"{ "object" : {"a":{}}, "type":"ADDED" }"#).unwrap();
        assert_eq!(usual, other);
        assert_eq!(usual.object, br#"{"a":{}}"#);
        let extra = Event::parse(br#"{"type":"ADDED","object":{"a":{}} , "x":1}"#).unwrap();
        assert_eq!(extra.object, br#"{"a":{}}"#);
    }

    #[test]
    fn what_is_no_event_is_rejected() {
        for line in [
            &b"{}"[..],
            b"null",
            b"{\"type\":\"NEW\",\"object\":{}}",
            b"{\"type\":\"ADDED\",\"obj",
            b"<html>",
        ] {
            assert!(Event::parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn the_end_of_the_initial_events_is_an_annotation() {
        let end = br#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null}}"#;
        let expected = Bookmark { version: ResourceVersion::from(7), ends_initial: true };
        assert_eq!(Bookmark::parse(end), Some(expected));
        assert!(!Bookmark::parse(br#"{"metadata":{"resourceVersion":"7"}}"#).unwrap().ends_initial);
        assert_eq!(Bookmark::parse(br#"{"metadata":{}}"#), None);
    }
}
