//! What two replicas of kubewarm say to each other when one copies the other's stores.
//!
//! A replica requests a store with `GET /kubewarm.io/peer/v1/stores/DIGEST`. The response is a
//! stream of watch events: the objects at an earlier version with a bookmark, then the changes up
//! to the version in the [`PeerStoreSummary`] with another bookmark. `v1` is the version of this
//! format: a replica that does not know it answers 404.

use super::{
    BookmarkKind, EventType, ObjectBody, ObjectPart, bookmark_object,
    protobuf::{bookmark_message, kind_of_message},
    write_bookmark, write_event, write_event_message,
};
use aws_lc_rs::digest::{SHA256, digest};
use kubewarm_api::model::{InformerKey, MessageId, ObjectEncoding, ResourceVersion};
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, time::Duration};

/// The start of the path of each store.
const PEER_STORES: &str = "/kubewarm.io/peer/v1/stores/";
/// The version of what a store keeps of each object. A release that keeps more than its predecessor
/// increases it. Its replicas then list, because nothing in a copied object shows what it lacks.
const STORED_FIELDS: u32 = 1;
/// The audience of the tokens with which replicas authenticate to each other.
pub const PEER_AUDIENCE: &str = "kubewarm-peer";
/// The response header with the [`PeerStoreSummary`], as JSON.
pub const PEER_SUMMARY_HEADER: &str = "kubewarm-peer-store";

/// What a copied store must contain at the end of the stream. A store that differs is worth
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStoreSummary {
    /// The resource version of the copy.
    version: String,
    /// The number of objects at this version.
    pub objects: u64,
    /// The sum of the hashes of all objects' names, UIDs and versions.
    pub digest: u64,
    /// For how many milliseconds nothing has confirmed that the store is current.
    age_milliseconds: u64,
}

impl PeerStoreSummary {
    /// Describes the store at `version`, which was confirmed to be current `age` ago.
    pub fn new(version: &ResourceVersion, (objects, digest): (u64, u64), age: Duration) -> Self {
        let age_milliseconds = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Self { version: version.to_string(), objects, digest, age_milliseconds }
    }

    /// Parses the header [`PEER_SUMMARY_HEADER`]; `None` if it is malformed.
    pub fn parse(header: &[u8]) -> Option<Self> {
        serde_json::from_slice(header).ok()
    }

    /// Returns the value of the header [`PEER_SUMMARY_HEADER`].
    pub fn header(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The resource version of the copy; `None` if the peer sent no number.
    pub fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::parse(&self.version).filter(|version| !version.is_opaque())
    }

    /// How long ago the store was confirmed to be current when the peer sent the headers.
    pub const fn age(&self) -> Duration {
        Duration::from_millis(self.age_milliseconds)
    }
}

/// Returns the path of the store of the informer with this key.
///
/// The path contains a SHA-256 hash of all fields of the key, so that only an informer with the
/// same identity, resource, scope, selectors, projection and namespace has this path. Another
/// release of kubewarm can hash a key differently. It then answers 404, and the replica lists
/// instead.
pub fn peer_store_path(key: &InformerKey) -> String {
    let hash = digest(&SHA256, format!("{STORED_FIELDS} {key:?}").as_bytes());
    let mut path = PEER_STORES.to_owned();
    for byte in hash.as_ref() {
        let _infallible = write!(path, "{byte:02x}");
    }
    path
}

/// Whether the path of a request is that of a store for another replica.
pub fn is_peer_store_path(path: &str) -> bool {
    path.starts_with(PEER_STORES)
}

/// Appends an event with a stored object. An event in JSON has no `apiVersion` and no `kind`, which
/// the reader would remove.
pub fn write_peer_event(event_type: EventType, object: ObjectBody<'_>, out: &mut Vec<u8>) {
    match object.encoding {
        ObjectEncoding::Json => {
            write_event(event_type, |out| out.extend_from_slice(object.bytes), out);
        }
        ObjectEncoding::Protobuf(message) => {
            write_message(event_type.as_str(), message, object.bytes, out);
        }
    }
}

/// Appends a bookmark to a stream of objects in `encoding`.
pub fn write_peer_bookmark(
    encoding: ObjectEncoding,
    version: &ResourceVersion,
    bookmark: BookmarkKind,
    out: &mut Vec<u8>,
) {
    match encoding {
        ObjectEncoding::Json => {
            let object = bookmark_object(version, bookmark);
            write_bookmark(|out| out.extend_from_slice(&object), out);
        }
        ObjectEncoding::Protobuf(message) => {
            let object = bookmark_message(&version.to_string(), bookmark);
            write_message("BOOKMARK", message, &object, out);
        }
    }
}

fn write_message(event_type: &str, message: MessageId, object: &[u8], out: &mut Vec<u8>) {
    // Every stored object was read as a kind, so its message has one.
    let (api_version, kind) = kind_of_message(message).unwrap_or_default();
    write_event_message(event_type, api_version, kind, object, ObjectPart::Full, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::{
        GroupResource, Identity, InformerScope, ManagedFieldsPolicy, Projection, Resource,
    };

    #[test]
    fn each_field_of_an_informers_key_changes_its_path() {
        let pods = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
        let full = Projection::Full(ManagedFieldsPolicy::Drop);
        let key = InformerKey::all(pods, InformerScope::AllNamespaces, full);
        let identity = Identity::ServiceAccount { namespace: "a".into(), name: "b".into() };
        let others = [
            InformerKey { identity, ..key.clone() },
            InformerKey { declared_in: Some("shop".into()), ..key.clone() },
            InformerKey { scope: InformerScope::Namespace("a".into()), ..key.clone() },
            InformerKey { projection: Projection::Full(ManagedFieldsPolicy::Keep), ..key.clone() },
        ];
        let path = peer_store_path(&key);
        assert!(is_peer_store_path(&path), "{path}");
        assert_eq!(path, peer_store_path(&key.clone()));
        for other in others {
            assert_ne!(peer_store_path(&other), path, "{other:?}");
        }
    }

    #[test]
    fn a_summary_survives_its_header_and_has_no_opaque_version() {
        let age = Duration::from_millis(1_500);
        let summary = PeerStoreSummary::new(&7.into(), (2, u64::MAX), age);
        let read = PeerStoreSummary::parse(summary.header().as_bytes()).unwrap();
        assert_eq!((read.version(), read.age()), (Some(7.into()), age));
        assert_eq!(read, summary);
        let opaque = ResourceVersion::parse("x").unwrap();
        assert_eq!(PeerStoreSummary::new(&opaque, (0, 0), age).version(), None);
        assert_eq!(PeerStoreSummary::parse(b"{}"), None);
    }
}
