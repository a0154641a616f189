//! Keeps resource versions for a minute: of forwarded writes, so that later reads wait until a store reaches them, and
//! of reads, so that a caller's later reads are not older.

use kubewarm_api::model::{GroupResource, Resource, ResourceVersion};
use kubewarm_client::{CacheEntry, ExpiringCache};
use kubewarm_wire::WriteTarget;
use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The maximum number of versions of writes, about 200 bytes each. Above this number, kubewarm drops the least recently
/// used version. The stores have normally reached that version already.
const MOST_WRITTEN: u64 = 1_024;
/// The maximum number of versions of reads, about 200 bytes each: enough for 1,000 users who each read 16 kinds.
const MOST_SEEN: u64 = 16_384;
/// How long kubewarm keeps a resource version. A store that has not reached the version after this time is stale, so
/// kubewarm rejects reads from the store anyway. After an etcd restore, resource versions restart at lower numbers, so
/// no store reaches the version of an earlier write. Reads then need a freshness check, until `LIFE` has passed.
const LIFE: Duration = Duration::from_mins(1);

/// A resource, and a namespace or all namespaces (`None`).
type VersionScope = (GroupResource, Option<Arc<str>>);

/// The newest resource version that a forwarded write returned, by resource and namespace, or for all namespaces
/// (`None`). Versions of one resource are ordered, so a store that has reached this version contains all earlier
/// writes.
#[derive(Debug)]
pub(super) struct WrittenVersions(ExpiringCache<VersionScope, WrittenVersion>);

/// The newest version of recent writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenVersion {
    pub(super) version: ResourceVersion,
    /// A store that is current as of a later time contains the writes, also if it never reaches `version`: an etcd
    /// restore undoes writes and lowers the versions.
    pub(super) at: Instant,
}

impl WrittenVersions {
    pub(super) fn new() -> Self {
        Self(ExpiringCache::new(MOST_WRITTEN, LIFE))
    }

    /// Records the resource version that the API server returned for a write.
    pub(super) fn record(&self, written: WriteTarget, version: &ResourceVersion, now: Instant) {
        // An opaque resource version has no order, so kubewarm could not detect that a store has reached it.
        if version.is_opaque() {
            return;
        }
        let WriteTarget { resource, namespace } = written;
        for scope in scopes(&resource, namespace.as_ref()) {
            self.0.update(scope, |held| {
                let written = WrittenVersion { version: version.clone(), at: now };
                match held {
                    // The responses to two writes can arrive in another order than the writes.
                    Some(held) if !held.value.version.is_older_than(version) => CacheEntry {
                        value: WrittenVersion { version: held.value.version, ..written },
                        requested_at: held.requested_at,
                    },
                    Some(_) | None => CacheEntry { value: written, requested_at: now },
                }
            });
        }
    }

    /// The resource version that a store must reach to answer a read without `resourceVersion`. `None` if there is
    /// no recent write.
    pub(super) fn min_version(
        &self,
        resource: &Resource,
        namespace: Option<&Arc<str>>,
    ) -> Option<WrittenVersion> {
        let key = (resource.group_resource().clone(), namespace.cloned());
        self.0.get(&key).map(|entry| entry.value)
    }
}

/// What each caller has read, by resource and namespace. Reads of one namespace do not count for another namespace,
/// because the stores of two namespaces advance independently. Reads of one namespace count for reads of all namespaces.
#[derive(Debug)]
pub(super) struct SeenReads {
    reads: ExpiringCache<(CallerHash, VersionScope), SeenRead>,
    hasher: RandomState,
}

/// The newest state that a caller has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenRead {
    /// `None` if the API server answered: its version is not known here, and newer than any store's.
    pub(super) version: Option<ResourceVersion>,
    /// A store that is current as of a later time is not older than what the caller has read.
    pub(super) at: Instant,
}

/// A hash of the caller, with a random key. If two callers have the same hash, their reads wait for each other's
/// versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallerHash(u64);

impl SeenReads {
    pub(super) fn new() -> Self {
        Self { reads: ExpiringCache::new(MOST_SEEN, LIFE), hasher: RandomState::new() }
    }

    pub(super) fn hash(&self, caller: &impl Hash) -> CallerHash {
        CallerHash(self.hasher.hash_one(caller))
    }

    /// Records the resource version of a store from which the caller has read now. `None` if the API server answers
    /// the read.
    pub(super) fn record(
        &self,
        caller: CallerHash,
        (resource, namespace): (&GroupResource, Option<&Arc<str>>),
        version: Option<&ResourceVersion>,
    ) {
        if version.is_some_and(ResourceVersion::is_opaque) {
            return;
        }
        let at = Instant::now();
        for scope in scopes(resource, namespace) {
            let read = SeenRead { version: version.cloned(), at };
            self.reads.insert_if((caller, scope), read, at, |held| {
                let versions = held.version.as_ref().zip(version);
                versions.is_none_or(|(held, version)| !version.is_older_than(held))
            });
        }
    }

