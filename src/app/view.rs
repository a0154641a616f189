//! What the layers show each other: cells and statuses to the observers.

use super::verified::missing;
use crate::{
    access::AccessReports,
    controller::{Declarations, running_cells, running_targets},
    metrics::ProfileSnapshot,
    server::DeclaredCells,
    status::{CellView, Clock, ComputedStatuses, Notice, Observed, Reporter, excess},
};
use kubewarm_api::model::{CellKey, CellSpec, Declared};
use kubewarm_cache::{
    informer::{Changes, Reports},
    store::Catalog,
};
use kubewarm_client::Served;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

/// Everything observers read. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) catalog: Catalog,
    pub(super) reports: Reports,
    /// When the reports say something new.
    pub(super) changes: Changes,
    pub(super) served: watch::Receiver<Option<Arc<Served>>>,
    /// The cells of the profiles themselves.
    pub(super) own: Arc<[CellKey]>,
    pub(super) declarations: Declarations,
    pub(super) access: AccessReports,
    /// The operator's namespace.
    pub(super) home: Arc<str>,
    /// As last computed.
    pub(super) statuses: Arc<RwLock<Arc<ComputedStatuses>>>,
}

impl View {
    /// Every profile with the conditions that this replica computed.
    pub(super) fn profiles(&self) -> Vec<ProfileSnapshot> {
        let Some(profiles) = self.declarations.borrow().clone() else { return Vec::new() };
        let statuses = Arc::clone(&self.statuses.read());
        let snapshot = |found: &Observed| {
            let Declared { profile, mode, .. } = &*found.declared;
            let status = Arc::clone(statuses.get(profile)?);
            let missing = missing(&self.access, &found.declared);
            Some(ProfileSnapshot { profile: profile.clone(), mode: *mode, status, missing })
        };
        profiles.iter().filter_map(snapshot).collect()
    }

    /// The cells of profiles that fail, each with why.
    pub(super) fn unlisted(&self) -> Vec<String> {
        let fault = |key: &CellKey| Some((key.to_string(), self.reports.get(key)?.fault?));
        let faults = self.own.iter().filter_map(fault);
        faults.map(|(key, fault)| format!("{key}: {}: {}", fault.reason, fault.message)).collect()
    }

    /// The declared cells, once the profiles have been listed. They are not all before the namespaces
    /// of every selector have been listed, or have failed to be.
    pub(super) fn declared(&self) -> Option<DeclaredCells> {
        let profiles = self.declarations.borrow().clone()?;
        let known = |cell: &CellSpec| {
            self.reports.get(&cell.key).is_some_and(|r| r.is_warm() || r.fault.is_some())
        };
        let mut selectors = running_targets(&profiles).filter_map(|it| it.namespaces.as_ref());
        let complete = selectors.all(known);
        Some(DeclaredCells { cells: running_cells(&profiles), complete })
    }

    /// Has `reporter` compute the status of every profile.
    pub(super) fn report(&self, reporter: &mut Reporter, leads: bool, clock: Clock) -> Vec<Notice> {
        let declared = self.declarations.borrow().clone().unwrap_or_default();
        let with_excess = |observed: &Observed| {
            let excess = excess(&self.access, &self.home, &observed.declared);
            Observed { excess, ..observed.clone() }
        };
        let profiles: Vec<_> = declared.iter().map(with_excess).collect();
        // What is only planned or kept from running may be verified all the same.
        let cells = |key: &CellKey| CellView {
            report: self.reports.get(key),
            access: self.access.get(key),
        };
        let notices = reporter.round(&profiles, &cells, leads, clock);
        *self.statuses.write() = Arc::new(reporter.statuses());
        notices
    }
}
