//! Writes the events of a watch. Each event is one line of JSON.

use super::{StatusError, body::write_string, json::find};
use kubewarm_api::model::ResourceVersion;
use std::borrow::Cow;

/// The `type` of a watch event that is about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object was created, or now matches the selectors of the watch.
    Added,
    /// The object changed and still matches the selectors of the watch.
    Modified,
    /// The object was deleted, or no longer matches the selectors of the watch.
    Deleted,
}

/// The purpose of a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookmarkKind {
    /// The bookmark that marks the end of the initial events, with the annotation
    /// `k8s.io/initial-events-end`.
    InitialEnd,
    /// A bookmark that contains only a newer resource version, from which the client can resume the
    /// watch.
    Progress,
}

impl EventType {
    /// Returns the value of the field `type` in a watch event, such as `ADDED`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Writes a watch event to `out`. The function `object` appends the JSON of the event's object to
/// its argument.
pub fn write_event(event_type: EventType, object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    write_line(event_type.as_str(), object, out);
}

/// Writes a `BOOKMARK` event to `out`. The function `object` appends the JSON of an object from
/// [`bookmark_object`] to its argument.
pub fn write_bookmark(object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    write_line("BOOKMARK", object, out);
}

/// Writes the event `ERROR`, which must be the last event of a watch.
pub fn write_error_event(failure: &StatusError, out: &mut Vec<u8>) {
    let status = failure.body();
    write_line("ERROR", |out| out.extend_from_slice(status.trim_end().as_bytes()), out);
}

fn write_line(event_type: &str, object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}

/// Returns the object of a bookmark, without `kind` and `apiVersion`. The object contains only a
/// resource version and, at the end of the initial events, an annotation.
pub fn bookmark_object(version: &ResourceVersion, kind: BookmarkKind) -> Vec<u8> {
    let mut out = br#"{"metadata":{"resourceVersion":"#.to_vec();
    write_string(&version.to_string(), &mut out);
    if kind == BookmarkKind::InitialEnd {
        out.extend_from_slice(br#","annotations":{"k8s.io/initial-events-end":"true"}"#);
    }
    out.extend_from_slice(b"}}");
    out
}

/// Returns the last state of a deleted object for its `DELETED` event. As at the API server, the
/// object has the resource version of the deletion, `version`, so that the client can resume after
/// this event. If `stored` contains no resource version, returns `stored` unchanged.
pub fn with_end_version<'a>(stored: &'a [u8], version: &ResourceVersion) -> Cow<'a, [u8]> {
    let place = find(stored, &["metadata", "resourceVersion"]);
    let parts = place.and_then(|at| Some((stored.get(..at.start)?, stored.get(at.end..)?)));
    let Some((before, behind)) = parts else { return Cow::Borrowed(stored) };
    let mut changed = Vec::with_capacity(stored.len() + 16);
    changed.extend_from_slice(before);
    write_string(&version.to_string(), &mut changed);
    changed.extend_from_slice(behind);
    Cow::Owned(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MetaVersion, ObjectPart, write_object};

    const POD: &str = r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"n":1.0}}"#;

    /// Returns a function that appends the JSON of the pod `stored` to its buffer.
    fn pod(stored: &[u8], part: ObjectPart) -> impl FnOnce(&mut Vec<u8>) {
        move |out| write_object("v1", "Pod", stored, part, out)
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_line_with_the_whole_object() {
        let line = written(|out| {
            write_event(EventType::Added, pod(POD.as_bytes(), ObjectPart::Full), out);
        });
        assert_eq!(
            line,
            "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":\
             {\"name\":\"a\",\"resourceVersion\":\"7\"},\"spec\":{\"n\":1.0}}}\n"
        );
    }

    #[test]
    fn a_deleted_object_has_the_version_of_its_deletion() {
        for (form, expected) in [
            (
                ObjectPart::Full,
                "{\"type\":\"DELETED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
                 \"metadata\":{\"name\":\"a\",\"resourceVersion\":\"123\"},\"spec\":{\"n\":1.0}}}\n",
            ),
            (
                ObjectPart::Metadata(MetaVersion::V1),
                "{\"type\":\"DELETED\",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\
                 \"meta.k8s.io/v1\",\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"123\"}}}\n",
            ),
        ] {
            let version = ResourceVersion::from(123);
            let stored = with_end_version(POD.as_bytes(), &version);
            let line = written(|out| write_event(EventType::Deleted, pod(&stored, form), out));
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn a_bookmark_has_the_kind_of_the_watched_resource() {
        let line = written(|out| {
            write_bookmark(
                pod(&bookmark_object(&9.into(), BookmarkKind::Progress), ObjectPart::Full),
                out,
            );
        });
        assert_eq!(
            line,
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":\
             {\"resourceVersion\":\"9\"}}}\n"
        );
        let end = bookmark_object(&9.into(), BookmarkKind::InitialEnd);
        let line =
            written(|out| write_bookmark(pod(&end, ObjectPart::Metadata(MetaVersion::V1)), out));
        assert!(line.contains(r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#));
        assert!(line.contains(r#""annotations":{"k8s.io/initial-events-end":"true"}"#), "{line}");
    }

    #[test]
    fn an_error_event_is_one_line_with_a_status() {
        let failure = StatusError::too_old(&1.into(), Some(&5.into()));
        let line = written(|out| write_error_event(&failure, out));
        assert_eq!(
            line,
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
             \"status\":\"Failure\",\"message\":\"too old resource version: 1 (5)\",\"reason\":\
             \"Expired\",\"code\":410}}\n"
        );
    }
}
