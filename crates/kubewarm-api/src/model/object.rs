//! Objects and events that an informer sends to a store.

use super::ResourceVersion;
use std::{borrow::Cow, cmp::Ordering, fmt, iter::once, time::Instant};

/// Namespace and name of one object, ordered as in lists of the API server: by the bytes of
/// `<namespace>/<name>`, the end of the etcd key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
}

/// Compares two namespaces by their order in a list: `team-a` precedes `team`, because `-` sorts
/// before the `/` after `team`.
#[must_use]
pub fn namespace_order(one: &str, other: &str) -> Ordering {
    one.bytes().chain(once(b'/')).cmp(other.bytes().chain(once(b'/')))
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        namespace_order(&self.namespace, &other.namespace).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `metadata.uid`, which differs between an object and a later object of the same name.
///
/// A lower-case UUID, as the API server creates it, takes 16 bytes. Other text is kept unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// One decoded object, borrowed from the bytes of a response.
#[derive(Clone)]
pub struct DecodedObject<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`, never empty.
    pub name: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`; `None` if the server sends no version.
    pub version: Option<ResourceVersion>,
    /// JSON of the projected object without `apiVersion` and `kind`, and by default without
    /// `metadata.managedFields`. All other bytes are unchanged.
    pub body: &'a [u8],
}

impl fmt::Debug for DecodedObject<'_> {
    /// Omits the body, which can contain a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, uid, version, body } = self;
        let length = body.len();
        write!(f, "{namespace}/{name} ({uid:?}, version {version:?}) of {length} bytes")
    }
}

/// A deleted object. It has no body, so a deletion cannot fail because of an undecodable body.
#[derive(Clone, Debug)]
pub struct Tombstone<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`, never empty.
    pub name: Cow<'a, str>,
    /// Resource version of the deletion, newer than the last version of the object.
    pub version: Option<ResourceVersion>,
}

/// Name, UID and version of one stored object, without its body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectIdentity<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Option<ResourceVersion>,
}

/// Whether a list can return other bytes for an object at the same resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// It cannot: the store skips an object whose version is unchanged.
    Changed,
    /// It can, for example after an edit of a CRD (defaults, conversion): the store replaces every
    /// object.
    Everything,
}

/// One event from an informer to its store.
///
/// A full list is `ListStarted`, any number of `Upsert`, then `ListDone`. An interrupted list is
/// followed by another `ListStarted`. At `ListDone` the store removes each object without an
/// `Upsert` since `ListStarted`.
///
/// A list is a consistent read, sent after all earlier responses arrived. So its objects replace
/// stored objects even if the stored version is higher: such a version precedes an etcd restore.
#[derive(Clone, Debug)]
pub enum Delta<'a> {
    /// A full list begins. The store continues to serve the previous objects.
    ListStarted(ReplacePolicy),
    /// The object exists with this content.
    Upsert(DecodedObject<'a>),
    /// The object is deleted.
    Remove(Tombstone<'a>),
    /// The full list is complete, and was current at this version.
    ListDone(ResourceVersion),
    /// A bookmark: the watch has sent every change up to this version.
    Progress(ResourceVersion),
    /// The store drops all objects and its version, because they are no longer valid.
    Purge,
    /// Arrival time of the next events. The event log keeps events for a limited time from then on.
    Arrived(Instant),
}

/// Effect of a [`Delta`] on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// The store has a new object.
    Added,
    /// The store has a newer version of a known object.
    Modified,
    /// The object has a known key with a new UID. The store treats it as a deletion followed by an
    /// addition.
    Replaced,
    /// The store has one object less.
    Removed,
    /// The store already has this version of the object.
    Unchanged,
    /// Not applied: the event is older than the stored object, or it deletes an object that is not
    /// stored.
    Outdated,
    /// The delta changed no object directly: a list started, or a bookmark, a purge or an arrival
    /// time.
    Noted,
    /// A list ended.
    Swept {
        /// Number of stored objects that were absent from the list.
        removed: u64,
    },
}

/// Receiver of deltas in order: a store, or a wrapper of a store.
pub trait DeltaSink: Send + 'static {
    /// Applies one delta. It must not block, because it runs on the informer's task.
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome;
}

impl Uid {
    /// Parses the UID as the server wrote it. Every text is valid, also the empty string.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(parse_uuid(text.as_bytes()).map_or_else(|| UidRepr::Text(text.into()), UidRepr::Uuid))
    }

    /// Returns the 16 bytes of a lower-case UUID, otherwise `None`.
    #[must_use]
    pub fn as_uuid(&self) -> Option<[u8; 16]> {
        match self.0 {
            UidRepr::Uuid(bytes) => Some(bytes),
            UidRepr::Text(_) => None,
        }
    }
}

impl From<[u8; 16]> for Uid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(UidRepr::Uuid(bytes))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Text(text) => f.write_str(text),
            UidRepr::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    if text.len() != 36 || ![8, 13, 18, 23].iter().all(|&at| text.get(at) == Some(&b'-')) {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = text.iter().filter(|&&b| b != b'-');
    for byte in &mut bytes {
        *byte = digit(*digits.next()?)? << 4 | digit(*digits.next()?)?;
    }
    digits.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_takes_16_bytes_and_is_written_unchanged() {
        let text = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let uid = Uid::parse(text);
        assert!(uid.as_uuid().is_some());
        assert_eq!(uid.to_string(), text);
        assert_eq!(Uid::from(uid.as_uuid().unwrap()), uid);
    }

    #[test]
    fn other_uids_are_kept_unchanged() {
        for text in [
            "",
            "x",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd-9cb-469f-a165-70867728950e",
        ] {
            let uid = Uid::parse(text);
            assert_eq!(uid.as_uuid(), None, "{text}");
            assert_eq!(uid.to_string(), text);
        }
    }
}
