//! Cells and objects for the tests of this layer.

use crate::model::{
    CellKey, Delta, Extent, GroupResource, Item, ManagedFields, Projection, Resource,
    ResourceVersion, Tombstone, Uid,
};

/// All objects of a kind of the core group.
pub(super) fn cell(resource: &str) -> CellKey {
    CellKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        Extent::AllNamespaces,
        Projection::Full(ManagedFields::Drop),
    )
}

/// `metadata.uid` number `n`.
pub(super) fn uid(n: u8) -> Uid {
    Uid::from([n; 16])
}

/// A body with these labels, and with `rest` behind the metadata.
pub(super) fn body(labels: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"labels":{labels}}}{rest}}}"#)
}

/// An upsert of `<namespace>/<name>`.
pub(super) fn upsert<'a>(key: &'a str, id: u8, version: &str, body: &'a str) -> Delta<'a> {
    let (namespace, name) = key.split_once('/').unwrap();
    Delta::Upsert(Item {
        namespace: namespace.into(),
        name: name.into(),
        uid: uid(id),
        version: ResourceVersion::parse(version),
        body: body.as_bytes(),
    })
}

/// The removal of `<namespace>/<name>`.
pub(super) fn remove<'a>(key: &'a str, version: &str) -> Delta<'a> {
    let (namespace, name) = key.split_once('/').unwrap();
    Delta::Remove(Tombstone {
        namespace: namespace.into(),
        name: name.into(),
        version: ResourceVersion::parse(version),
    })
}

/// A version.
pub(super) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::parse(text).unwrap()
}
