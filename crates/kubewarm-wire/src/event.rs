//! Events of a watch as they are sent: a line of JSON each.

use super::{Failure, body::write_string, json::find};
use kubewarm_api::model::ResourceVersion;
use std::borrow::Cow;

/// What an event says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It is there now, or among those that are selected.
    Added,
    /// It is another.
    Modified,
    /// It is there no more, or not among those that are selected.
    Deleted,
}

impl EventType {
    /// As it is sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Writes an event about what `object` writes.
pub fn event(of: EventType, object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    line(of.as_str(), object, out);
}

/// Writes a bookmark, of which `object` writes what it says.
pub fn bookmark(object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    line("BOOKMARK", object, out);
}

/// Writes why a watch ends.
pub fn error_event(failure: &Failure, out: &mut Vec<u8>) {
    let status = failure.body();
    line("ERROR", |out| out.extend_from_slice(status.trim_end().as_bytes()), out);
}

fn line(of: &str, object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(of.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}

/// What a bookmark is of, as if it were stored: an object that has nothing but a version.
#[must_use]
pub fn progress(version: &ResourceVersion, is_initial_end: bool) -> Vec<u8> {
    let mut out = br#"{"metadata":{"resourceVersion":"#.to_vec();
    write_string(&version.to_string(), &mut out);
    if is_initial_end {
        out.extend_from_slice(br#","annotations":{"k8s.io/initial-events-end":"true"}"#);
    }
    out.extend_from_slice(b"}}");
    out
}

/// What there was of an object that is gone, with the version of its end.
#[must_use]
pub fn ended<'a>(stored: &'a [u8], version: &ResourceVersion) -> Cow<'a, [u8]> {
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
    use crate::{MetaVersion, Part, write_object};

    const POD: &str = r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"n":1.0}}"#;

    /// Writes the pod that is stored.
    fn pod(stored: &[u8], of: Part) -> impl FnOnce(&mut Vec<u8>) {
        move |out| write_object("v1", "Pod", stored, of, out)
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_a_line_with_the_whole_object() {
        let line = written(|out| event(EventType::Added, pod(POD.as_bytes(), Part::Full), out));
        assert_eq!(
            line,
            "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":\
             {\"name\":\"a\",\"resourceVersion\":\"7\"},\"spec\":{\"n\":1.0}}}\n"
        );
    }

    #[test]
    fn what_is_gone_has_the_version_of_its_end() {
        for (form, expected) in [
            (
                Part::Full,
                "{\"type\":\"DELETED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
                 \"metadata\":{\"name\":\"a\",\"resourceVersion\":\"123\"},\"spec\":{\"n\":1.0}}}\n",
            ),
            (
                Part::Metadata(MetaVersion::V1),
                "{\"type\":\"DELETED\",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\
                 \"meta.k8s.io/v1\",\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"123\"}}}\n",
            ),
        ] {
            let version = ResourceVersion::from(123);
            let stored = ended(POD.as_bytes(), &version);
            let line = written(|out| event(EventType::Deleted, pod(&stored, form), out));
            assert_eq!(line, expected);
        }
    }

    #[test]
    fn a_bookmark_is_of_the_kind_that_is_watched() {
        let line = written(|out| bookmark(pod(&progress(&9.into(), false), Part::Full), out));
        assert_eq!(
            line,
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":\
             {\"resourceVersion\":\"9\"}}}\n"
        );
        let end = progress(&9.into(), true);
        let line = written(|out| bookmark(pod(&end, Part::Metadata(MetaVersion::V1)), out));
        assert!(line.contains(r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#));
        assert!(line.contains(r#""annotations":{"k8s.io/initial-events-end":"true"}"#), "{line}");
    }

    #[test]
    fn an_error_is_a_status_in_a_line() {
        let failure = Failure::too_old(&1.into(), Some(&5.into()));
        let line = written(|out| error_event(&failure, out));
        assert_eq!(
            line,
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
             \"status\":\"Failure\",\"message\":\"too old resource version: 1 (5)\",\"reason\":\
             \"Expired\",\"code\":410}}\n"
        );
    }
}
