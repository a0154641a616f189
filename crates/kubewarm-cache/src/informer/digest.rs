//! What a list or a table names, in a few bytes: equal where both name the same objects, of the same UIDs,
//! in the same versions.

use super::{
    endpoint::Part,
    list_watch::ListWatch,
    metadata::{ListMeta, MetadataOnly, ObjectMeta},
    split::{MAX_OBJECT, Piece},
    upstream,
};
use crate::store::Reader;
use kubewarm_api::model::{Fault, Named, Reason, ResourceVersion};
use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};
use tokio::time::Instant;

/// Counts objects and adds up their hashes, in any order. The hash is keyed anew for each comparison: two that
/// differ are taken for equal once in 2^64 times, and two that are equal never for different.
#[derive(Clone, Debug)]
pub(super) struct NameDigest {
    keys: RandomState,
    objects: u64,
    sum: u64,
}

impl NameDigest {
    /// Of nothing, yet.
    pub(super) fn new() -> Self {
        Self { keys: RandomState::new(), objects: 0, sum: 0 }
    }

    /// Of nothing, comparable with this one.
    pub(super) fn empty(&self) -> Self {
        Self { keys: self.keys.clone(), objects: 0, sum: 0 }
    }

    /// Of a table, comparable with this one; and as of which version that is. Cost: 0.2 µs an object, under
    /// the table's lock.
    pub(super) fn of_table(&self, table: &Reader) -> (Self, Option<ResourceVersion>) {
        let mut digest = self.empty();
        let version = table.visit(|named| digest.add(&named));
        (digest, version)
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Whether both name the same; to be asked of two of the same keys.
    pub(super) fn matches(&self, other: &Self) -> bool {
        (self.objects, self.sum) == (other.objects, other.sum)
    }

    fn add(&mut self, named: &Named<'_>) {
        self.objects += 1;
        self.sum = self.sum.wrapping_add(self.keys.hash_one(named));
    }

    fn add_json(&mut self, json: &[u8]) -> Result<(), Fault> {
        let read = serde_json::from_slice::<MetadataOnly<ObjectMeta<'_>>>(json).ok();
        let named = read.filter(|object| !object.metadata.name.is_empty());
        let MetadataOnly { metadata } = named
            .ok_or_else(|| Fault::new(Reason::Malformed, "an object of the list has no name"))?;
        self.add(&metadata.named());
        Ok(())
    }

    /// Adds what a part of the list names, as of the version `at`, or of now. Holds one object at a time.
    ///
    /// # Errors
    ///
    /// As [`upstream::open`]; [`Reason::Malformed`] for what is no whole list, [`Reason::TimedOut`] if it has
    /// not ended `within` that time.
    pub(super) async fn add_page(
        &mut self,
        of: &ListWatch,
        at: Option<&ResourceVersion>,
        part: Part<'_>,
        within: Duration,
    ) -> Result<ListMeta, Fault> {
        let until = Instant::now() + within;
        let chunks = of.open(within, |endpoint| endpoint.names(at, part)).await?;
        upstream::items(chunks, until, |piece| match piece {
            Piece::Whole(json) => self.add_json(json),
            Piece::Oversized(_) => {
                let message = format!("metadata of more than {} MiB", MAX_OBJECT >> 20);
                Err(Fault::new(Reason::TooLarge, message))
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &NameDigest, objects: &[(&str, &str, &str, &str)]) -> NameDigest {
        let mut digest = keys.empty();
        for (namespace, name, uid, version) in objects {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
            );
            digest.add_json(json.as_bytes()).unwrap();
        }
        digest
    }

    #[test]
    fn whatever_differs_is_seen_and_the_order_is_not() {
        let keys = NameDigest::new();
        let base = [("a", "x", "u1", "3"), ("b", "y", "u2", "4")];
        let digest = of(&keys, &base);
        assert!(digest.matches(&of(&keys, &[base[1], base[0]])));
        for other in [
            &base[..1],
            &[base[0], base[0]],
            &[base[0], ("b", "y", "u2", "5")],
            &[base[0], ("b", "y", "u3", "4")],
            &[base[0], ("b", "z", "u2", "4")],
            &[base[0], ("c", "y", "u2", "4")],
            // The same letters, cut elsewhere.
            &[("", "ax", "u1", "3"), base[1]],
        ] {
            assert!(!digest.matches(&of(&keys, other)), "{other:?}");
        }
    }
}
