//! Decides which informers serve reads of a target. These are the informers of the newest profile
//! generation, or of an earlier generation until the new informers are synced.

use super::{
    cluster_view::ClusterView, informer_claims::InformerClaims, target_charges::TargetCharges,
    target_refusal::refusal_by_api_server,
};
use kubewarm_api::model::{
    Budget, Identity, InformerKey, InformerSpec, LimitOverrun, LimitedTarget, ManagedFieldsPolicy,
    ProfileRef, Projection, Refusal, RefusalReason, ResolvedTarget, ResourceInfo, SecretDataPolicy,
    TargetInformers, ValidatedProfile, ValidatedTarget,
};
use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

/// Delay until the controller retries a target that a limit stopped. An edit of the profile ends
/// the delay. [`spread`] adds up to 20%, so that stopped targets do not list at the same time.
const RETRY_DELAY: Duration = Duration::from_mins(10);

/// How long discovery must omit a kind before kubewarm treats the kind as removed: two discovery
/// polls at the increased rate. Discovery omits custom resources for some seconds after an API
/// server has started.
const MISSING_KIND_DELAY: Duration = Duration::from_secs(10);

/// The state of a target that the controller keeps from one reconciliation to the next.
#[derive(Debug, Default)]
pub(super) struct KnownTarget {
    /// The last informers of this target that were warm. After an edit of the profile, they serve
    /// reads until the informers of the edited profile are warm.
    serving: Option<TargetInformers>,
    /// The informers of the last reconciliation that were not yet warm. If they are warm in the
    /// next reconciliation, they replace `serving`, even if the profile was edited again.
    warming: Option<TargetInformers>,
    /// The memory or object limit that the target exceeded. `None` after the target has synced
    /// within the limit.
    pub(super) limited: Option<LimitedTarget>,
    /// The budget charges for the objects and memory of the target's informers; `None` if the
    /// target runs no informer.
    pub(super) charges: Option<TargetCharges>,
    /// The kind that discovery returned last, and the time at which discovery began to omit the
    /// kind. The time is `None` while discovery lists the kind. The controller uses the kind for
    /// [`MISSING_KIND_DELAY`] after this time, because discovery omits custom resources for some
    /// seconds after an API server has started.
    kind: Option<(ResourceInfo, Option<Duration>)>,
    /// The informer that watches Namespaces for the target's selector, and the names of the
    /// namespaces that matched last. The controller uses these names while the selector's store is
    /// empty or its informer does not run.
    last_namespaces: Option<(InformerKey, Vec<Arc<str>>)>,
    /// The informer that watches Namespaces for the target's selector, and the number of namespaces
    /// that matched last. If the controller refuses a target in mode `Plan`, it keeps only this
    /// number, to count the informers that the target would have.
    last_count: Option<(InformerKey, usize)>,
}

impl KnownTarget {
    /// Returns the target's kind from the discovery result `answer`.
    ///
    /// If discovery omits the kind, returns the last known kind for 10 seconds, unless the API
    /// server answers 404 to one of the target's informers.
    pub(super) fn resolve_kind(
        &mut self,
        target: &ValidatedTarget,
        answer: Result<ResourceInfo, Refusal>,
        cluster: &ClusterView<'_>,
        now: Duration,
    ) -> Result<ResourceInfo, Refusal> {
        let known = self.kind.take();
        let refusal = match answer {
            Ok(kind) => {
                self.kind = Some((kind.clone(), None));
                return Ok(kind);
            }
            Err(refusal) => refusal,
        };
        let is_same = |(kind, _): &(ResourceInfo, _)| {
            kind.resource.group_resource() == &target.resource
                && target
                    .version
                    .as_deref()
                    .is_none_or(|version| version == kind.resource.version())
        };
        let is_unknown = refusal.reason == RefusalReason::UnknownResource;
        let Some((kind, since)) = known.filter(|known| is_unknown && is_same(known)) else {
            return Err(refusal);
        };
        let since = since.unwrap_or(now);
        let is_denied = self.charges.as_ref().is_some_and(|charges| charges.is_denied(cluster));
        if is_denied || now.saturating_sub(since) >= MISSING_KIND_DELAY {
            return Err(refusal);
        }
        self.kind = Some((kind.clone(), Some(since)));
        Ok(kind)
    }

