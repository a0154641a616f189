//! Keeps resource versions for a minute: of forwarded writes, so that later reads wait until a
//! store contains the writes, and of reads, so that a caller's later reads are not older.

use kubewarm_api::model::{GroupResource, Resource, ResourceVersion};
use kubewarm_client::{CacheEntry, ExpiringCache};
use kubewarm_wire::WriteTarget;
use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The maximum number of resources and namespaces with recent writes, at most 400 bytes each. Above
/// this number, kubewarm drops the least recently used entry, because the stores have normally
/// reached its version already.
const MOST_WRITTEN: u64 = 1_024;
/// The maximum number of versions of reads, about 200 bytes each: enough for 1,000 users who each
/// read 16 kinds.
const MOST_SEEN: u64 = 16_384;
/// How long kubewarm keeps a resource version. A store that has not reached the version after this
/// time is stale, so kubewarm rejects reads from the store anyway. After an etcd restore, resource
/// versions restart at lower numbers, and no store reaches the version of an earlier write. So
/// reads need a freshness check until this version expires.
const LIFE: Duration = Duration::from_mins(1);
/// The maximum number of writes to one resource and namespace that kubewarm keeps. It keeps one
/// write, unless a write returned a lower version than an earlier write: after an etcd restore, or
/// if responses overtake each other.
const MOST_DESCENDING: usize = 4;

/// A resource, and a namespace or all namespaces (`None`).
type VersionScope = (GroupResource, Option<Arc<str>>);

/// The newest resource version that a forwarded write returned, by resource and namespace, and for
/// all namespaces together (`None`). Versions of one resource are ordered, so a store that has
/// reached this version contains all earlier writes.
#[derive(Debug)]
pub(super) struct WrittenVersions(ExpiringCache<VersionScope, RecentWrites>);

/// The writes to one resource and namespace whose versions are higher than the versions of all
/// later writes, the earliest write first. So when a version that an etcd restore has undone
/// expires, the writes after the restore remain.
#[derive(Clone, Debug, Default)]
struct RecentWrites(Vec<WrittenVersion>);

/// The newest version of the recent writes to one resource and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenVersion {
    pub(super) version: ResourceVersion,
    /// The time of the last write. A store that is confirmed to be current as of a later time
    /// contains the writes, also if it never reaches `version`: an etcd restore undoes writes and
    /// lowers the versions.
    pub(super) at: Instant,
}

impl WrittenVersions {
    pub(super) fn new() -> Self {
        Self(ExpiringCache::new(MOST_WRITTEN, LIFE))
    }

    /// Records the resource version that the API server returned for a write.
    pub(super) fn record(&self, written: WriteTarget, version: &ResourceVersion, now: Instant) {
        // An opaque resource version has no order, so kubewarm could not detect that a store has
        // reached it.
        if version.is_opaque() {
            return;
        }
        let WriteTarget { resource, namespace } = written;
        for scope in scopes(&resource, namespace.as_ref()) {
            self.0.update(scope, |known| {
                let mut writes = known.map(|known| known.value).unwrap_or_default();
                writes.add(version, now);
                CacheEntry { value: writes, requested_at: now }
            });
        }
    }

    /// The resource version that a store must reach to answer a read without `resourceVersion`.
    /// `None` if there is no recent write.
    pub(super) fn min_version(
        &self,
        resource: &Resource,
        namespace: Option<&Arc<str>>,
    ) -> Option<WrittenVersion> {
        let key = (resource.group_resource().clone(), namespace.cloned());
        self.0.get(&key)?.value.newest()
    }
}

impl RecentWrites {
    fn add(&mut self, version: &ResourceVersion, now: Instant) {
        let Self(writes) = self;
        writes.retain(|write| write.is_recent() && version.is_older_than(&write.version));
        let is_full = writes.len() >= MOST_DESCENDING;
        match writes.last_mut() {
            // `retain` has left only entries with versions higher than that of this write: the
            // responses of two writes can arrive in the opposite order. The list is full, so this
            // write only extends the time of the last entry. A store with that entry's version
            // contains this write too.
            Some(last) if is_full => last.at = now,
            _ => writes.push(WrittenVersion { version: version.clone(), at: now }),
        }
    }

    /// The highest version that has not expired, and the time of the last write.
    fn newest(&self) -> Option<WrittenVersion> {
        let Self(writes) = self;
        let newest = writes.iter().find(|write| write.is_recent())?;
        Some(WrittenVersion { version: newest.version.clone(), at: writes.last()?.at })
    }
}

impl WrittenVersion {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < LIFE
    }
}

/// What each caller has read, by resource and namespace, so that the caller's later reads are not
/// older. A read of one namespace counts for later reads of this namespace and of all namespaces,
/// but not of another namespace: the stores of two namespaces advance independently.
#[derive(Debug)]
pub(super) struct SeenReads {
    reads: ExpiringCache<(CallerHash, VersionScope), SeenRead>,
    hasher: RandomState,
}

