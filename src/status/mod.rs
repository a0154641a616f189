//! Computes a profile's status from the informers that the profile needs, writes the status, and
//! sends Events.
//!
//! The computation does not start from the running informers. Otherwise a profile without running
//! informers would look synced.

mod condition_update;
mod conditions;
mod event_recorder;
mod events;
mod index_problems;
mod informer;
mod lease_event;
mod managed_fields;
mod messages;
mod permissions;
mod problems;
mod publish;
mod quantities;
mod reasons;
mod reference;
mod reporter;
mod sentence;
mod status_writer;
mod target;
#[cfg(test)]
mod tests;
mod within_limits;
mod write_delay;

pub use self::{
    event_recorder::EventRecorder,
    events::ProfileEvent,
    informer::{ClockReading, InformerView, LiveState},
    permissions::{ExcessByNamespace, excess},
    reference::{Reference, reference},
    reporter::{ObservedProfile, StatusReporter, StoredStatus},
    status_writer::{StatusWrite, StatusWriteOutcome, StatusWriter},
};

pub(crate) use self::{
    lease_event::send_lease_event,
    publish::{StatusesByProfile, run},
    status_writer::MAX_STATUS,
};

use self::{
    conditions::conditions,
    messages::{MessageContext, rbac_command},
    target::ObservedTarget,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::{
    model::{AccessLossPolicy, InformerKey, ProfileMode, ResolvedProfile},
    v1alpha1::{
        CacheProfileStatus, ResolvedResourceStatus, ResourceScope, TargetStatus, mebibytes,
    },
};
use kubewarm_cache::store::StoreUsage;
use std::{collections::BTreeMap, time::Duration};

/// Computes the status of a profile. Performs no I/O; equal inputs give equal statuses.
///
/// `previous` is the last status of the profile with the same UID. The result keeps the
/// `lastTransitionTime` of unchanged conditions, and `timeToWarmMilliseconds` if the profile's
/// generation is the same. If `observed` has no forecast, the result also keeps the forecast
/// (`plan`) of the same generation. A `previous` status from another process must first go through
/// [`adopt`].
///
/// An informer without a report in `live` does not run and counts as not synced.
///
/// A target is *warm* if clients can read the stores of all its informers. A target is *fresh* if
/// the last confirmation of each store is younger than `maxStaleness`. A watch that was interrupted
/// less than 5 seconds ago counts as open.
///
/// # Cost
///
/// One call of `live.informers` per informer, and about one microsecond per informer.
pub fn compute(
    observed: &ObservedProfile,
    previous: Option<&CacheProfileStatus>,
    clock: ClockReading,
    live: LiveState<'_>,
) -> CacheProfileStatus {
    let (profile, excess) = (&observed.resolved, (live.excess)(&observed.resolved));
    let (access, forecast) = (observed.access.as_deref(), observed.forecast.as_deref());
    // A profile in mode `Plan` runs no informer. Its status must not show reports of informers that
    // run for other profiles. It still contains results of access checks, which kubewarm makes in
    // each mode.
    let planned = |key: &InformerKey| (live.informers)(key).without_report();
    let informers = if profile.mode == ProfileMode::Plan { &planned } else { live.informers };
    let targets: Vec<_> = profile
        .targets
        .iter()
        .map(|target| ObservedTarget::new(target, observed, clock, informers))
        .collect();
    let generation = Some(profile.generation);
    let same_generation = previous.filter(|previous| previous.observed_generation == generation);

    let mut all = BTreeMap::new();
    let rendered: Vec<_> = targets
        .iter()
        .map(|target| {
            let usage = usage_by_informer(target, informers, profile.on_access_lost);
            let status = render(target, observed, previous, clock, total(&usage));
            all.extend(usage);
            status
        })
        .collect();

    let time_to_warm = same_generation
        .and_then(|previous| previous.time_to_warm_milliseconds)
        .or_else(|| slowest_required(&targets, &rendered));
    let since_accepted =
        clock.mono.saturating_duration_since(clock.process_start + profile.accepted_at);
    let took = time_to_warm.and_then(|took| u64::try_from(took).ok()).map(Duration::from_millis);
    let known = same_generation.and_then(|previous| previous.plan.as_ref());
    let status =
        forecast.map(|forecast| quantities::plan(forecast, known)).or_else(|| known.cloned());
    let status = status.filter(|_| profile.mode == ProfileMode::Plan);
    let rbac = rbac_command(&profile.profile, &observed.operator_namespace);
    let costs = status.as_ref().map(|status| quantities::costs(status, forecast, &rbac));
    let verdicts = conditions(profile, &targets, access, costs, took, since_accepted, &rbac);
    let old = previous.map_or(&[][..], |previous| &previous.conditions);
    let total = total(&all);
    CacheProfileStatus {
        conditions: merge(old, verdicts, profile, clock),
        observed_generation: generation,
        warm_targets: Some(format!(
            "{}/{}",
            targets.iter().filter(|target| target.is_warm()).count(),
            targets.len()
        )),
        objects: Some(quantities::count(total.objects)),
        memory: Some(mebibytes(total.bytes)),
        time_to_warm_milliseconds: time_to_warm,
        targets: rendered,
        access: access.map(|access| permissions::access(access, &targets, excess.as_ref())),
        plan: status,
    }
}

/// Removes the times that are true only in the process that wrote the status `foreign`: the times
/// to warm, and the times at which that process last confirmed its stores.
pub fn adopt(mut foreign: CacheProfileStatus) -> CacheProfileStatus {
    foreign.time_to_warm_milliseconds = None;
    for target in &mut foreign.targets {
        (target.time_to_warm_milliseconds, target.last_confirmed_time) = (None, None);
    }
    foreign
}

fn total(usage: &BTreeMap<&InformerKey, StoreUsage>) -> StoreUsage {
    usage.values().fold(StoreUsage::default(), |sum, size| StoreUsage {
        objects: sum.objects.saturating_add(size.objects),
        bytes: sum.bytes.saturating_add(size.bytes),
    })
}

/// Returns the informers that count against the target's limits, with the objects and bytes of each
/// informer. An informer counts even if several profiles share it.
///
/// After an edit, the result contains the informers of the earlier profile generation until the
/// target is warm, because clients read these informers' stores. In all other cases it contains the
/// informers of the newest generation.
fn usage_by_informer<'a>(
    target: &ObservedTarget<'a>,
    informers: &dyn Fn(&InformerKey) -> InformerView,
    policy: AccessLossPolicy,
) -> BTreeMap<&'a InformerKey, StoreUsage> {
    match &target.declared.serving {
        Some(serving) if !serving.is_of(&target.declared.informers) && !target.is_warm() => serving
            .informers
            .iter()
            .map(|informer| (&informer.key, informers(&informer.key).usage(policy)))
            .collect(),
        Some(_) | None => target
            .informers
            .iter()
            .map(|informer| (informer.key, informer.view.usage(policy)))
            .collect(),
    }
}