    /// Returns the namespaces that the target's selector matches, or `None` while these namespaces
    /// are unknown.
    ///
    /// If the store of the selector's informer was emptied, for instance after a loss of access,
    /// returns the namespaces that matched last. This is safe, because kubewarm checks the access
    /// of each informer in these namespaces.
    ///
    /// Also returns the namespaces that matched last while the selector's informer does not run, so
    /// that a stopped target still declares its informers.
    pub(super) fn find_namespaces(
        &mut self,
        informer: &InformerKey,
        cluster: &ClusterView<'_>,
    ) -> Option<Vec<Arc<str>>> {
        let names = self.list_namespaces(informer, cluster);
        if let Some(names) = &names {
            self.last_count = Some((informer.clone(), names.len()));
        }
        self.last_count.take_if(|(key, _)| key != informer);
        names
    }

    fn list_namespaces(
        &mut self,
        informer: &InformerKey,
        cluster: &ClusterView<'_>,
    ) -> Option<Vec<Arc<str>>> {
        // kubewarm can have emptied the selector's store after its first list was complete. `names`
        // then returns `None`, although the report still says that the informer is synced.
        if cluster.is_synced(informer)
            && let Some(names) = (cluster.names)(informer)
        {
            self.last_namespaces = Some((informer.clone(), names.clone()));
            return Some(names);
        }
        let last = || {
            let (key, names) = self.last_namespaces.as_ref()?;
            (key == informer).then(|| names.clone())
        };
        let planned = || (cluster.planned_names)(informer);
        match cluster.reports.get(informer) {
            None => planned().or_else(last),
            Some(report) if report.lost_at.is_some() || report.synced_at.is_some() => {
                last().or_else(planned)
            }
            Some(_) => planned(),
        }
    }

    /// Drops the namespaces that matched last, because the target has no selector, or its selector
    /// is refused.
    pub(super) fn forget_names(&mut self) {
        (self.last_namespaces, self.last_count) = (None, None);
    }

    /// Returns the number of informers that `target` would have if its profile left the mode
    /// `Plan`. If the controller knows only the number of matching namespaces, it uses that number.
    pub(super) fn count_informers(&self, target: &ResolvedTarget) -> usize {
        let last_count = self.last_count.as_ref().filter(|_| target.namespaces.is_some());
        // Each matching namespace has one informer. The additional informer watches Namespaces.
        target.all_informers().count().max(last_count.map_or(0, |(_, count)| count + 1))
    }

    /// Whether discovery omits the target's kind, but the controller still uses the last known
    /// kind. Discovery then polls more often, to detect soon whether the kind is removed.
    pub(super) fn is_kind_missing(&self) -> bool {
        self.kind.as_ref().is_some_and(|(_, since)| since.is_some())
    }

    pub(super) fn forget_informers(&mut self) {
        let Self { kind, last_namespaces, last_count, .. } = std::mem::take(self);
        *self = Self { kind, last_namespaces, last_count, ..Self::default() };
    }

    /// If all informers in `warming` are warm, they replace the informers that serve reads. Then
    /// drops the serving informers if [`can_serve`] rejects them for `target`.
    pub(super) fn replace_serving(
        &mut self,
        target: &ValidatedTarget,
        identity: &Identity,
        cluster: &ClusterView<'_>,
    ) {
        let is_synced = |informers: &TargetInformers| {
            informers.informers.iter().all(|informer| cluster.is_warm(&informer.key))
        };
        self.serving = self.warming.take().filter(is_synced).or_else(|| self.serving.take());
        self.serving.take_if(|old| !can_serve(old, target, identity));
    }

