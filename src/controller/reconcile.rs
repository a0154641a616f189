//! Computes the targets and informers of all profiles. This module keeps the last valid spec of
//! each profile, and performs no I/O.

use super::{
    budget_enforcer::{BudgetEnforcer, RunningTarget},
    budget_tree::{BudgetTree, overrun_by_informers},
    cluster_view::ClusterView,
    informer_claims::{InformerClaims, OmittedIndexes},
    informer_quotas::InformerQuotas,
    known_profile::KnownProfile,
    known_target::claim_informers,
    operator_limits::OperatorLimits,
    profile_parser::ClusterProfile,
    quota::ProfileQuota,
    resolve::{InformerDefaults, resolve},
    target_refusal::within_quota,
};
use crate::status::ObservedProfile;
use jiff::Timestamp;
use kubewarm_api::{
    manifests::ProfilePermissions,
    model::{
        Budget, InformerKey, LimitOverrun, ListPolicy, OperatorScope, ProfileMode, ProfileRef,
        Refusal, RefusalReason, ResolvedProfile, ResolvedTarget, Subject, has_same_informers,
    },
    v1alpha1::AccessStatus,
};
use kubewarm_cache::informer::DesiredInformers;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// State of all existing profiles between two reconciliations.
#[derive(Debug)]
pub(super) struct Reconciler {
    operator_scope: OperatorScope,
    known: BTreeMap<ProfileRef, KnownProfile>,
    /// The profiles whose last valid generation was dropped after an invalid edit. Each value
    /// contains the profile's UID, and the message that explains the reason to the profile's
    /// author.
    dropped: BTreeMap<ProfileRef, (Arc<str>, String)>,
    budgets: BudgetTree,
    limits: OperatorLimits,
    lists: ListPolicy,
    quota: ProfileQuota,
}

#[derive(Debug, Default)]
pub(super) struct ReconcileResult {
    pub(super) desired: DesiredInformers,
    /// The resolved profiles, from which kubewarm computes statuses and metrics and serves reads.
    pub(super) observed: Vec<ObservedProfile>,
    /// Whether the API server does not serve the kind of a target. Discovery must then poll more
    /// often, to detect soon that the kind's CRD is installed.
    pub(super) is_kind_missing: bool,
    /// The exceeded memory and object limits, one entry for each target that this reconciliation
    /// stopped.
    pub(super) exceeded: Vec<LimitOverrun>,
    /// Whether the API server answers 404 for a kind that discovery still lists. Discovery must
    /// then run again, because its result is outdated.
    pub(super) is_discovery_behind: bool,
}

impl Reconciler {
    pub(super) fn new(
        operator_scope: OperatorScope,
        limits: OperatorLimits,
        lists: ListPolicy,
        quota: ProfileQuota,
    ) -> Self {
        Self {
            known: BTreeMap::new(),
            dropped: BTreeMap::new(),
            budgets: BudgetTree::new(Arc::clone(&operator_scope.namespace), limits),
            operator_scope,
            limits,
            lists,
            quota,
        }
    }

    /// Returns the process's budget, which counts the memory of all stores.
    pub(super) fn process(&self) -> &Arc<Budget> {
        self.budgets.process()
    }

    /// Computes the targets and informers of `profiles`.
    ///
    /// `profiles` must contain every existing profile, not only changed profiles. The reconciler
    /// drops the state of an absent profile, so a profile needs no finalizer. `now` is the time
    /// since the process started.
    pub(super) fn reconcile(
        &mut self,
        profiles: &[ClusterProfile],
        cluster: &ClusterView<'_>,
        subject: Option<&Subject>,
        now: Duration,
    ) -> ReconcileResult {
        let exist: BTreeSet<_> = profiles.iter().map(|profile| &profile.profile).collect();
        self.known.retain(|profile, _| exist.contains(profile));
        self.dropped.retain(|profile, _| exist.contains(profile));
        let memory = |profile: &ClusterProfile| {
            let status = u64::try_from(profile.status_bytes).unwrap_or(u64::MAX);
            profile.memory.saturating_add(status)
        };
        self.budgets
            .charge_profiles(profiles.iter().map(|profile| (&profile.profile, memory(profile))));
        let exceeded = self.enforce_limits(cluster, now);
        let mut outcome = ReconcileResult { exceeded, ..ReconcileResult::default() };
        let operator_namespace = Arc::clone(&self.operator_scope.namespace);
        let mut quotas = InformerQuotas::new(self.limits, &operator_namespace);
        let mut claims = InformerClaims::default();
        let mut resolved: Vec<_> = by_precedence(profiles, &operator_namespace)
            .into_iter()
            .map(|profile| {
                let resolved =
                    self.declare(profile, cluster, now, &mut outcome, &mut claims, &mut quotas);
                (profile, resolved)
            })
            .collect();
        resolved.sort_by(|(a, _), (b, _)| a.profile.cmp(&b.profile));
        let (desired, omitted) = claims.merge();
        outcome.desired = desired;
        for (profile, mut resolved) in resolved {
            set_omitted_indexes(&mut resolved, &omitted);
            outcome.is_kind_missing |= resolved.targets.iter().any(is_missing);
            let informers = resolved.targets.iter().flat_map(|target| target.informers.iter());
            outcome.is_discovery_behind |=
                informers.into_iter().any(|informer| cluster.is_denied(&informer.key));
            let resolved = Arc::new(resolved);
            let access = self.access(&resolved, subject);
            let in_cluster = profile.status.clone();
            let observed = ObservedProfile::new(resolved, Arc::clone(&operator_namespace));
            let observed = ObservedProfile { access, in_cluster, ..observed };
            outcome.observed.push(observed);
        }
        outcome
    }

