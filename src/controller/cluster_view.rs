//! The controller's data sources, and a snapshot of the cluster for one reconciliation.

use super::{
    operator_limits::OperatorLimits, quota::ProfileQuota, resolve::deletion_timestamp_path,
};
use crate::forecast::Forecaster;
use kubewarm_api::model::{
    AccountPolicyEnforcement, FaultReason, InformerKey, ListPolicy, Refusal, ResourceInfo, Subject,
    UsageMeter, ValidatedTarget,
};
use kubewarm_cache::{
    informer::{InformerFault, InformerHandles, InformerReport},
    store::StoreCatalog,
};
use kubewarm_client::{Discovery, ServedResources};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

pub struct ControllerDependencies {
    /// The stores of all informers, including the informers that watch CacheProfiles and
    /// Namespaces.
    pub catalog: StoreCatalog,
    pub discovery: Discovery,
    pub forecasts: Forecaster,
    /// The operator's identity; `None` until the API server has returned it.
    pub subject: watch::Receiver<Option<Subject>>,
    /// Whether an admission policy checks that a profile's author may act as the ServiceAccount
    /// that the profile names.
    pub authors: watch::Receiver<AccountPolicyEnforcement>,
    pub limits: OperatorLimits,
    /// Settings of list requests, from the operator's flags.
    pub lists: ListPolicy,
    /// Limits the number and size of the profile specs in memory.
    pub quota: ProfileQuota,
}

impl ControllerDependencies {
    /// Returns a snapshot of the cluster, from the discovery result `served` and the informers'
    /// `reports`.
    pub(super) fn snapshot<'a>(
        &'a self,
        reports: &InformerHandles,
        served: Option<&'a ServedResources>,
    ) -> ClusterView<'a> {
        ClusterView {
            reports: reports.list_reports().into_iter().collect(),
            authors: *self.authors.borrow(),
            kind: Box::new(move |target| {
                served.map(|served| served.resolve(&target.resource, target.version.as_deref()))
            }),
            meter: Box::new(|key| self.catalog.meter(key)),
            names: Box::new(|key| {
                let names =
                    self.catalog.reader(key)?.list_keys_without(&deletion_timestamp_path()?)?;
                Some(names.into_iter().map(|key| key.name.into()).collect())
            }),
            planned_names: Box::new(|key| self.forecasts.names(key)),
        }
    }
}

type KindLookupFn<'a> = Box<dyn Fn(&ValidatedTarget) -> Option<Result<ResourceInfo, Refusal>> + 'a>;
type UsageMeterLookupFn<'a> = Box<dyn Fn(&InformerKey) -> Arc<UsageMeter> + 'a>;
type NamespaceLookupFn<'a> = Box<dyn Fn(&InformerKey) -> Option<Vec<Arc<str>>> + 'a>;

pub(super) struct ClusterView<'a> {
    pub(super) reports: BTreeMap<InformerKey, InformerReport>,
    pub(super) authors: AccountPolicyEnforcement,
    /// Returns the kind of a target, or `None` before the first discovery.
    pub(super) kind: KindLookupFn<'a>,
    /// Returns the usage meter of an informer, which counts the objects and bytes of its store. The
    /// meter exists before the informer runs, so that the controller can charge a budget first.
    pub(super) meter: UsageMeterLookupFn<'a>,
    /// Returns the names of the namespaces in the store of a namespace selector's informer. Omits
    /// namespaces whose deletion has started. Returns `None` if the store is incomplete.
    pub(super) names: NamespaceLookupFn<'a>,
    /// Returns the names of the namespaces that a namespace selector matches, for a profile in mode
    /// `Plan`. The names come from the profile's forecast, because such a profile runs no informer.
    pub(super) planned_names: NamespaceLookupFn<'a>,
}

impl ClusterView<'_> {
    /// Whether the informer's first list is complete.
    pub(super) fn is_synced(&self, key: &InformerKey) -> bool {
        self.reports.get(key).is_some_and(|report| report.synced_at.is_some())
    }

    /// Whether clients can read the informer's store.
    pub(super) fn is_warm(&self, key: &InformerKey) -> bool {
        self.reports.get(key).is_some_and(InformerReport::is_warm)
    }

    pub(super) fn fault(&self, key: &InformerKey) -> Option<&InformerFault> {
        self.reports.get(key)?.fault.as_ref()
    }

    /// Whether the API server answers 404 to the informer's requests, because it does not serve the
    /// kind. Discovery can still list the kind, if discovery ran before the kind was removed.
    pub(super) fn is_denied(&self, key: &InformerKey) -> bool {
        self.fault(key).is_some_and(|fault| fault.reason == FaultReason::NotServed)
    }
}
