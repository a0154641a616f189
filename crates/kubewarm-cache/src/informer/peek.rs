//! Reads the name of an object that may be broken, cut off, or gone.

use kubewarm_api::model::{ResourceVersion, Tombstone};
use kubewarm_wire::json::Cursor;
use std::borrow::Cow;

/// Reads the name and version of a deleted object, whatever else is wrong with it; `None` if the name cannot be read.
pub(super) fn tombstone(json: &[u8]) -> Option<Tombstone<'static>> {
    let metadata = metadata(json)?;
    let name = text(metadata, "name").filter(|name| !name.is_empty())?;
    Some(Tombstone {
        namespace: text(metadata, "namespace").unwrap_or_default().into(),
        name: name.into(),
        version: text(metadata, "resourceVersion").as_deref().and_then(ResourceVersion::parse),
    })
}

/// No name of Kubernetes is longer; one that is would fill logs and statuses.
const MAX_NAME: usize = 253;

/// `namespace/name` of an object that may be cut off or broken further behind; `None` if the name cannot be read.
pub(super) fn peek_name(json: &[u8]) -> Option<String> {
    let metadata = metadata(json)?;
    let name = text(metadata, "name").filter(|it| !it.is_empty() && it.len() <= MAX_NAME)?;
    let namespace = text(metadata, "namespace").unwrap_or_default();
    if namespace.is_empty() {
        return Some(name);
    }
    (namespace.len() <= MAX_NAME).then(|| format!("{namespace}/{name}"))
}

/// Where the metadata of an object begin.
fn metadata(json: &[u8]) -> Option<Cursor<'_>> {
    let mut at = Cursor::new(json);
    at.seek("metadata")?.then_some(at)
}

/// A field of the metadata, if the text is JSON as far as there.
fn text(mut metadata: Cursor<'_>, field: &str) -> Option<String> {
    metadata.seek(field)?.then(|| metadata.text())?.map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_needs_no_more_than_a_name() {
        let json =
            br#"{"kind":"X","metadata":{"name":"a","resourceVersion":"9","labels":7},"spec":tru"#;
        let stone = tombstone(json).unwrap();
        assert_eq!((stone.name.as_ref(), stone.version), ("a", ResourceVersion::parse("9")));
        assert!(tombstone(b"{\"metadata\":").is_none());
    }
}
