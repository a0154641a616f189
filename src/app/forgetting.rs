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

/// Has decisions forgotten on the way of something to `told`.
#[derive(Clone, Debug)]
pub(super) struct Forgetting<T> {
    pub(super) told: T,
    /// Whose decisions; none where there is no address for reads.
    pub(super) callers: Option<Arc<Callers>>,
}

/// Has what was decided about `namespace` forgotten, or everything.
pub(super) fn forget(callers: Option<&Callers>, namespace: Option<&str>) {
    if let Some(callers) = callers {
        callers.forget(namespace);
    }
}

impl<T: Fences> Fences for Forgetting<T> {
    fn verified(&self, key: &CellKey, sent: Instant) {
        self.told.verified(key, sent);
    }

    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault) {
        self.told.lost(key, verb, fault);
        forget(self.callers.as_deref(), key.extent.namespace());
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
            forget(self.callers.as_deref(), None);
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
            forget(self.callers.as_deref(), name.as_deref());
        } else if matches!(outcome, Outcome::Swept { removed } if removed > 0) {
            // Which of them is not told.
            forget(self.callers.as_deref(), None);
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
pub(super) mod sample {
    //! Somebody who reads in the namespace `shop`, and what is remembered of that.

    use crate::{
        callers::{
            Action, Callers, Credentials,
            sample::{Count, Said, callers},
        },
        model::{
            CellKey, Extent, FieldSelector, GroupResource, LabelSelector, ManagedFields,
            Projection, Resource,
        },
    };
    use std::{
        net::Ipv4Addr,
        sync::{Arc, atomic::Ordering},
    };

    pub(in crate::app) struct Jane {
        pub(in crate::app) callers: Option<Arc<Callers>>,
        count: Count,
    }

    impl Jane {
        pub(in crate::app) fn new() -> Self {
            let (callers, count) = callers(|_, _| Said::Allowed("jane"));
            Self { callers: Some(Arc::new(callers)), count }
        }

        /// Whether it is asked anew what she may, as nothing is remembered of it.
        pub(in crate::app) async fn is_asked(&self) -> bool {
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
            let asked = self.count.may.load(Ordering::Relaxed);
            let peer = Ipv4Addr::LOCALHOST.into();
            let admitted = self.callers.as_ref().unwrap().admit(&credentials, &action, peer).await;
            assert!(admitted.is_ok());
            self.count.may.load(Ordering::Relaxed) > asked
        }
    }

    pub(in crate::app) fn cell(resource: &str, extent: Extent) -> CellKey {
        CellKey::all(
            Resource::new(GroupResource::new("", resource).unwrap(), "v1").unwrap(),
            extent,
            Projection::Full(ManagedFields::Drop),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{
        sample::{Jane, cell},
        *,
    };
    use crate::model::{Extent, Reason, Uid};

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

    fn upsert(name: &str) -> Delta<'_> {
        let (namespace, name) = ("".into(), name.into());
        Delta::Upsert(Item { namespace, name, uid: Uid::parse("u"), version: None, body: b"{}" })
    }

    fn remove(name: &str) -> Delta<'_> {
        Delta::Remove(Tombstone { namespace: "".into(), name: name.into(), version: None })
    }

    #[tokio::test]
    async fn what_may_be_so_no_more_is_asked_anew_and_nothing_else() {
        let jane = Jane::new();
        let callers = jane.callers.clone();
        let is_asked = async || jane.is_asked().await;
        assert!(is_asked().await && !is_asked().await);

        let fault = Fault::new(Reason::Forbidden, "no");
        let fences = Forgetting { told: Nothing(Outcome::Noted), callers: callers.clone() };
        for (extent, expected) in [
            (Extent::Namespace("shop".into()), true),
            (Extent::Namespace("other".into()), false),
            (Extent::AllNamespaces, true),
        ] {
            fences.lost(&cell("pods", extent.clone()), Verb::Watch, &fault);
            assert_eq!(is_asked().await, expected, "{extent:?}");
            fences.verified(&cell("pods", extent.clone()), Instant::now());
            fences.returned(&cell("pods", extent));
            assert!(!is_asked().await);
        }

        let told = Arc::new(Nothing(Outcome::Noted));
        let meter = Forgetting { told, callers: callers.clone() };
        for (what, expected) in [(Measured::WatchStarted, false), (Measured::RolledBack, true)] {
            meter.record(&cell("pods", Extent::Cluster).resource, what);
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
            let mut namespaces = Forgetting { told, callers: callers.clone() };
            namespaces.apply(delta);
            assert_eq!(is_asked().await, expected, "{outcome:?}");
        }
    }
}