    /// Drops the serving informers of a refused target. For a kind that was removed, this frees the
    /// memory of the stores. A target that is refused because of
    /// [`RefusalReason::TooManyInformers`] keeps its serving informers while `can_fit` accepts
    /// their number, so that reads continue.
    pub(super) fn drop_refused_serving(
        &mut self,
        target: &ResolvedTarget,
        can_fit: impl FnOnce(usize) -> bool,
    ) {
        let Some(Err(refusal)) = &target.resolved else { return };
        let informers = self.serving.as_ref().map_or(0, |old| old.informers.len());
        if refusal.reason != RefusalReason::TooManyInformers || !can_fit(informers) {
            self.serving = None;
        }
    }

    /// Drops the informers of an earlier profile generation that still serve reads, and their
    /// charges, to free their memory.
    pub(super) fn drop_old_charges(&mut self) {
        if self.charges.as_mut().is_some_and(TargetCharges::drop_old_charges) {
            self.serving = None;
        }
    }

    /// Stops a target for 10 to 12 minutes, or until its profile is edited.
    pub(super) fn stop(
        &mut self,
        profile: &ProfileRef,
        target: &Arc<str>,
        overrun: LimitOverrun,
        now: Duration,
    ) {
        let before = self.limited.map(|limited| limited.overrun);
        let before = before.filter(|before| before.measure == overrun.measure);
        let reached = before.map_or(overrun.reached, |before| before.reached.max(overrun.reached));
        tracing::warn!(%profile, %target, %overrun, "a target does not fit into its limit");
        self.limited = Some(LimitedTarget {
            overrun: LimitOverrun { reached, ..overrun },
            retry_at: Some(now + RETRY_DELAY + spread(profile, target)),
        });
        self.charges = None;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.limited.is_some_and(|limited| limited.is_stopped())
    }

    /// Allows a stopped target to run again after its delay. For a running target, clears the limit
    /// that it exceeded earlier once its first lists are complete within the limit.
    pub(super) fn retry(&mut self, cluster: &ClusterView<'_>, now: Duration) {
        let Some(limited) = &mut self.limited else { return };
        let charges = self.charges.as_ref();
        if limited.is_stopped() {
            limited.retry_at.take_if(|time| *time <= now);
        } else if charges.is_some_and(|charges| charges.is_synced(cluster)) {
            self.limited = None;
        }
    }
}

/// Returns an additional delay of up to a fifth of [`RETRY_DELAY`], so that stopped targets do not
/// list at the same time. The delay is always the same for one target.
fn spread(profile: &ProfileRef, target: &Arc<str>) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((profile, target));
    RETRY_DELAY / 5 * u32::from(u8::try_from(hash % 256).unwrap_or(0)) / 256
}

/// How much of Secrets an informer stores, in ascending order. An edited target must not serve more
/// of Secrets than its profile permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SecretContent {
    /// No Secrets, or only their metadata without managedFields.
    Metadata,
    /// Metadata with managedFields, which contain the names of the data's keys.
    KeyNames,
    /// Whole Secrets.
    Whole,
}

impl SecretContent {
    fn of(data: SecretDataPolicy, projection: Projection) -> Self {
        match (data, projection) {
            (SecretDataPolicy::Deny, _) | (_, Projection::Metadata(ManagedFieldsPolicy::Drop)) => {
                Self::Metadata
            }
            (SecretDataPolicy::Allow, Projection::Metadata(ManagedFieldsPolicy::Keep)) => {
                Self::KeyNames
            }
            (SecretDataPolicy::Allow, Projection::Full(_)) => Self::Whole,
        }
    }
}

/// Whether the informers `old` of an earlier profile generation may serve the edited target.
///
/// The old informers must have the new identity: no admission policy has checked whether the edit's
/// author may act as the old identity. The old informers must not hold more of Secrets than the
/// edited target permits.
fn can_serve(old: &TargetInformers, target: &ValidatedTarget, identity: &Identity) -> bool {
    let permitted = SecretContent::of(target.secret_data, target.projection);
    old.informers.iter().all(|InformerSpec { key, .. }| {
        key.identity == *identity && SecretContent::of(key.secret_data, key.projection) <= permitted
    })
}