    /// Stops targets that exceed a memory or object limit, and restarts stopped targets whose delay
    /// has ended.
    fn enforce_limits(&mut self, cluster: &ClusterView<'_>, now: Duration) -> Vec<LimitOverrun> {
        let mut running = Vec::new();
        for (profile, known) in &mut self.known {
            let KnownProfile { created, budget, targets, .. } = known;
            let budget = &*budget;
            for (target, state) in targets {
                running.push(RunningTarget { profile, created: *created, target, budget, state });
            }
        }
        let operator_namespace = &self.operator_scope.namespace;
        let mut limiter = BudgetEnforcer { operator_namespace, cluster, now, exceeded: Vec::new() };
        limiter.enforce_all(running);
        let exceeded = limiter.exceeded;
        for state in self.known.values_mut().flat_map(|known| known.targets.values_mut()) {
            state.retry(cluster, now);
        }
        exceeded
    }

    /// Chooses the newest valid generation of the profile. Returns the state of that generation, or
    /// `None` if no generation is valid. If the newest generation is invalid, also returns the
    /// reason.
    fn choose_generation(
        &mut self,
        profile: &ClusterProfile,
        known: Option<KnownProfile>,
        now: Duration,
    ) -> (Option<KnownProfile>, Option<Refusal>) {
        let unrunnable = match &profile.parsed {
            Ok(valid) => {
                self.dropped.remove(&profile.profile);
                let mut known = known.unwrap_or_else(|| {
                    KnownProfile::new(
                        profile,
                        valid,
                        self.budgets.profile(&profile.profile.namespace),
                        now,
                    )
                });
                known.accept(profile, valid, &self.quota, now);
                return (Some(known), None);
            }
            Err(unrunnable) => unrunnable,
        };
        let mut refusal = unrunnable.refusal.clone();
        if let Some(mut known) = known {
            let Err(note) = known.keep_last_valid(unrunnable, &self.quota) else {
                return (Some(known), Some(refusal));
            };
            tracing::warn!(profile = %profile.profile, %note, "a profile stopped after an edit");
            self.dropped.insert(profile.profile.clone(), (Arc::clone(&profile.uid), note));
        }
        if let Some((_, note)) =
            self.dropped.get(&profile.profile).filter(|(uid, _)| *uid == profile.uid)
        {
            refusal.message = format!("{}; {note}", refusal.message);
        }
        (None, Some(refusal))
    }