/// Returns the profile generation whose informers serve reads of `target`.
///
/// Newly synced informers serve reads only after the controller's next reconciliation. The status
/// reports the new informers' generation before that. Otherwise a warm target could show the
/// generation that an edit replaced.
fn serving_generation(target: &ObservedTarget<'_>, profile: &ResolvedProfile) -> Option<i64> {
    let serving = target.declared.serving.as_ref();
    let is_new = serving.is_none_or(|serving| !serving.is_of(&target.declared.informers));
    if is_new && target.is_warm() && profile.refused.is_none() {
        return Some(profile.generation);
    }
    serving.map(|serving| serving.generation)
}

/// Returns the time to warm of the slowest required target, in milliseconds. Returns `None` until
/// every required target is warm, and for a profile without targets. Returns 0 if all targets are
/// optional.
fn slowest_required(targets: &[ObservedTarget<'_>], rendered: &[TargetStatus]) -> Option<i64> {
    targets.first()?;
    let required = targets.iter().zip(rendered).filter(|(target, _)| target.is_required());
    required
        .map(|(target, status)| status.time_to_warm_milliseconds.filter(|_| target.is_warm()))
        .try_fold(0, |slowest, took| Some(slowest.max(took?)))
}

/// Returns the conditions of `list` in the same order. If a condition has the same status in `old`,
/// it keeps the transition time from `old`.
///
/// Drops conditions in `old` that `list` does not contain, because another version of kubewarm
/// wrote them.
fn merge(
    old: &[Condition],
    list: impl IntoIterator<Item = (&'static str, condition_update::ConditionUpdate)>,
    profile: &ResolvedProfile,
    clock: ClockReading,
) -> Vec<Condition> {
    let merged = list.into_iter().map(|(type_, verdict)| {
        let status = match verdict.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        debug_assert!(reference::has_row(type_, status, verdict.reason), "{type_}: {verdict:?}");
        let same = old.iter().find(|old| old.type_ == type_ && old.status == status);
        let since = same.map(|old| old.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.as_str().to_owned(),
            message: verdict.message,
            observed_generation: Some(profile.generation),
            last_transition_time: since.unwrap_or_else(|| quantities::seconds(clock.wall)),
        }
    });
    merged.collect()
}

fn render(
    target: &ObservedTarget<'_>,
    observed: &ObservedProfile,
    previous: Option<&CacheProfileStatus>,
    clock: ClockReading,
    size: StoreUsage,
) -> TargetStatus {
    let ObservedProfile { resolved: profile, access, .. } = observed;
    let generation = Some(profile.generation);
    let is_same = previous.is_some_and(|previous| previous.observed_generation == generation);
    let old = previous
        .and_then(|previous| previous.targets.iter().find(|old| old.name == *target.declared.name));
    let kept = old.filter(|_| is_same);
    let kept = kept.and_then(|old| old.time_to_warm_milliseconds);
    let took = || target.time_to_warm(profile.accepted_at, clock).map(quantities::millis);
    let conditions = old.map_or(&[][..], |old| &old.conditions);
    let context = MessageContext {
        profile: &profile.profile,
        target: &target.declared.name,
        access: access.as_deref(),
        operator_namespace: &observed.operator_namespace,
    };
    let verdicts = [
        ("Accepted", target.accepted.clone()),
        ("Warm", target.warm.clone()),
        ("Fresh", target.fresh.clone()),
        ("WithinLimits", target.within_limits.clone()),
    ];
    TargetStatus {
        name: target.declared.name.to_string(),
        problems: problems::problems(target, context, clock),
        conditions: merge(conditions, verdicts, profile, clock),
        serving_generation: serving_generation(target, profile),
        objects: Some(quantities::count(size.objects)),
        memory: Some(mebibytes(size.bytes)),
        time_to_warm_milliseconds: kept.or_else(took),
        last_confirmed_time: target.last_confirmed().map(quantities::seconds),
        resolved: target.resolved().map(|resolved| ResolvedResourceStatus {
            version: Some(resolved.resource.version().to_owned()),
            kind: Some(resolved.kind.to_string()),
            scope: Some(if resolved.is_namespaced {
                ResourceScope::Namespaced
            } else {
                ResourceScope::Cluster
            }),
            namespace_count: target::namespaces(target),
        }),
        informers: Some(quantities::informers(&target.informers)),
        latency_milliseconds: quantities::latency(&target.informers),
        last_relist: quantities::last_relist(&target.informers),
    }
}
