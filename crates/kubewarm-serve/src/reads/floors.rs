//! Versions of what was written through this process: reads that come after wait for them.

use kubewarm_api::model::{GroupResource, ResourceVersion};
use kubewarm_wire::{Objects, Written};
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Resources in namespaces that are remembered: some 100 bytes each. Of more the oldest go, which their tables
/// have long come to.
const MOST: usize = 1_024;
/// How long a floor counts. A table that lags by more is not current, and refuses for that; and after a
/// restore of etcd versions begin again below.
const LIFE: Duration = Duration::from_mins(1);

type Place = (GroupResource, Option<Arc<str>>);

/// The newest version that was written of each resource in each namespace.
#[derive(Debug, Default)]
pub(super) struct Floors(RwLock<HashMap<Place, (ResourceVersion, Instant)>>);

impl Floors {
    /// Something was written, and this is its version.
    pub(super) fn raise(&self, written: Written, version: ResourceVersion, now: Instant) {
        // Nothing comes to what has no order.
        if version.is_opaque() {
            return;
        }
        let mut floors = self.0.write();
        let place = (written.of, written.namespace);
        if let Some((held, at)) = floors.get(&place)
            && now.saturating_duration_since(*at) < LIFE
            && !held.is_older_than(&version)
        {
            return;
        }
        if floors.len() >= MOST && !floors.contains_key(&place) {
            floors.retain(|_, (_, at)| now.saturating_duration_since(*at) < LIFE);
        }
        if floors.len() >= MOST
            && !floors.contains_key(&place)
            && let Some(oldest) =
                floors.iter().min_by_key(|(_, (_, at))| *at).map(|(place, _)| place.clone())
        {
            floors.remove(&oldest);
        }
        floors.insert(place, (version, now));
    }

    /// What a read of `asked` must be no older than, if it says nothing of versions itself.
    pub(super) fn of(&self, asked: &Objects, now: Instant) -> Option<ResourceVersion> {
        let floors = self.0.read();
        if floors.is_empty() {
            return None;
        }
        let of = asked.resource.group_resource();
        let counts = |at: Instant| now.saturating_duration_since(at) < LIFE;
        let one = |place: &Place| floors.get(place).filter(|(_, at)| counts(*at));
        if asked.namespace.is_some() {
            return one(&(of.clone(), asked.namespace.clone())).map(|(version, _)| version.clone());
        }
        // All namespaces: of one resource versions have an order.
        let all = floors.iter().filter(|((it, _), (_, at))| it == of && counts(*at));
        let newest = all.map(|(_, (version, _))| version);
        newest.reduce(|a, b| if a.is_older_than(b) { b } else { a }).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::asked, *};

    fn written(namespace: &str) -> Written {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        Written { of: GroupResource::new("", "pods").unwrap(), namespace }
    }

    fn floor(floors: &Floors, path: &str, now: Instant) -> Option<String> {
        floors.of(&asked(path, "").0, now).map(|version| version.to_string())
    }

    #[test]
    fn a_read_waits_for_what_was_written_where_it_reads() {
        let (floors, now) = (Floors::default(), Instant::now());
        assert_eq!(floor(&floors, "/api/v1/pods", now), None);
        for (namespace, version) in [("a", 7), ("b", 9), ("a", 8), ("a", 3)] {
            floors.raise(written(namespace), version.into(), now);
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
            assert_eq!(floor(&floors, path, now).as_deref(), expected, "{path}");
        }
        assert_eq!(floor(&floors, "/api/v1/pods", now + LIFE), None);
    }

    #[test]
    fn what_counts_no_more_stands_in_the_way_of_nothing() {
        let (floors, now) = (Floors::default(), Instant::now());
        let path = "/api/v1/namespaces/a/pods";
        let opaque = ResourceVersion::parse("abc").unwrap();
        floors.raise(written("a"), opaque, now);
        assert_eq!(floor(&floors, path, now), None, "no table would come to it");
        floors.raise(written("a"), 9.into(), now);
        // etcd was restored.
        floors.raise(written("a"), 3.into(), now + LIFE);
        assert_eq!(floor(&floors, path, now + LIFE).as_deref(), Some("3"));
    }

    #[test]
    fn however_much_is_written_a_bounded_number_is_remembered_and_the_latest_last() {
        let (floors, start) = (Floors::default(), Instant::now());
        let at = |n: usize| start + Duration::from_millis(n as u64);
        for n in 0..3 * MOST {
            floors.raise(written(&format!("n{n}")), (n as u64 + 1).into(), at(n));
        }
        assert_eq!(floors.0.read().len(), MOST);
        let last = 3 * MOST - 1;
        let path = format!("/api/v1/namespaces/n{last}/pods");
        assert_eq!(floor(&floors, &path, at(last)), Some((last + 1).to_string()));
        floors.raise(written("late"), 1.into(), at(last) + LIFE);
        assert_eq!(floors.0.read().len(), 1, "what counts no more makes room");
    }
}