/// Number of consecutive failures of a new API version's informer from which the profile's status
/// shows these failures. One or two failures are normal, because an API server can reject requests
/// shortly after it accepted a CRD. The old version's informers still serve reads.
const PASSING_FAILURES: u32 = 3;

/// Adds the target's informers to `claims`, and the informers of an earlier profile generation that
/// still serve reads. Charges all of these informers to `budget`. For a target that a limit
/// stopped, adds no informer and charges nothing.
pub(super) fn claim_informers(
    mut declared: ResolvedTarget,
    valid: &ValidatedProfile,
    cluster: &ClusterView<'_>,
    state: &mut KnownTarget,
    budget: &Arc<Budget>,
    priority: u16,
    claims: &mut InformerClaims,
) -> ResolvedTarget {
    let is_stopped = state.is_stopped();
    if state.limited.is_some() {
        // A target that exceeded a limit serves no reads until its lists are complete within the
        // limit, even if another profile runs the same informers.
        state.serving = None;
    }
    let is_warm = |informer: &InformerSpec| cluster.is_warm(&informer.key);
    let has_known_informers = declared.namespaces.as_ref().is_none_or(is_warm);
    if let Some(Ok(kind)) = &declared.resolved
        && has_known_informers
        && !is_stopped
    {
        let now = TargetInformers {
            generation: valid.generation,
            kind: kind.clone(),
            informers: Arc::clone(&declared.informers),
        };
        let is_warm = declared.informers.iter().all(is_warm);
        *(if is_warm { &mut state.serving } else { &mut state.warming }) = Some(now);
    }
    let old = state.serving.as_ref();
    let is_old =
        |spec: &&InformerSpec| declared.informers.iter().all(|informer| informer.key != spec.key);
    let old_informers = old.iter().flat_map(|old| &*old.informers).filter(is_old);
    let old_informers: Vec<_> = old_informers.cloned().collect();
    for spec in &old_informers {
        claims.add(spec, valid.mode, None);
    }
    if is_stopped {
        state.charges = None;
    } else {
        for spec in &*declared.informers {
            claims.add(spec, valid.mode, Some(&declared.name));
        }
        // Passes no target name for the selector's informer. If the store omits its index, the
        // status then does not report this index, which the profile's author did not declare.
        let selector = declared.namespaces.as_ref();
        if let Some(spec) = selector {
            claims.add(spec, valid.mode, None);
        }
        state.charges = Some(TargetCharges::new(
            budget,
            priority,
            &declared.informers,
            &old_informers,
            selector,
        ));
    }
    if let (Some(Ok(kind)), Some(old)) = (&mut declared.resolved, old)
        && can_stand_in(old, kind, &declared.informers, valid.generation, cluster)
    {
        *kind = old.kind.clone();
        declared.informers = Arc::clone(&old.informers);
    }
    let refused = declared
        .informers
        .iter()
        .find_map(|informer| refusal_by_api_server(&declared.name, &informer.key, cluster));
    if let (Some(Ok(_)), Some(refusal)) = (&declared.resolved, refused) {
        declared.resolved = Some(Err(refusal));
    }
    declared.serving = old.cloned();
    declared.limited = state.limited;
    declared
}

/// Whether the profile's status describes the target by the informers of the old API version after
/// the API server's preferred version changed. The profile was not edited, so the target must stay
/// warm until the informers of the new version are synced.
fn can_stand_in(
    old: &TargetInformers,
    kind: &ResourceInfo,
    new: &[InformerSpec],
    generation: i64,
    cluster: &ClusterView<'_>,
) -> bool {
    let is_promising = |informer: &InformerSpec| {
        cluster.fault(&informer.key).is_none_or(|fault| fault.attempts < PASSING_FAILURES)
    };
    old.generation == generation
        && old.kind.resource.version() != kind.resource.version()
        && old.informers.iter().all(|informer| cluster.is_warm(&informer.key))
        && new.iter().all(is_promising)
}
