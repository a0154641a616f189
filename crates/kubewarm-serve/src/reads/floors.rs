//! Versions of what was written through this process: reads that come after wait for them.

use kubewarm_api::model::{GroupResource, ResourceVersion};
use kubewarm_client::Expiring;
use kubewarm_wire::{Objects, Written};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Resources in namespaces that are remembered: some 200 bytes each. Of more the oldest go, which their tables
/// have long come to.
const MOST: u64 = 1_024;
/// How long a floor counts. A table that lags by more is not current, and refuses for that; and after a
/// restore of etcd versions begin again below.
const LIFE: Duration = Duration::from_mins(1);

/// The newest version that was written of each resource: in each namespace, and in all of them (`None`), because
/// versions of one resource have an order.
#[derive(Debug)]
pub(super) struct Floors(Expiring<(GroupResource, Option<Arc<str>>), ResourceVersion>);

impl Floors {
    pub(super) fn new() -> Self {
        Self(Expiring::new(MOST, LIFE))
    }

    /// Something was written, and this is its version.
    pub(super) fn raise(&self, written: Written, version: &ResourceVersion, now: Instant) {
        // Nothing comes to what has no order.
        if version.is_opaque() {
            return;
        }
        for namespace in [None, written.namespace] {
            let place = (written.of.clone(), namespace);
            self.0.insert_if(place, version.clone(), now, |held| held.is_older_than(version));
        }
    }

    /// What a read of `asked` must be no older than, if it says nothing of versions itself.
    pub(super) fn of(&self, asked: &Objects) -> Option<ResourceVersion> {
        let place = (asked.resource.group_resource().clone(), asked.namespace.clone());
        self.0.get(&place).map(|entry| entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::asked, *};
    use tokio::time::advance;

    fn raise(floors: &Floors, namespace: &str, version: &ResourceVersion) {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        let written = Written { of: GroupResource::new("", "pods").unwrap(), namespace };
        floors.raise(written, version, Instant::now());
    }

    fn floor(floors: &Floors, path: &str) -> Option<String> {
        floors.of(&asked(path, "").0).map(|version| version.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_what_was_written_where_it_reads() {
        let floors = Floors::new();
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
    async fn what_counts_no_more_stands_in_the_way_of_nothing() {
        let floors = Floors::new();
        let path = "/api/v1/namespaces/a/pods";
        raise(&floors, "a", &ResourceVersion::parse("abc").unwrap());
        assert_eq!(floor(&floors, path), None, "no table would come to it");
        raise(&floors, "a", &9.into());
        // etcd was restored.
        advance(LIFE).await;
        raise(&floors, "a", &3.into());
        assert_eq!(floor(&floors, path).as_deref(), Some("3"));
    }

    #[tokio::test(start_paused = true)]
    async fn however_much_is_written_a_bounded_number_is_remembered_and_the_latest_last() {
        let floors = Floors::new();
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