/// The newest state that a caller has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenRead {
    /// `None` if the API server answered: kubewarm does not know the version of its response, which
    /// can be newer than each store. Only a store that is confirmed to be current as of a time
    /// after the read is new enough then.
    pub(super) version: Option<ResourceVersion>,
    /// The time of the read. A store that is confirmed to be current as of a later time is not
    /// older than what the caller has read.
    pub(super) at: Instant,
}

/// A hash of the caller, which needs less memory than the caller's name. The hash has a random key,
/// so that nobody can choose a name with the hash of another caller.
///
/// If two callers nevertheless have the same hash, the reads of each also wait until a store has
/// reached the version that the other has seen. Such a read can be slower, but never older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallerHash(u64);

impl SeenReads {
    pub(super) fn new() -> Self {
        Self { reads: ExpiringCache::new(MOST_SEEN, LIFE), hasher: RandomState::new() }
    }

    pub(super) fn hash(&self, caller: &impl Hash) -> CallerHash {
        CallerHash(self.hasher.hash_one(caller))
    }

    /// Records that the caller has read now. `version` is the resource version of the store that
    /// answers, or `None` if the API server answers.
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
            self.reads.insert_if((caller, scope), read, at, |known| {
                let versions = known.version.as_ref().zip(version);
                versions.is_none_or(|(known, version)| !version.is_older_than(known))
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
    let namespaced = namespace.map(|namespace| (resource.clone(), Some(Arc::clone(namespace))));
    [all].into_iter().chain(namespaced)
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
    async fn a_write_whose_response_overtakes_another_is_the_last_write() {
        let written_versions = WrittenVersions::new();
        record(&written_versions, "a", &9.into());
        advance(LIFE / 2).await;
        record(&written_versions, "a", &8.into());
        let pods = parse_request("/api/v1/namespaces/a/pods", "").0;
        let read = || written_versions.min_version(&pods.resource, pods.namespace.as_ref());
        let at = Instant::now();
        assert_eq!(read(), Some(WrittenVersion { version: 9.into(), at }));
        advance(LIFE / 2).await;
        let later = Some(WrittenVersion { version: 8.into(), at });
        assert_eq!(read(), later, "a version that a restore has undone must not stay");
        advance(LIFE / 2).await;
        assert_eq!(read(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_after_a_restore_counts_for_its_whole_life() {
        let written_versions = WrittenVersions::new();
        let path = "/api/v1/namespaces/a/pods";
        record(&written_versions, "a", &900.into());
        advance(LIFE * 3 / 4).await;
        for version in [50, 52, 51] {
            record(&written_versions, "a", &version.into());
        }
        assert_eq!(min_version(&written_versions, path).as_deref(), Some("900"));
        advance(LIFE / 4).await;
        assert_eq!(min_version(&written_versions, path).as_deref(), Some("52"));
        advance(LIFE / 2).await;
        assert_eq!(min_version(&written_versions, path).as_deref(), Some("52"));
        advance(LIFE / 4).await;
        assert_eq!(min_version(&written_versions, path), None);
    }

    #[tokio::test(start_paused = true)]
    async fn descending_versions_need_bounded_memory() {
        let written_versions = WrittenVersions::new();
        for version in (1..=1_000).rev() {
            record(&written_versions, "a", &version.into());
        }
        let pods = parse_request("/api/v1/namespaces/a/pods", "").0;
        let key = (pods.resource.group_resource().clone(), pods.namespace.clone());
        let writes = written_versions.0.get(&key).unwrap().value;
        assert_eq!(writes.0.len(), MOST_DESCENDING);
        let newest = writes.newest().unwrap();
        assert_eq!((newest.version, newest.at), (1_000.into(), Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn opaque_and_expired_versions_do_not_delay_reads() {
        let written_versions = WrittenVersions::new();
        let path = "/api/v1/namespaces/a/pods";
        record(&written_versions, "a", &ResourceVersion::parse("abc").unwrap());
        assert_eq!(min_version(&written_versions, path), None, "opaque versions are not recorded");
        record(&written_versions, "a", &9.into());
        // When `LIFE` has passed, a write with a lower resource version, as after an etcd restore,
        // replaces the earlier one.
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
        let (caller, other) = (seen.hash(&"one"), seen.hash(&"other"));
        let pods = GroupResource::new("", "pods").unwrap();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let record = |namespace: Option<&Arc<str>>, version: Option<u64>| {
            seen.record(caller, (&pods, namespace), version.map(ResourceVersion::from).as_ref());
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
        assert_eq!(newest(caller, Some(&a)), version("8"));
        assert_eq!(newest(caller, Some(&b)), version("9"));
        assert_eq!(newest(caller, None), version("12"));
        assert_eq!(newest(other, None), None);
        let half = LIFE / 2;
        advance(half).await;
        record(Some(&a), Some(8));
        advance(half).await;
        assert_eq!(newest(caller, Some(&a)), version("8"), "read again in the last minute");
        assert_eq!(newest(caller, Some(&b)), None);
        record(Some(&a), None);
        assert_eq!(newest(caller, Some(&a)), Some(None), "the API server answered");
    }
}
