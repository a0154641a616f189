//! Remembers the versions of recent writes through this process, so that later reads wait for them.

use kubewarm_api::model::{GroupResource, ResourceVersion};
use kubewarm_client::ExpiringCache;
use kubewarm_wire::{ObjectRequest, WriteTarget};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The maximum number of remembered versions, about 200 bytes each. The least recently used one is dropped
/// first. By then the stores have normally reached it.
const MOST: u64 = 1_024;
/// How long a version is remembered. A store that lags further behind is stale, and rejects reads for that
/// reason. The limit also ends waits after an etcd restore, which resets versions to lower numbers.
const LIFE: Duration = Duration::from_mins(1);

/// The newest written version of each resource, per namespace and for all namespaces (`None`). Versions of one
/// resource are ordered, so the newest one suffices.
#[derive(Debug)]
pub(super) struct WrittenVersions(
    ExpiringCache<(GroupResource, Option<Arc<str>>), ResourceVersion>,
);

impl WrittenVersions {
    pub(super) fn new() -> Self {
        Self(ExpiringCache::new(MOST, LIFE))
    }

    /// Records the version that a write has returned.
    pub(super) fn raise(&self, written: WriteTarget, version: &ResourceVersion, now: Instant) {
        // An opaque version has no order, so no store could reach it.
        if version.is_opaque() {
            return;
        }
        for namespace in [None, written.namespace] {
            let place = (written.of.clone(), namespace);
            self.0.insert_if(place, version.clone(), now, |held| held.is_older_than(version));
        }
    }

    /// The minimum version for a read that requests no version itself; `None` if there is no recent write.
    pub(super) fn of(&self, asked: &ObjectRequest) -> Option<ResourceVersion> {
        let place = (asked.resource.group_resource().clone(), asked.namespace.clone());
        self.0.get(&place).map(|entry| entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::asked, *};
    use tokio::time::advance;

    fn raise(floors: &WrittenVersions, namespace: &str, version: &ResourceVersion) {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        let written = WriteTarget { of: GroupResource::new("", "pods").unwrap(), namespace };
        floors.raise(written, version, Instant::now());
    }

    fn floor(floors: &WrittenVersions, path: &str) -> Option<String> {
        floors.of(&asked(path, "").0).map(|version| version.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_recent_writes_in_its_namespace() {
        let floors = WrittenVersions::new();
        assert_eq!(floor(&floors, "/api/v1/pods"), None);
        for (namespace, version) in [("a", 7), ("b", 9), ("a", 8), ("a", 3)] {
            raise(&floors, namespace, &version.into());
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
            assert_eq!(floor(&floors, path).as_deref(), expected, "{path}");
        }
        advance(LIFE).await;
        assert_eq!(floor(&floors, "/api/v1/pods"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn opaque_and_expired_versions_do_not_delay_reads() {
        let floors = WrittenVersions::new();
        let path = "/api/v1/namespaces/a/pods";
        raise(&floors, "a", &ResourceVersion::parse("abc").unwrap());
        assert_eq!(floor(&floors, path), None, "no store could reach it");
        raise(&floors, "a", &9.into());
        // An etcd restore has reset the versions.
        advance(LIFE).await;
        raise(&floors, "a", &3.into());
        assert_eq!(floor(&floors, path).as_deref(), Some("3"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_versions_is_bounded_and_the_newest_are_kept() {
        let floors = WrittenVersions::new();
        for n in 0..3 * MOST {
            raise(&floors, &format!("n{n}"), &(n + 1).into());
        }
        assert_eq!(floor(&floors, "/api/v1/namespaces/n0/pods"), None);
        let last = 3 * MOST - 1;
        let path = format!("/api/v1/namespaces/n{last}/pods");
        assert_eq!(floor(&floors, &path), Some((last + 1).to_string()));
        assert_eq!(floor(&floors, "/api/v1/pods"), Some((last + 1).to_string()));
    }
}
