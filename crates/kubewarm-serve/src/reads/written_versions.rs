//! Keeps the resource versions of recent forwarded writes, so that later reads wait until a store reaches them.

use kubewarm_api::model::{GroupResource, Resource, ResourceVersion};
use kubewarm_client::ExpiringCache;
use kubewarm_wire::WriteTarget;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The maximum number of resource versions to keep, about 200 bytes each. Above this number, kubewarm drops the
/// least recently used version. The stores have normally reached that version already.
const MOST: u64 = 1_024;
/// How long kubewarm keeps the resource version of a write. A store that has not reached the version after this
/// time is stale, so kubewarm rejects reads from the store anyway. After an etcd restore, resource versions restart
/// at lower numbers, so no store reaches the version of an earlier write. `LIFE` ends the waits for such a version.
const LIFE: Duration = Duration::from_mins(1);

/// The newest resource version that a forwarded write returned, by resource and namespace, or for all namespaces
/// (`None`). Versions of one resource are ordered, so a store that has reached this version contains all earlier
/// writes.
#[derive(Debug)]
pub(super) struct WrittenVersions(
    ExpiringCache<(GroupResource, Option<Arc<str>>), ResourceVersion>,
);

impl WrittenVersions {
    pub(super) fn new() -> Self {
        Self(ExpiringCache::new(MOST, LIFE))
    }

    /// Records the resource version that the API server returned for a write.
    pub(super) fn record(&self, written: WriteTarget, version: &ResourceVersion, now: Instant) {
        // An opaque resource version has no order, so kubewarm could not detect that a store has reached it.
        if version.is_opaque() {
            return;
        }
        for namespace in [None, written.namespace] {
            let key = (written.resource.clone(), namespace);
            self.0.insert_if(key, version.clone(), now, |held| held.is_older_than(version));
        }
    }

    /// The resource version that a store must reach to answer a read without `resourceVersion`. `None` if there is
    /// no recent write.
    pub(super) fn min_version(
        &self,
        resource: &Resource,
        namespace: Option<&Arc<str>>,
    ) -> Option<ResourceVersion> {
        let key = (resource.group_resource().clone(), namespace.cloned());
        self.0.get(&key).map(|entry| entry.value)
    }
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
        version.map(|version| version.to_string())
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
        for n in 0..3 * MOST {
            record(&written_versions, &format!("n{n}"), &(n + 1).into());
        }
        assert_eq!(min_version(&written_versions, "/api/v1/namespaces/n0/pods"), None);
        let last = 3 * MOST - 1;
        let path = format!("/api/v1/namespaces/n{last}/pods");
        assert_eq!(min_version(&written_versions, &path), Some((last + 1).to_string()));
        assert_eq!(min_version(&written_versions, "/api/v1/pods"), Some((last + 1).to_string()));
    }
}