    /// The newest state that the caller has read in the last minute.
    pub(super) fn newest(
        &self,
        caller: CallerHash,
        (resource, namespace): (&GroupResource, Option<&Arc<str>>),
    ) -> Option<SeenRead> {
        let key = (caller, (resource.clone(), namespace.cloned()));
        self.reads.get(&key).map(|entry| entry.value)
    }
}

/// The scopes that a read or write of `namespace` concerns: this namespace, and all namespaces.
fn scopes(
    resource: &GroupResource,
    namespace: Option<&Arc<str>>,
) -> impl Iterator<Item = VersionScope> {
    let all = (resource.clone(), None);
    let own = namespace.map(|namespace| (resource.clone(), Some(Arc::clone(namespace))));
    [all].into_iter().chain(own)
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse_request, *};
    use tokio::time::advance;

    fn record(written_versions: &WrittenVersions, namespace: &str, version: &ResourceVersion) {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        let written = WriteTarget { resource: GroupResource::new("", "pods").unwrap(), namespace };
        written_versions.record(written, version, Instant::now());
    }

    fn min_version(written_versions: &WrittenVersions, path: &str) -> Option<String> {
        let request = parse_request(path, "").0;
        let version = written_versions.min_version(&request.resource, request.namespace.as_ref());
        version.map(|written| written.version.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_recent_writes_in_its_namespace() {
        let written_versions = WrittenVersions::new();
        assert_eq!(min_version(&written_versions, "/api/v1/pods"), None);
        for (namespace, version) in [("a", 7), ("b", 9), ("a", 8), ("a", 3)] {
            record(&written_versions, namespace, &version.into());
        }
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods", Some("8")),
            ("/api/v1/namespaces/a/pods/p", Some("8")),
            ("/api/v1/namespaces/b/pods", Some("9")),
            ("/api/v1/namespaces/c/pods", None),
            ("/api/v1/pods", Some("9")),
            ("/api/v1/namespaces/a/services", None),
            ("/apis/metrics.k8s.io/v1/namespaces/a/pods", None),
        ] {
            assert_eq!(min_version(&written_versions, path).as_deref(), expected, "{path}");
        }
        advance(LIFE).await;
        assert_eq!(min_version(&written_versions, "/api/v1/pods"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn opaque_and_expired_versions_do_not_delay_reads() {
        let written_versions = WrittenVersions::new();
        let path = "/api/v1/namespaces/a/pods";
        record(&written_versions, "a", &ResourceVersion::parse("abc").unwrap());
        assert_eq!(min_version(&written_versions, path), None, "opaque versions are not recorded");
        record(&written_versions, "a", &9.into());
        // When `LIFE` has passed, a write with a lower resource version, as after an etcd restore, replaces the
        // earlier one.
        advance(LIFE).await;
        record(&written_versions, "a", &3.into());
        assert_eq!(min_version(&written_versions, path).as_deref(), Some("3"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_versions_is_bounded_and_the_newest_are_kept() {
        let written_versions = WrittenVersions::new();
        for n in 0..3 * MOST_WRITTEN {
            record(&written_versions, &format!("n{n}"), &(n + 1).into());
        }
        assert_eq!(min_version(&written_versions, "/api/v1/namespaces/n0/pods"), None);
        let last = 3 * MOST_WRITTEN - 1;
        let path = format!("/api/v1/namespaces/n{last}/pods");
        assert_eq!(min_version(&written_versions, &path), Some((last + 1).to_string()));
        assert_eq!(min_version(&written_versions, "/api/v1/pods"), Some((last + 1).to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_has_a_version_of_each_namespace_and_of_all_namespaces_for_a_minute() {
        let seen = SeenReads::new();
        let (one, other) = (seen.hash(&"one"), seen.hash(&"other"));
        let pods = GroupResource::new("", "pods").unwrap();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let record = |namespace: Option<&Arc<str>>, version: Option<u64>| {
            seen.record(one, (&pods, namespace), version.map(ResourceVersion::from).as_ref());
        };
        let newest = |caller, namespace: Option<&Arc<str>>| {
            let read = seen.newest(caller, (&pods, namespace))?;
            Some(read.version.map(|version| version.to_string()))
        };
        let version = |number: &str| Some(Some(number.to_owned()));
        for (namespace, version) in [(&a, 7), (&b, 9), (&a, 8), (&a, 3)] {
            record(Some(namespace), Some(version));
        }
        record(None, Some(12));
        assert_eq!(newest(one, Some(&a)), version("8"));
        assert_eq!(newest(one, Some(&b)), version("9"));
        assert_eq!(newest(one, None), version("12"));
        assert_eq!(newest(other, None), None);
        let half = LIFE / 2;
        advance(half).await;
        record(Some(&a), Some(8));
        advance(half).await;
        assert_eq!(newest(one, Some(&a)), version("8"), "read again in the last minute");
        assert_eq!(newest(one, Some(&b)), None);
        record(Some(&a), None);
        assert_eq!(newest(one, Some(&a)), Some(None), "the API server answered");
    }
}
