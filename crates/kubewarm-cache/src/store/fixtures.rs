//! Helpers for the tests of the store: they build informer keys and deltas, and read a store.

use super::{BodyPredicate, ObjectQuery, StoreReader, StoredObject};
use kubewarm_api::model::{
    DecodedObject, Delta, FieldPath, GroupResource, InformerKey, InformerScope, LabelSelector,
    ManagedFieldsPolicy, ObjectKey, Projection, Resource, ResourceVersion, Tombstone, Uid,
};
use std::ops::ControlFlow;

/// Returns the key of an informer that reads all objects of a core resource, in all namespaces.
pub(super) fn informer_key(resource: &str) -> InformerKey {
    InformerKey::all(
        Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
        InformerScope::AllNamespaces,
        Projection::Full(ManagedFieldsPolicy::Drop),
    )
}

/// Returns a UID in which all 16 bytes are `n`.
pub(super) fn uid(n: u8) -> Uid {
    Uid::from([n; 16])
}

/// Returns an object as JSON with these labels. `rest` is inserted after `metadata`, and begins
/// with a comma.
pub(super) fn body(labels: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"labels":{labels}}}{rest}}}"#)
}

/// Returns an upsert of the object with the key `<namespace>/<name>`. `id` fills the 16 bytes of
/// the UID.
pub(super) fn upsert<'a>(key: &'a str, id: u8, version: &str, body: &'a str) -> Delta<'a> {
    let (namespace, name) = key.split_once('/').unwrap();
    Delta::Upsert(DecodedObject {
        namespace: namespace.into(),
        name: name.into(),
        uid: uid(id),
        version: ResourceVersion::parse(version),
        body: body.as_bytes(),
    })
}

pub(super) fn remove<'a>(key: &'a str, version: &str) -> Delta<'a> {
    let (namespace, name) = key.split_once('/').unwrap();
    Delta::Remove(Tombstone {
        namespace: namespace.into(),
        name: name.into(),
        version: ResourceVersion::parse(version),
    })
}

pub(super) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::parse(text).unwrap()
}

pub(super) fn keys(reader: &StoreReader) -> Vec<ObjectKey> {
    reader.versions(None, usize::MAX).into_iter().map(|(key, _)| key).collect()
}

/// Returns the objects that `query` selects, in key order. The caller must not write to the store
/// during the call.
pub(super) fn selected(reader: &StoreReader, query: &ObjectQuery) -> Vec<StoredObject> {
    let mut selected = reader.select(query, None, None);
    while selected.filter_next() {}
    let mut keys = Vec::new();
    selected.visit_next(|object| {
        let name = String::from_utf8_lossy(object.name).into();
        keys.push(ObjectKey { namespace: object.namespace.into(), name });
        ControlFlow::Continue(())
    });
    keys.iter().filter_map(|key| reader.get(key)).collect()
}

pub(super) fn all(reader: &StoreReader) -> Vec<StoredObject> {
    selected(reader, &ObjectQuery::default())
}

pub(super) fn labelled(reader: &StoreReader, labels: LabelSelector) -> Vec<StoredObject> {
    selected(reader, &ObjectQuery { labels, ..ObjectQuery::default() })
}

pub(super) fn field_query(path: &FieldPath, value: &str) -> ObjectQuery {
    let (path, value) = (path.clone(), value.into());
    let test = BodyPredicate::Field { path, absent: "".into(), is_equality: true, value };
    ObjectQuery { tests: [test].into_iter().collect(), ..ObjectQuery::default() }
}

pub(super) fn with_field(reader: &StoreReader, path: &FieldPath, value: &str) -> Vec<StoredObject> {
    selected(reader, &field_query(path, value))
}

pub(super) fn is_indexed(reader: &StoreReader, path: &FieldPath) -> bool {
    let contents = reader.store.contents.read();
    contents.declared.iter().any(|index| index.path == *path && index.is_complete)
}
