//! Reads the name of an object that may be broken, cut off, or gone.

use super::{Stage, decode::Rejected};
use kubewarm_api::model::{ResourceVersion, Tombstone};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::{borrow::Cow, fmt};

/// Reads the name and version of a deleted object; whatever else is wrong with it does not matter.
///
/// # Errors
///
/// [`Rejected`] if not even the name can be read.
pub(super) fn tombstone(json: &[u8]) -> Result<Tombstone<'static>, Rejected> {
    let peeked = peek(json);
    match peeked.name {
        Some(name) if !name.is_empty() => Ok(Tombstone {
            namespace: peeked.namespace.unwrap_or_default().into(),
            name: name.into(),
            version: peeked.version.as_deref().and_then(ResourceVersion::parse),
        }),
        _ => Err(Rejected {
            problem: "the deletion names no object".to_owned(),
            name: None,
            stage: Stage::WatchObject,
        }),
    }
}

/// No name of Kubernetes is longer; one that is would fill logs and statuses.
const MAX_NAME: usize = 253;

/// Namespace and name of an object that may be cut off or broken further behind.
pub(super) fn peek_name(json: &[u8]) -> Option<(String, String)> {
    let peeked = peek(json);
    let name = peeked.name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME)?;
    let namespace = peeked.namespace.unwrap_or_default();
    (namespace.len() <= MAX_NAME).then_some((namespace, name))
}

/// What could be read of an object before its first fault.
#[derive(Default)]
struct Peeked {
    namespace: Option<String>,
    name: Option<String>,
    version: Option<String>,
}

fn peek(json: &[u8]) -> Peeked {
    let mut peeked = Peeked::default();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // The fault that ends the reading is expected: what was read before it has been noted.
    let _fault = Peek { into: &mut peeked, level: Level::Object }.deserialize(&mut deserializer);
    peeked
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

struct Peek<'a> {
    into: &'a mut Peeked,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Peek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Peek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (self.level, &*key) {
                (Level::Object, "metadata") => {
                    map.next_value_seed(Peek { into: self.into, level: Level::Metadata })?;
                }
                (Level::Metadata, "name") => self.into.name = Some(map.next_value()?),
                (Level::Metadata, "namespace") => self.into.namespace = Some(map.next_value()?),
                (Level::Metadata, "resourceVersion") => self.into.version = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
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
        assert!(tombstone(b"{\"metadata\":").is_err());
    }
}
