//! What travels from an informer to a table.

use super::ResourceVersion;
use std::{borrow::Cow, cmp::Ordering, fmt, iter::once, time::Instant};

/// Name of one object within a resource. Ordered as the API server lists them: by the bytes of
/// `<namespace>/<name>`, which are their keys in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
}

/// The order of two namespaces in a list: `team-a` comes before `team`, since `-` comes before the `/`
/// behind it.
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

/// `metadata.uid`: which object this is, beyond its name.
///
/// Sixteen bytes where it is a lower-case UUID, as the API server makes them; anything else is kept
/// as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// One decoded object, borrowed from the bytes that came from the server.
#[derive(Clone)]
pub struct Item<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`; never empty.
    pub name: Cow<'a, str>,
    /// Which object it is.
    pub uid: Uid,
    /// Its version; `None` from servers that give none.
    pub version: Option<ResourceVersion>,
    /// The projected object: JSON without `apiVersion`, `kind` and, unless kept,
    /// `metadata.managedFields`; every other byte as the server sent it.
    pub body: &'a [u8],
}

impl fmt::Debug for Item<'_> {
    /// Which object, never what it says: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, uid, version, body } = self;
        let length = body.len();
        write!(f, "{namespace}/{name} ({uid:?}, version {version:?}) of {length} bytes")
    }
}

/// What is left of an object that is gone. Carries no body, so a deletion cannot fail to decode
/// because of what the object held.
#[derive(Clone, Debug)]
pub struct Tombstone<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`; never empty.
    pub name: Cow<'a, str>,
    /// The version of the deletion, newer than the object's last.
    pub version: Option<ResourceVersion>,
}

/// Which object is held, and in which version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named<'a> {
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Option<ResourceVersion>,
}

/// Whether a list may read differently at the same resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread {
    /// No: an object whose version did not change is not stored again.
    Changed,
    /// Yes, as after the edit of a CRD (defaults, conversion): every object is stored again.
    Everything,
}

/// One step of the protocol between an informer and a table.
///
/// A full list is `ListStarted`, any number of `Upsert`, then `ListDone`. It is a consistent read, sent
/// after everything before it had arrived: what it says of an object counts even against a version that
/// is held and seems newer. That one is of a past that an etcd restore took back. Whatever the table held
/// before `ListStarted` and did not see again by `ListDone` no longer exists in the cluster. A list
/// that breaks off is followed by another `ListStarted`.
#[derive(Clone, Debug)]
pub enum Delta<'a> {
    /// A full list begins; the previous contents are served on.
    ListStarted(Reread),
    /// The object exists and looks like this.
    Upsert(Item<'a>),
    /// The object is gone.
    Remove(Tombstone<'a>),
    /// The full list is complete and was true at this version.
    ListDone(ResourceVersion),
    /// Everything up to this version has been delivered: a bookmark.
    Progress(ResourceVersion),
    /// Nothing that is held can be trusted or exists any more: all rows and the version go.
    Purge,
    /// What follows arrived at this time: what happened is remembered for watches for a while.
    Arrived(Instant),
}

/// What a [`Delta`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new object.
    Added,
    /// A newer version of a known object.
    Modified,
    /// Same key, other UID: the old object was deleted and a new one added, in this order.
    Replaced,
    /// An object went.
    Removed,
    /// Already known at this version.
    Unchanged,
    /// An event that is older than what is held, or the deletion of an object that is not held; not
    /// applied.
    Outdated,
    /// A list began, or a bookmark was noted.
    Noted,
    /// A list ended; `removed` objects were not in it.
    Swept {
        /// Objects that had gone unseen.
        removed: u64,
    },
}

/// Receives deltas in order: a store, or what stands in front of one.
pub trait DeltaSink: Send + 'static {
    /// Applies one delta. Must not block: it runs on the informer's task.
    fn apply(&mut self, delta: Delta<'_>) -> Outcome;
}

impl Uid {
    /// Takes a UID as the server wrote it; the empty string is a UID like any other.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(parse_uuid(text.as_bytes()).map_or_else(|| UidRepr::Text(text.into()), UidRepr::Uuid))
    }

    /// The sixteen bytes of a lower-case UUID.
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
    fn a_uuid_takes_sixteen_bytes_and_comes_back_as_written() {
        let text = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let uid = Uid::parse(text);
        assert!(uid.as_uuid().is_some());
        assert_eq!(uid.to_string(), text);
        assert_eq!(Uid::from(uid.as_uuid().unwrap()), uid);
    }

    #[test]
    fn other_uids_are_kept_as_they_came() {
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
