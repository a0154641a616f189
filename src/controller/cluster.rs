//! What the controller reads, and the cluster as one of its runs sees it.

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

/// What the controller reads.
pub struct Sources {
    /// The tables, of profiles and namespaces among them.
    pub catalog: Catalog,
    /// What is served.
    pub discovery: Discovery,
    /// What profiles that are only planned would cost.
    pub forecasts: Forecasts,
    /// Who reads; `None` until the API server has said so.
    pub subject: watch::Receiver<Option<Subject>>,
    /// Whether authors are held to the accounts that they may act as.
    pub authors: watch::Receiver<AuthorCheck>,
    /// What profiles may take.
    pub limits: OperatorLimits,
    /// How their objects are listed.
    pub lists: ListPolicy,
    /// What counts the profiles.
    pub admission: Admission,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    /// The cluster as it is now, where discovery says `served` and the cells say `reports`.
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
/// Finds the names of the namespaces that the cell of a selector matches.
type FindNames<'a> = Box<dyn Fn(&CellKey) -> Option<Vec<Arc<str>>> + 'a>;

/// The cluster as one run sees it.
pub(super) struct ClusterView<'a> {
    /// What each cell that exists says.
    pub(super) reports: BTreeMap<CellKey, CellReport>,
    /// Whether authors are held to the accounts that they may act as.
    pub(super) authors: AuthorCheck,
    /// The kind of a target; `None` before discovery has answered.
    pub(super) kind: FindKind<'a>,
    /// What a cell holds, also of one that does not exist (yet).
    pub(super) gauge: FindGauge<'a>,
    /// The namespaces in a cell's store, without those that are being deleted; `None` unless the store is complete.
    pub(super) names: FindNames<'a>,
    /// Those that a forecast has found: no cell of a planned profile exists.
    pub(super) planned_names: FindNames<'a>,
}

impl ClusterView<'_> {
    /// Whether the cell's first list has been applied.
    pub(super) fn is_synced(&self, key: &CellKey) -> bool {
        self.reports.get(key).is_some_and(|report| report.synced_at.is_some())
    }

    /// Whether the cell may answer.
    pub(super) fn is_warm(&self, key: &CellKey) -> bool {
        self.reports.get(key).is_some_and(CellReport::is_warm)
    }

    /// What is wrong with the cell.
    pub(super) fn fault(&self, key: &CellKey) -> Option<&CellFault> {
        self.reports.get(key)?.fault.as_ref()
    }

    /// Whether the server answers 404 for the cell's kind.
    pub(super) fn is_denied(&self, key: &CellKey) -> bool {
        self.fault(key).is_some_and(|fault| fault.reason == Reason::NotServed)
    }
}
