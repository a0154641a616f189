//! What ends decisions about callers early: a namespace that goes, an etcd that was restored, a cell that
//! lost its access. What was decided before may be so no more.

use crate::{
    callers::Callers,
    informer::{Fences, Measured, Meter},
    model::{
        CellKey, Delta, DeltaSink, Fault, Item, Named, Outcome, Resource, ResourceVersion,
        Tombstone, Verb,
    },
};
use std::sync::Arc;
use tokio::time::Instant;

/// Those who read, if there is an address for them.
pub(super) type Readers = Option<Arc<Callers>>;

/// Has decisions forgotten on the way of something to `told`.
#[derive(Clone, Debug)]
pub(super) struct Forgetting<T> {
    pub(super) told: T,
    pub(super) readers: Readers,
}

impl<T> Forgetting<T> {
    /// What was decided about `namespace`, or everything.
    pub(super) fn forget(&self, namespace: Option<&str>) {
        if let Some(readers) = &self.readers {
            readers.forget(namespace);
        }
    }
}

impl<T: Fences> Fences for Forgetting<T> {
    fn verified(&self, key: &CellKey, sent: Instant) {
        self.told.verified(key, sent);
    }

    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault) {
        self.told.lost(key, verb, fault);
        self.forget(key.extent.namespace());
    }

    fn returned(&self, key: &CellKey) {
        self.told.returned(key);
    }
}

impl<T: Meter> Meter for Forgetting<Arc<T>> {
    fn record(&self, resource: &Resource, what: Measured) {
        let is_restored = matches!(what, Measured::RolledBack);
        self.told.record(resource, what);
        if is_restored {
            self.forget(None);
        }
    }
}

/// Of a cell that holds namespaces.
impl DeltaSink for Forgetting<Box<dyn DeltaSink>> {
    fn apply(&mut self, delta: Delta<'_>) -> Outcome {
        let name = if let Delta::Upsert(Item { name, .. }) | Delta::Remove(Tombstone { name, .. }) =
            &delta
        {
            Some(name.to_string())
        } else {
            None
        };
        let outcome = self.told.apply(delta);
        if matches!(outcome, Outcome::Replaced | Outcome::Removed) {
            self.forget(name.as_deref());
        } else if matches!(outcome, Outcome::Swept { removed } if removed > 0) {
            // Which of them is not told.
            self.forget(None);
        }
        outcome
    }

    fn holds(&self, namespace: &str, name: &str) -> bool {
        self.told.holds(namespace, name)
    }

    fn objects(&self) -> u64 {
        self.told.objects()
    }

    fn visit(&self, each: &mut dyn FnMut(Named<'_>)) -> Option<ResourceVersion> {
        self.told.visit(each)
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.told.version()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        callers::{
            Action, Credentials,
            sample::{Said, callers},
        },
        model::{
            Extent, FieldSelector, GroupResource, Identity, LabelSelector, ManagedFields,
            Projection, Reason, SensitiveData, Uid,
        },
    };
    use std::{net::Ipv4Addr, sync::atomic::Ordering};

    /// Does nothing but give this outcome.
    struct Nothing(Outcome);

    impl Fences for Nothing {
        fn verified(&self, _: &CellKey, _: Instant) {}
        fn lost(&self, _: &CellKey, _: Verb, _: &Fault) {}
        fn returned(&self, _: &CellKey) {}
    }

    impl Meter for Nothing {
        fn record(&self, _: &Resource, _: Measured) {}
    }

    impl DeltaSink for Nothing {
        fn apply(&mut self, _: Delta<'_>) -> Outcome {
            self.0
        }
        fn holds(&self, _: &str, _: &str) -> bool {
            false
        }
        fn objects(&self) -> u64 {
            0
        }
        fn visit(&self, _: &mut dyn FnMut(Named<'_>)) -> Option<ResourceVersion> {
            None
        }
        fn version(&self) -> Option<ResourceVersion> {
            None
        }
    }

    fn cell(extent: Extent) -> CellKey {
        CellKey {
            resource: Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap(),
            extent,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            projection: Projection::Full(ManagedFields::Drop),
            sensitive_data: SensitiveData::Deny,
            identity: Identity::Operator,
        }
    }

    fn upsert(name: &str) -> Delta<'_> {
        let (namespace, name) = ("".into(), name.into());
        Delta::Upsert(Item { namespace, name, uid: Uid::parse("u"), version: None, body: b"{}" })
    }

    fn remove(name: &str) -> Delta<'_> {
        Delta::Remove(Tombstone { namespace: "".into(), name: name.into(), version: None })
    }

    #[tokio::test]
    async fn what_may_be_so_no_more_is_asked_anew_and_nothing_else() {
        let (callers, count) = callers(|_, _| Said::Allowed("jane"));
        let readers = Some(Arc::new(callers));
        let credentials = Credentials::of([("authorization", &b"Bearer t0k3n"[..])]).unwrap();
        let action = Action::Resource {
            verb: "get",
            group: "".into(),
            version: "v1".into(),
            resource: "pods".into(),
            namespace: Some("shop".into()),
            name: None,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        };
        let is_asked = async || {
            let asked = count.may.load(Ordering::Relaxed);
            let peer = Ipv4Addr::LOCALHOST.into();
            let admitted = readers.as_ref().unwrap().admit(&credentials, &action, peer).await;
            assert!(admitted.is_ok());
            count.may.load(Ordering::Relaxed) > asked
        };
        assert!(is_asked().await && !is_asked().await);

        let fault = Fault::new(Reason::Forbidden, "no");
        let fences = Forgetting { told: Nothing(Outcome::Noted), readers: readers.clone() };
        for (extent, expected) in [
            (Extent::Namespace("shop".into()), true),
            (Extent::Namespace("other".into()), false),
            (Extent::AllNamespaces, true),
        ] {
            fences.lost(&cell(extent.clone()), Verb::Watch, &fault);
            assert_eq!(is_asked().await, expected, "{extent:?}");
            fences.verified(&cell(extent.clone()), Instant::now());
            fences.returned(&cell(extent));
            assert!(!is_asked().await);
        }

        let told = Arc::new(Nothing(Outcome::Noted));
        let meter = Forgetting { told, readers: readers.clone() };
        for (what, expected) in [(Measured::WatchStarted, false), (Measured::RolledBack, true)] {
            meter.record(&cell(Extent::Cluster).resource, what);
            assert_eq!(is_asked().await, expected, "{what:?}");
        }

        for (delta, outcome, expected) in [
            (upsert("shop"), Outcome::Modified, false),
            (upsert("shop"), Outcome::Replaced, true),
            (remove("other"), Outcome::Removed, false),
            (remove("shop"), Outcome::Outdated, false),
            (remove("shop"), Outcome::Removed, true),
            (Delta::Purge, Outcome::Swept { removed: 0 }, false),
            (Delta::Purge, Outcome::Swept { removed: 1 }, true),
        ] {
            let told: Box<dyn DeltaSink> = Box::new(Nothing(outcome));
            let mut namespaces = Forgetting { told, readers: readers.clone() };
            namespaces.apply(delta);
            assert_eq!(is_asked().await, expected, "{outcome:?}");
        }
    }
}
