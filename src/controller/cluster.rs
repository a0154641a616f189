//! The controller's data sources, and a snapshot of the cluster for one reconciliation.

use super::{admission::Admission, operator_limits::OperatorLimits, resolve::leaving};
use crate::forecast::Forecasts;
use kubewarm_api::model::{
    AuthorCheck, CellKey, Gauge, ListPolicy, Reason, Refusal, ResourceInfo, Subject, Target,
};
use kubewarm_cache::{
    informer::{CellFault, CellReport, Reports},
    store::Catalog,
};
use kubewarm_client::{Discovery, Served};
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::sync::watch;

pub struct Sources {
    /// All stores, including the stores with profiles and namespaces.
    pub catalog: Catalog,
    /// The kinds that the API server serves.
    pub discovery: Discovery,
    pub forecasts: Forecasts,
    /// The operator's identity; `None` until the API server has returned it.
    pub subject: watch::Receiver<Option<Subject>>,
    /// Whether an admission policy checks that authors may act as the accounts in their profiles.
    pub authors: watch::Receiver<AuthorCheck>,
    pub limits: OperatorLimits,
    /// How their objects are listed.
    pub lists: ListPolicy,
    /// Limits the number and size of the stored profiles.
    pub admission: Admission,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    /// Takes a snapshot, from the discovery result `served` and the informers' `reports`.
    pub(super) fn cluster<'a>(
        &'a self,
        reports: &Reports,
        served: Option<&'a Served>,
    ) -> ClusterView<'a> {
        ClusterView {
            reports: reports.all().into_iter().collect(),
            authors: *self.authors.borrow(),
            kind: Box::new(move |target| {
                served.map(|served| served.resolve(&target.of, target.version.as_deref()))
            }),
            gauge: Box::new(|key| self.catalog.gauge(key)),
            names: Box::new(|key| {
                let names = self.catalog.reader(key)?.keys_without(&leaving()?)?;
                Some(names.into_iter().map(|key| key.name.into()).collect())
            }),
            planned_names: Box::new(|key| self.forecasts.names(key)),
        }
    }
}

type FindKind<'a> = Box<dyn Fn(&Target) -> Option<Result<ResourceInfo, Refusal>> + 'a>;
type FindGauge<'a> = Box<dyn Fn(&CellKey) -> Arc<Gauge> + 'a>;
/// Returns the names of the namespaces that a selector's informer matches.
type FindNames<'a> = Box<dyn Fn(&CellKey) -> Option<Vec<Arc<str>>> + 'a>;

/// Snapshot of the cluster for one reconciliation.
pub(super) struct ClusterView<'a> {
    /// The report of each running informer.
    pub(super) reports: BTreeMap<CellKey, CellReport>,
    /// Whether an admission policy checks that authors may act as the accounts in their profiles.
    pub(super) authors: AuthorCheck,
    /// Returns the kind of a target, or `None` before the first discovery.
    pub(super) kind: FindKind<'a>,
    /// Returns the usage of an informer, which need not run yet.
    pub(super) gauge: FindGauge<'a>,
    /// Returns the namespaces in an informer's store, except those that are being deleted. Returns
    /// `None` if the store is incomplete.
    pub(super) names: FindNames<'a>,
    /// Returns the namespaces that a forecast found. A planned profile has no informer.
    pub(super) planned_names: FindNames<'a>,
}

impl ClusterView<'_> {
    /// Whether the informer's first list is complete.
    pub(super) fn is_synced(&self, key: &CellKey) -> bool {
        self.reports.get(key).is_some_and(|report| report.synced_at.is_some())
    }

    /// Whether clients can read the informer's store.
    pub(super) fn is_warm(&self, key: &CellKey) -> bool {
        self.reports.get(key).is_some_and(CellReport::is_warm)
    }

    pub(super) fn fault(&self, key: &CellKey) -> Option<&CellFault> {
        self.reports.get(key)?.fault.as_ref()
    }

    /// Whether the API server answers 404 for the informer's kind.
    pub(super) fn is_denied(&self, key: &CellKey) -> bool {
        self.fault(key).is_some_and(|fault| fault.reason == Reason::NotServed)
    }
}