    fn declare(
        &mut self,
        profile: &ClusterProfile,
        cluster: &ClusterView<'_>,
        now: Duration,
        outcome: &mut ReconcileResult,
        claims: &mut InformerClaims,
        quotas: &mut InformerQuotas<'_>,
    ) -> ResolvedProfile {
        let known = self.known.remove(&profile.profile);
        let known = known.filter(|known| known.valid.uid == profile.uid);
        let (known, refused) = self.choose_generation(profile, known, now);
        let Some(mut known) = known else { return unrunnable(profile, refused) };
        let valid = Arc::clone(&known.valid);
        known.budget.set_limits(valid.limits);
        let mut former = std::mem::take(&mut known.targets);
        let (mut taken, mut targets) = (0, Vec::with_capacity(valid.targets.len()));
        for target in &valid.targets {
            let mut state = former.remove(&target.name).unwrap_or_default();
            if valid.mode == ProfileMode::Plan {
                state.forget_informers();
            }
            state.replace_serving(target, &valid.identity(), cluster);
            let kind = (cluster.kind)(target)
                .map(|answer| state.resolve_kind(target, answer, cluster, now));
            outcome.is_kind_missing |= state.is_kind_missing();
            let names = |key: &InformerKey| state.find_namespaces(key, cluster);
            let operator = InformerDefaults { lists: self.lists, meter: &cluster.meter };
            let resolved = resolve(&valid, target, &self.operator_scope, kind, names, operator);
            let mut quota =
                |informers| quotas.grant(&profile.profile, &mut taken, &target.name, informers);
            let informers = match valid.mode {
                ProfileMode::Plan => state.count_informers(&resolved),
                ProfileMode::Active | ProfileMode::Paused => resolved.all_informers().count(),
            };
            let resolved = within_quota(&mut quota, informers, resolved);
            state.drop_refused_serving(&resolved, |informers| quota(informers).is_ok());
            if resolved.namespaces.is_none() {
                state.forget_names();
            }
            let is_tenant = *profile.profile.namespace != *self.operator_scope.namespace;
            if valid.mode == ProfileMode::Plan {
                targets.push(resolved);
                known.targets.insert(Arc::clone(&target.name), state);
                continue;
            }
            if is_tenant && !state.is_stopped() {
                let overrun = overrun_by_informers(&known.budget, resolved.all_informers());
                if let Some(overrun) = overrun {
                    state.stop(&profile.profile, &target.name, overrun, now);
                    outcome.exceeded.push(overrun);
                }
            }
            let (budget, priority) = (&known.budget, target.priority);
            let resolved =
                claim_informers(resolved, &valid, cluster, &mut state, budget, priority, claims);
            targets.push(resolved);
            known.targets.insert(Arc::clone(&target.name), state);
        }
        let accepted_at = known.accepted_at;
        self.known.insert(profile.profile.clone(), known);
        ResolvedProfile {
            generation: profile.generation,
            refused,
            authors: cluster.authors,
            accepted_at,
            ..ResolvedProfile::of(&valid, targets)
        }
    }

    /// Returns the profile's `status.access`. Computes it again only if the profile's informers or
    /// the operator's identity changed.
    fn access(
        &mut self,
        profile: &Arc<ResolvedProfile>,
        subject: Option<&Subject>,
    ) -> Option<Arc<AccessStatus>> {
        let subject = subject?;
        let known = self.known.get_mut(&profile.profile)?;
        if let Some((former, former_subject, access)) = &known.access
            && former_subject == subject
            && has_same_informers(&former.targets, &profile.targets)
        {
            return access.clone();
        }
        let access = match ProfilePermissions::for_informers(
            profile,
            subject,
            &self.operator_scope.watched,
        ) {
            Ok(access) => Some(Arc::new(access.status())),
            Err(error) => {
                tracing::warn!(profile = %profile.profile, %error, "no manifests for a profile");
                None
            }
        };
        known.access = Some((Arc::clone(profile), subject.clone(), access.clone()));
        access
    }
}

/// Sorts profiles of the operator namespace first, and then by age, the oldest profile first. The
/// name does not count, because a tenant could choose a name that sorts before other tenants'
/// names.
fn by_precedence<'a>(
    profiles: &'a [ClusterProfile],
    operator_namespace: &str,
) -> Vec<&'a ClusterProfile> {
    let mut all: Vec<_> = profiles.iter().collect();
    all.sort_by_key(|profile| {
        let tenants = *profile.profile.namespace != *operator_namespace;
        (tenants, profile.created.unwrap_or(Timestamp::MAX), &profile.uid, &profile.profile)
    });
    all
}

/// Stores in each target of `declared` the field indexes that the target declares and its stores
/// omit, for the profile's status.
fn set_omitted_indexes(profile: &mut ResolvedProfile, omitted: &OmittedIndexes) {
    if omitted.is_empty() {
        return;
    }
    for target in &mut profile.targets {
        let by = (profile.profile.clone(), Arc::clone(&target.name));
        target.left_out = omitted.get(&by).into_iter().flatten().cloned().collect();
    }
}

/// Returns the resolved form of a profile that has no valid generation: without targets, so that no
/// informer runs, and with the reason `refused` for the status.
fn unrunnable(profile: &ClusterProfile, refused: Option<Refusal>) -> ResolvedProfile {
    let (reference, uid) = (profile.profile.clone(), Arc::clone(&profile.uid));
    ResolvedProfile {
        refused,
        ..ResolvedProfile::without_targets(reference, uid, profile.generation)
    }
}

fn is_missing(target: &ResolvedTarget) -> bool {
    let refusal = target.resolved.as_ref().and_then(|resolved| resolved.as_ref().err());
    refusal.is_some_and(|refusal| refusal.reason == RefusalReason::UnknownResource)
}
