//! Digests with which kubewarm compares a list with a store. Two digests match if list and store
//! contain the same objects with the same UIDs and versions.

use super::{list_watch_client::ListWatchClient, request, request_builder::ListPaging};
use crate::store::StoreReader;
use kubewarm_api::model::{FaultReason, ObjectIdentity, RequestFault, ResourceVersion};
use kubewarm_wire::upstream::{
    ListMetadata, MAX_OBJECT, ObjectMetadata, PartialMetadata, SplitItem,
};
use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState},
    time::Duration,
};
use tokio::time::Instant;

/// The digest of a set of objects: the number of objects and the sum of their hashes. The order of
/// the objects has no effect.
///
/// Two digests can be compared only if both have the same hash keys. Each comparison with a list
/// uses new random keys. Different sets match with a probability of 2^-64; equal sets always match.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSetDigest<K = RandomState> {
    keys: K,
    objects: u64,
    sum: u64,
}

/// Hash keys that are equal in all replicas of one build. Nobody gains from equal hashes here: the
/// digest protects a copied store from faults, and the replica that sends it is trusted.
pub(crate) type FixedKeys = BuildHasherDefault<DefaultHasher>;

impl ObjectSetDigest {
    pub(crate) fn new() -> Self {
        Self { keys: RandomState::new(), objects: 0, sum: 0 }
    }
}

impl ObjectSetDigest<FixedKeys> {
    /// An empty digest that another replica can compare with its own.
    pub(crate) fn with_fixed_keys() -> Self {
        Self { keys: FixedKeys::default(), objects: 0, sum: 0 }
    }

    /// The number of objects, and the sum of their hashes.
    pub(crate) const fn parts(&self) -> (u64, u64) {
        (self.objects, self.sum)
    }
}

impl<K: BuildHasher + Clone> ObjectSetDigest<K> {
    /// Creates an empty digest with the hash keys of `self`, so that the two digests can be
    /// compared.
    pub(crate) fn empty(&self) -> Self {
        Self { keys: self.keys.clone(), objects: 0, sum: 0 }
    }

    /// Returns the digest of `store`, with the hash keys of `self`, and the store's version. Holds
    /// the store's read lock for 0.2 µs per object.
    pub(crate) fn of_store(&self, store: &StoreReader) -> (Self, Option<ResourceVersion>) {
        let mut digest = self.empty();
        let version = store.visit(|identity| digest.add(&identity));
        (digest, version)
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    pub(crate) fn matches(&self, other: &Self) -> bool {
        (self.objects, self.sum) == (other.objects, other.sum)
    }

    pub(crate) fn add(&mut self, identity: &ObjectIdentity<'_>) {
        self.objects += 1;
        self.sum = self.sum.wrapping_add(self.keys.hash_one(identity));
    }

    fn add_json(&mut self, json: &[u8]) -> Result<(), RequestFault> {
        let read = serde_json::from_slice::<PartialMetadata<ObjectMetadata<'_>>>(json).ok();
        let item = read.filter(|object| !object.metadata.name.is_empty());
        let PartialMetadata { metadata } = item.ok_or_else(|| {
            RequestFault::new(FaultReason::Malformed, "an object of the list has no name")
        })?;
        self.add(&metadata.named());
        Ok(())
    }

    /// Requests the metadata of the objects in `part`, which is a whole list or one page of a list.
    /// Adds each object to the digest, and holds one object in memory at a time.
    ///
    /// `at` is the exact resource version to list, or `None` for a consistent read.
    ///
    /// # Errors
    ///
    /// - The errors of [`request::open`].
    /// - [`FaultReason::Malformed`] for an incomplete list.
    /// - [`FaultReason::TooLarge`] if the metadata of one object exceeds 16 MiB.
    /// - [`FaultReason::TimedOut`] if the response does not end within `within`.
    pub(crate) async fn add_page(
        &mut self,
        list_watch: &ListWatchClient,
        at: Option<&ResourceVersion>,
        part: ListPaging<'_>,
        within: Duration,
    ) -> Result<ListMetadata, RequestFault> {
        let until = Instant::now() + within;
        let chunks = list_watch.open(within, |endpoint| endpoint.names(at, part)).await?;
        request::items(chunks, until, |_, item| match item {
            SplitItem::Whole(json) => self.add_json(json),
            SplitItem::Oversized(_) => {
                let message = format!("metadata of more than {} MiB", MAX_OBJECT >> 20);
                Err(RequestFault::new(FaultReason::TooLarge, message))
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &ObjectSetDigest, objects: &[(&str, &str, &str, &str)]) -> ObjectSetDigest {
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
    fn digests_differ_for_different_objects_but_not_for_a_different_order() {
        let keys = ObjectSetDigest::new();
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
            // `base[0]` has namespace `a` and name `x`. The replacement has no namespace and the
            // name `ax`. A digest of the concatenated fields would be equal, but the sets differ.
            &[("", "ax", "u1", "3"), base[1]],
        ] {
            assert!(!digest.matches(&of(&keys, other)), "{other:?}");
        }
    }
}
