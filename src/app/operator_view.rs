//! The operator's state, which the status writer, the metrics, `/readyz` and the read API share.

use super::access_checker::count_missing_permissions;
use crate::{
    access::AccessStates,
    controller::DeclarationsReceiver,
    metrics::ProfileSnapshot,
    server::DeclaredInformers,
    status::{
        ClockReading, InformerView, LiveState, ObservedProfile, ProfileEvent, StatusReporter,
        StatusesByProfile, excess,
    },
};
use kubewarm_api::model::{InformerKey, ResolvedProfile};
use kubewarm_cache::{
    informer::{ChangeNotifier, InformerHandles},
    store::StoreCatalog,
};
use kubewarm_client::{PeerReplicas, ServedResources, ServerVersionCache};
use kubewarm_serve::ApplierRegistry;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(super) struct OperatorView {
    pub(super) catalog: StoreCatalog,
    pub(super) reports: InformerHandles,
    /// Notifies its subscribers when an informer's report changes.
    pub(super) changes: ChangeNotifier,
    pub(super) served_resources: watch::Receiver<Option<Arc<ServedResources>>>,
    pub(super) server_version: ServerVersionCache,
    /// Keys of the informers with which kubewarm watches CacheProfiles.
    pub(super) profile_informers: Arc<[InformerKey]>,
    pub(super) declarations: DeclarationsReceiver,
    pub(super) access: AccessStates,
    pub(super) operator_namespace: Arc<str>,
    /// The replicas from which informers copy their stores; `None` without `--peer-address`.
    pub(super) peers: Option<PeerReplicas>,
    /// The users who read objects without managedFields and can apply these objects. Such an apply
    /// removes the user's own fields, so the status warns about these users.
    pub(super) appliers: ApplierRegistry,
    /// For each profile, the latest status that this replica computed.
    pub(super) statuses: Arc<RwLock<Arc<StatusesByProfile>>>,
}

impl OperatorView {
    /// Returns each profile that has a computed status, with this status and the number of missing
    /// permissions.
    pub(super) fn snapshot_profiles(&self) -> Vec<ProfileSnapshot> {
        let Some(decided) = self.declarations.borrow().clone() else { return Vec::new() };
        let statuses = Arc::clone(&self.statuses.read());
        let snapshot = |ObservedProfile { resolved, .. }: &ObservedProfile| {
            let ResolvedProfile { profile, mode, .. } = &**resolved;
            let status = Arc::clone(statuses.get(profile)?);
            let missing = count_missing_permissions(&self.access, resolved);
            Some(ProfileSnapshot { profile: profile.clone(), mode: *mode, status, missing })
        };
        decided.profiles.iter().filter_map(snapshot).collect()
    }

    /// Returns a text for each informer that cannot list or watch CacheProfiles: the informer's
    /// key, the reason and the error message.
    pub(super) fn list_failing_watches(&self) -> Vec<String> {
        let fault = |key: &InformerKey| Some((key.to_string(), self.reports.get(key)?.fault?));
        let faults = self.profile_informers.iter().filter_map(fault);
        faults.map(|(key, fault)| format!("{key}: {}: {}", fault.reason, fault.message)).collect()
    }

    /// Returns the informers of all profiles, or `None` before kubewarm has listed the profiles.
    ///
    /// The field `is_complete` of the result is true once kubewarm has tried to list the namespaces
    /// for every namespace selector. A failed attempt is enough, so that a failing selector does
    /// not delay the success of `/readyz`.
    pub(super) fn declared_informers(&self) -> Option<DeclaredInformers> {
        let decided = self.declarations.borrow().clone()?;
        let is_listed = |selector: &InformerKey| {
            self.reports.get(selector).is_some_and(|r| r.is_warm() || r.fault.is_some())
        };
        let is_complete = decided.selectors.iter().all(is_listed);
        Some(DeclaredInformers { informers: Arc::clone(&decided.running), is_complete })
    }

    /// Computes the status of every profile with `reporter`, and stores the statuses. Returns the
    /// Kubernetes Events that kubewarm must create.
    pub(super) fn update_statuses(
        &self,
        reporter: &mut StatusReporter,
        is_leader: bool,
        clock: ClockReading,
    ) -> Vec<ProfileEvent> {
        // An informer that does not run has no report. It can have a permission state, because
        // kubewarm also checks the access of informers that do not run.
        let informers = |key: &InformerKey| InformerView {
            report: self.reports.get(key),
            access: self.access.get(key),
            appliers: self.appliers.user_tags(key),
        };
        let excess =
            |profile: &ResolvedProfile| excess(&self.access, &self.operator_namespace, profile);
        let live = LiveState { informers: &informers, excess: &excess };
        let decided = self.declarations.borrow().clone();
        let profiles = decided.as_ref().map_or(&[][..], |decided| &decided.profiles);
        let events = reporter.update(profiles, live, is_leader, clock);
        *self.statuses.write() = Arc::new(reporter.statuses());
        events
    }
}
