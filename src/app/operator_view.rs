//! The operator's state, which the status writer, the metrics, `/readyz` and the read API share.

use super::access_checker::count_missing_permissions;
use crate::{
    access::AccessReports,
    controller::{ProfileReceiver, running_informers, running_targets},
    metrics::ProfileSnapshot,
    server::DeclaredInformers,
    status::{
        ClockReading, InformerView, ObservedProfile, ProfileEvent, StatusReporter,
        StatusesByProfile, excess,
    },
};
use kubewarm_api::model::{InformerKey, InformerSpec, ResolvedProfile};
use kubewarm_cache::{
    informer::{ChangeNotifier, InformerReports},
    store::StoreCatalog,
};
use kubewarm_client::ServedResources;
use kubewarm_serve::ApplierRegistry;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(super) struct OperatorView {
    pub(super) catalog: StoreCatalog,
    pub(super) reports: InformerReports,
    /// Notifies its subscribers when an informer's report changes.
    pub(super) changes: ChangeNotifier,
    pub(super) served_resources: watch::Receiver<Option<Arc<ServedResources>>>,
    /// Keys of the informers with which kubewarm watches CacheProfiles.
    pub(super) own_informers: Arc<[InformerKey]>,
    pub(super) declarations: ProfileReceiver,
    pub(super) access: AccessReports,
    pub(super) operator_namespace: Arc<str>,
    /// The users who read objects without managedFields and can apply them.
    pub(super) appliers: ApplierRegistry,
    /// For each profile, the latest status that this replica computed.
    pub(super) statuses: Arc<RwLock<Arc<StatusesByProfile>>>,
}

impl OperatorView {
    /// Returns each profile that has a computed status, with this status and the number of missing
    /// permissions.
    pub(super) fn snapshot_profiles(&self) -> Vec<ProfileSnapshot> {
        let Some(profiles) = self.declarations.borrow().clone() else { return Vec::new() };
        let statuses = Arc::clone(&self.statuses.read());
        let snapshot = |found: &ObservedProfile| {
            let ResolvedProfile { profile, mode, .. } = &*found.declared;
            let status = Arc::clone(statuses.get(profile)?);
            let missing = count_missing_permissions(&self.access, &found.declared);
            Some(ProfileSnapshot { profile: profile.clone(), mode: *mode, status, missing })
        };
        profiles.iter().filter_map(snapshot).collect()
    }

    /// Returns a text for each informer that cannot list or watch CacheProfiles: the informer's
    /// key, the reason and the error message.
    pub(super) fn list_failing_watches(&self) -> Vec<String> {
        let fault = |key: &InformerKey| Some((key.to_string(), self.reports.get(key)?.fault?));
        let faults = self.own_informers.iter().filter_map(fault);
        faults.map(|(key, fault)| format!("{key}: {}: {}", fault.reason, fault.message)).collect()
    }

    /// Returns the informers of all profiles, or `None` before kubewarm has listed the profiles.
    ///
    /// The field `complete` of the result is true once kubewarm has tried to list the namespaces
    /// for every selector. A failed attempt is enough.
    pub(super) fn declared_informers(&self) -> Option<DeclaredInformers> {
        let profiles = self.declarations.borrow().clone()?;
        let known = |informer: &InformerSpec| {
            self.reports.get(&informer.key).is_some_and(|r| r.is_warm() || r.fault.is_some())
        };
        let mut selectors = running_targets(&profiles).filter_map(|it| it.namespaces.as_ref());
        let complete = selectors.all(known);
        Some(DeclaredInformers { informers: running_informers(&profiles), complete })
    }

    /// Computes the status of every profile with `reporter`, and stores the statuses. Returns the
    /// Kubernetes Events that kubewarm must create.
    pub(super) fn update_statuses(
        &self,
        reporter: &mut StatusReporter,
        leads: bool,
        clock: ClockReading,
    ) -> Vec<ProfileEvent> {
        let declared = self.declarations.borrow().clone().unwrap_or_default();
        let with_excess = |observed: &ObservedProfile| {
            let excess = excess(&self.access, &self.operator_namespace, &observed.declared);
            let operator_namespace = Arc::clone(&self.operator_namespace);
            ObservedProfile { excess, operator_namespace, ..observed.clone() }
        };
        let profiles: Vec<_> = declared.iter().map(with_excess).collect();
        // An informer that does not run has no report, but it can have a permission state.
        let informers = |key: &InformerKey| InformerView {
            report: self.reports.get(key),
            access: self.access.get(key),
            appliers: self.appliers.user_tags(key),
        };
        let events = reporter.update(&profiles, &informers, leads, clock);
        *self.statuses.write() = Arc::new(reporter.statuses());
        events
    }
}
