//! Reads the name of an object that can be malformed, cut off or deleted.

use crate::{json::JsonCursor, protobuf::ObjectNames};
use kubewarm_api::model::{ResourceVersion, Tombstone};
use std::borrow::Cow;

/// Reads the name and the resource version of a deleted object, and ignores errors in its other
/// fields: a deletion needs only the name. Returns `None` if the name cannot be read.
pub(super) fn tombstone(json: &[u8]) -> Option<Tombstone<'static>> {
    let metadata = metadata(json)?;
    let name = text(metadata, "name").filter(|name| !name.is_empty())?;
    Some(Tombstone {
        namespace: text(metadata, "namespace").unwrap_or_default().into(),
        name: name.into(),
        version: text(metadata, "resourceVersion").as_deref().and_then(ResourceVersion::parse),
    })
}

/// Maximum length of a Kubernetes name, in bytes. kubewarm does not report a longer name, which
/// could flood logs and statuses.
const MAX_NAME: usize = 253;

/// Reads `namespace/name` of an object that can be malformed or cut off after its metadata. `None`
/// if the name cannot be read.
pub(super) fn peek_name(json: &[u8]) -> Option<String> {
    let metadata = metadata(json)?;
    let namespace = text(metadata, "namespace").unwrap_or_default();
    qualified_name(text(metadata, "name")?, &namespace)
}

/// Reads `namespace/name` of an object in protobuf that can be malformed or cut off after its
/// metadata. `None` if the name cannot be read.
pub(super) fn peek_protobuf_name(object: &[u8]) -> Option<String> {
    let ObjectNames { name, namespace, .. } = ObjectNames::of_start(object);
    qualified_name(name.to_owned(), namespace)
}

fn qualified_name(name: String, namespace: &str) -> Option<String> {
    if name.is_empty() || name.len() > MAX_NAME || namespace.len() > MAX_NAME {
        return None;
    }
    Some(if namespace.is_empty() { name } else { format!("{namespace}/{name}") })
}

fn metadata(json: &[u8]) -> Option<JsonCursor<'_>> {
    let mut at = JsonCursor::new(json);
    at.seek("metadata")?.then_some(at)
}

fn text(mut metadata: JsonCursor<'_>, field: &str) -> Option<String> {
    metadata.seek(field)?.then(|| metadata.text())?.map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_needs_only_a_name() {
        let json =
            br#"{"kind":"X","metadata":{"name":"a","resourceVersion":"9","labels":7},"spec":tru"#;
        let stone = tombstone(json).unwrap();
        assert_eq!((stone.name.as_ref(), stone.version), ("a", ResourceVersion::parse("9")));
        assert!(tombstone(b"{\"metadata\":").is_none());
    }
}
