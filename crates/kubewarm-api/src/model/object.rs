//! Objects that an informer sends to its store, and the events that contain these objects.

use super::ResourceVersion;
use std::{borrow::Cow, cmp::Ordering, fmt, iter::once, time::Instant};

/// Namespace and name of one object. Keys are ordered like objects in a list of the API server: by
/// the bytes of `<namespace>/<name>`, which is the end of the etcd key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
}

/// Compares two namespaces by their order in a list: `team-a` precedes `team`, because `-` sorts
/// before the `/` after `team`.
pub fn namespace_order(left: &str, right: &str) -> Ordering {
    left.bytes().chain(once(b'/')).cmp(right.bytes().chain(once(b'/')))
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

/// `metadata.uid`. An object that is created with the name of a deleted object has another UID.
///
/// To save memory, a lower-case UUID, as the API server creates it, is stored as 16 bytes. Every
/// other UID is stored as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// The number of a protobuf message, such as `core/v1.Pod`, in the field tables of `kubewarm-wire`,
/// from 0. With these tables, kubewarm finds the fields in protobuf, which contains no field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub u16);

/// The encoding of the objects that an informer receives, and of the objects in its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectEncoding {
    /// JSON, as the API server writes it.
    #[default]
    Json,
    /// Kubernetes protobuf. Each object is one message of this type.
    Protobuf(MessageId),
}

/// One decoded object, borrowed from the bytes of a response.
#[derive(Clone)]
pub struct DecodedObject<'a> {
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`, never empty.
    pub name: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`; `None` if the API server sends no version.
    pub version: Option<ResourceVersion>,
    /// The object, or only its `metadata` if the informer stores only metadata, in the encoding of
    /// the last `Delta::Encoding`. It lacks `apiVersion` and `kind`, and `metadata.managedFields`
    /// if the informer drops them. All other bytes are as the API server sent them.
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

/// A deleted object, without its body. So kubewarm can apply a deletion even if the body of the
/// deleted object cannot be decoded.
#[derive(Clone, Debug)]
pub struct Tombstone<'a> {
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`, never empty.
    pub name: Cow<'a, str>,
    /// Resource version of the deletion, which is newer than the object's resource version before
    /// the deletion.
    pub version: Option<ResourceVersion>,
}

/// Name, UID and version of one stored object, without its body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectIdentity<'a> {
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`; `None` if the API server sends no version.
    pub version: Option<ResourceVersion>,
}

/// Whether an object in a list can have other bytes than the stored object with the same resource
/// version. If so, the store must replace the stored object although the version is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// An object whose resource version is unchanged has unchanged bytes. The store does not
    /// replace such an object when it applies a new list.
    Changed,
    /// An object whose resource version is unchanged can have other bytes, for example after a CRD
    /// has new defaults. The store replaces every object when it applies a new list.
    Everything,
}

/// One event from an informer to its store.
///
/// A full list is `ListStarted`, any number of `Upsert`, then `ListDone`. If a list is interrupted,
/// the next list begins with another `ListStarted`. At `ListDone`, the store removes each object
/// without an `Upsert` since `ListStarted`.
///
/// Every list is a consistent read that the informer sends after all earlier responses have
/// arrived. So the objects in a list replace stored objects, even if a stored version is higher. A
/// higher stored version can only be from before an etcd restore.
#[derive(Clone, Debug)]
pub enum Delta<'a> {
    /// The encoding of all following objects. If it differs from the encoding of the stored
    /// objects, the store drops all objects and its resource version, as for `Purge`.
    Encoding(ObjectEncoding),
    /// A full list begins. Until `ListDone`, the store continues to serve objects from before the
    /// list.
    ListStarted(ReplacePolicy),
    /// The object was created or changed, or a list contains the object. The value is the object as
    /// the API server sent it.
    Upsert(DecodedObject<'a>),
    /// A watch sent the object as created or changed. The store applies it like `Upsert`, with one
    /// exception: if the event is not newer than the store and the store lacks the object, the
    /// store does not add the object, because it can be deleted ([`DeltaOutcome::OutOfOrder`]).
    WatchEvent(DecodedObject<'a>),
    /// The object is deleted.
    Remove(Tombstone<'a>),
    /// The API server sent an object that the store cannot keep. So the store lacks this object and
    /// its change, and the watches of clients must end.
    Unreadable,
    /// The full list is complete. It shows the state of the resource at this resource version.
    ListDone(ResourceVersion),
    /// A bookmark: the watch has sent every change up to this resource version.
    Progress(ResourceVersion),
    /// A list of metadata at this resource version contains exactly the stored objects, so the
    /// store is current at this version without a new list. Objects that were created and deleted
    /// in between are unknown, so the event log is incomplete.
    Equal(ResourceVersion),
    /// The stored objects are no longer valid. The store drops all objects and its resource
    /// version.
    Purge,
    /// Arrival time of the informer's following events. The store's event log (its recent changes)
    /// keeps each event for a limited time after its arrival.
    Arrived(Instant),
}

/// Effect of a [`Delta`] on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// The store added an object whose namespace and name it did not have.
    Added,
    /// The store replaced the body and the version of an object whose UID is unchanged.
    Modified,
    /// The store replaced an object by an object with the same namespace and name but another UID.
    /// Clients see a deletion, then an addition.
    Replaced,
    /// The store removed an object.
    Removed,
    /// The store already had this version of the object.
    Unchanged,
    /// The store did not apply the event. The event is older than the stored object, or it deletes
    /// an object that the store does not have.
    Outdated,
    /// The event of a watch is not newer than the store's version, which does not change. If the
    /// event creates or changes an object, the store now has this state of the object or a newer
    /// one. If the event deletes an object, the store lacks the object or has a newer one.
    Replayed,
    /// The store did not apply the event of a watch, because the event is not newer than the
    /// store's version although the store lacks the object. Either the event arrived out of order,
    /// or the object was deleted after this version.
    OutOfOrder,
    /// The event concerns no single object: it is the start of a list, a bookmark, a purge or an
    /// arrival time.
    Noted,
    /// A list ended, and the store removed the objects that were absent from the list.
    Swept {
        /// Number of objects that the store removed.
        removed: u64,
    },
}

/// Receiver of an informer's events ([`Delta`]) in order: a store, or a wrapper of a store.
pub trait DeltaSink: Send + 'static {
    /// Applies one [`Delta`]. This method must not block the thread, because it runs in the
    /// informer's async task.
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome;
}

impl Uid {
    /// Parses the UID as the API server wrote it. Every text is a valid UID, even the empty string.
    pub fn parse(text: &str) -> Self {
        Self(parse_uuid(text.as_bytes()).map_or_else(|| UidRepr::Text(text.into()), UidRepr::Uuid))
    }

    /// Returns the 16 bytes of the UID if it is a lower-case UUID.
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
