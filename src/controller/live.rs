//! The cluster as the process sees it, for the one who reconciles.

use super::{
    admission::Admission,
    budgets::MemoryBounds,
    quota::InformerLimits,
    resolve::{Cluster, leaving},
};
use crate::forecast::Forecasts;
use kubewarm_api::model::{
    AuthorCheck, CellKey, Gauge, GroupResource, Refusal, ResourceInfo, Subject,
};
use kubewarm_cache::{
    informer::{CellReport, Changes, Reports},
    store::Catalog,
};
use kubewarm_client::{Discovery, Served};
use std::{cell::RefCell, collections::BTreeMap, fmt, sync::Arc};
use tokio::sync::watch;

/// What the controller reads.
pub struct Sources {
    /// The tables, of profiles and namespaces among them.
    pub catalog: Catalog,
    /// What the cells say.
    pub reports: Reports,
    /// When they say something new.
    pub changes: Changes,
    /// What is served.
    pub discovery: Discovery,
    /// What profiles that are only planned would cost.
    pub forecasts: Forecasts,
    /// Who reads; `None` until the API server has said so.
    pub subject: watch::Receiver<Option<Subject>>,
    /// Whether authors are held to the accounts that they may act as.
    pub authors: watch::Receiver<AuthorCheck>,
    /// What stores and informers may take.
    pub memory: MemoryBounds,
    /// How many informers there may be.
    pub informers: InformerLimits,
    /// What counts the profiles.
    pub admission: Admission,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("reports", &self.reports).finish_non_exhaustive()
    }
}

/// The namespaces that each selector matched when last it could be asked. Bounded by the selectors that
/// are watched, and by those that a limit has stopped: of these by the cells that they declare.
pub(super) type Selected = RefCell<BTreeMap<CellKey, Vec<Arc<str>>>>;

/// What answers.
pub(super) struct Live<'a> {
    pub(super) sources: &'a Sources,
    pub(super) served: Option<&'a Served>,
    pub(super) selected: &'a Selected,
}

impl Cluster for Live<'_> {
    fn resolve(
        &self,
        of: &GroupResource,
        version: Option<&str>,
    ) -> Option<Result<ResourceInfo, Refusal>> {
        self.served.map(|served| served.resolve(of, version))
    }

    fn report(&self, key: &CellKey) -> Option<CellReport> {
        self.sources.reports.get(key)
    }

    fn authors(&self) -> AuthorCheck {
        *self.sources.authors.borrow()
    }

    fn gauge(&self, key: &CellKey) -> Arc<Gauge> {
        self.sources.catalog.gauge(key)
    }

    fn names(&self, key: &CellKey) -> Option<Vec<Arc<str>>> {
        let held = || {
            let report = self.report(key)?;
            if report.synced_at.is_none() {
                // Cells that were found live by their own access, also once this one's memory is
                // freed.
                return report.lost.and_then(|_| self.selected.borrow().get(key).cloned());
            }
            let names = self.sources.catalog.reader(key)?.keys_without(&leaving()?);
            let names: Vec<Arc<str>> = names.into_iter().map(|key| key.name.into()).collect();
            self.selected.borrow_mut().insert(key.clone(), names.clone());
            Some(names)
        };
        // Profiles that are only planned watch no namespaces, nor do targets that a limit has stopped:
        // these declare the cells that they had.
        let stopped = || self.selected.borrow().get(key).cloned();
        let stopped = || stopped().filter(|_| self.report(key).is_none());
        held().or_else(|| self.sources.forecasts.names(key)).or_else(stopped)
    }
}
