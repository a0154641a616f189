//! What a profile says of itself: conditions, counts and problems, computed from its declared cells.
//!
//! Sync state is computed from what is declared, never from what runs: nothing started must not
//! look like everything synced.

mod cell;
mod conditions;
mod difference;
mod events;
mod figures;
mod limit;
mod permissions;
mod problems;
mod publish;
mod reasons;
mod reference;
mod round;
mod sentence;
mod sink;
mod target;
#[cfg(test)]
mod tests;
mod trouble;
mod verdict;

pub use self::{
    cell::{CellView, Clock},
    events::Notice,
    permissions::{Excesses, excess},
    reference::{ReasonEntry, Reference, reference},
    round::{Observed, Reporter},
    sink::{ApiServer, Outcome, Write},
};

pub(crate) use self::publish::{ComputedStatuses, run};

use self::{conditions::conditions, target::Target, trouble::Voice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::{
    model::{CellKey, Declared, Mode, OnAccessLost},
    v1alpha1::{CacheProfileStatus, ResolvedScope, ResolvedStatus, TargetStatus, mebibytes},
};
use kubewarm_cache::store::Usage;
use std::{collections::BTreeMap, time::Duration};

/// Computes the status of a profile. Pure; equal inputs give equal statuses.
///
/// Where the profile has no plan, that of the same generation in `previous` stays. `previous` is the status computed
/// last, of the same profile by UID: `lastTransitionTime` and `timeToWarmMilliseconds` are carried over. Of another
/// process: see [`adopt`].
///
/// `cells` answers for a declared cell. One without a report does not run, and counts as not
/// synced. Of the words: a target is *warm* if every cell that it declares has been listed
/// completely and may still be served; it is *fresh* if each is known to be current within
/// `maxStaleness`, where a watch that is away for less than 5 seconds still counts as open.
///
/// # Cost
///
/// One call of `cells` for each declared cell, and about a microsecond a cell.
#[must_use]
pub fn compute(
    observed: &Observed,
    previous: Option<&CacheProfileStatus>,
    clock: Clock,
    cells: &dyn Fn(&CellKey) -> CellView,
) -> CacheProfileStatus {
    let Observed { declared, excess, .. } = observed;
    let (access, plan) = (observed.access.as_deref(), observed.plan.as_deref());
    // What others hold is none of what is only planned; what may be read is verified all the same.
    let planned = |key: &CellKey| cells(key).of_others();
    let cells = if declared.mode == Mode::Plan { &planned } else { cells };
    let targets: Vec<_> =
        declared.targets.iter().map(|target| Target::new(target, observed, clock, cells)).collect();
    let generation = Some(declared.generation);
    let same_generation = previous.filter(|previous| previous.observed_generation == generation);

    let mut all = BTreeMap::new();
    let rendered: Vec<_> = targets
        .iter()
        .map(|target| {
            let held = held(target, cells, declared.on_access_lost);
            let status = render(target, observed, previous, clock, total(&held));
            all.extend(held);
            status
        })
        .collect();

    let time_to_warm = same_generation
        .and_then(|previous| previous.time_to_warm_milliseconds)
        .or_else(|| slowest_required(&targets, &rendered));
    let since_accepted =
        clock.mono.saturating_duration_since(clock.process_start + declared.accepted_at);
    let took = time_to_warm.and_then(|took| u64::try_from(took).ok()).map(Duration::from_millis);
    let known = same_generation.and_then(|previous| previous.plan.as_ref());
    let status = plan.map(|plan| figures::plan(plan, known)).or_else(|| known.cloned());
    let status = status.filter(|_| declared.mode == Mode::Plan);
    let costs = status.as_ref().map(|status| figures::costs(status, plan, &declared.profile));
    let verdicts = conditions(declared, &targets, (access, costs), (took, since_accepted));
    let old = previous.map_or(&[][..], |previous| &previous.conditions);
    let total = total(&all);
    CacheProfileStatus {
        conditions: merge(old, verdicts, declared, clock),
        observed_generation: generation,
        warm_targets: Some(format!(
            "{}/{}",
            targets.iter().filter(|target| target.is_warm()).count(),
            targets.len()
        )),
        objects: Some(figures::count(total.objects)),
        memory: Some(mebibytes(total.bytes)),
        time_to_warm_milliseconds: time_to_warm,
        targets: rendered,
        access: access.map(|access| permissions::access(access, &targets, excess.as_ref())),
        plan: status,
    }
}

/// The status of another process, as a starting point for this one: times that were measured there
/// are left out, as is when its stores were last confirmed.
#[must_use]
pub fn adopt(mut foreign: CacheProfileStatus) -> CacheProfileStatus {
    foreign.time_to_warm_milliseconds = None;
    for target in &mut foreign.targets {
        (target.time_to_warm_milliseconds, target.last_confirmed_time) = (None, None);
    }
    foreign
}

fn total(held: &BTreeMap<&CellKey, Usage>) -> Usage {
    held.values().fold(Usage::default(), |sum, size| Usage {
        objects: sum.objects.saturating_add(size.objects),
        bytes: sum.bytes.saturating_add(size.bytes),
    })
}

/// What limits count of the target, whoever else holds the same: the cells that answer for it, or,
/// before any do, the declared ones.
fn held<'a>(
    target: &Target<'a>,
    cells: &dyn Fn(&CellKey) -> CellView,
    policy: OnAccessLost,
) -> BTreeMap<&'a CellKey, Usage> {
    match &target.declared.serving {
        Some(serving) if !serving.is_of(&target.declared.cells) && !target.is_warm() => {
            serving.cells.iter().map(|cell| (&cell.key, cells(&cell.key).usage(policy))).collect()
        }
        Some(_) | None => {
            target.cells.iter().map(|cell| (cell.key, cell.view.usage(policy))).collect()
        }
    }
}

/// The generation that answers. Cells that were synced a moment ago answer from the next run of the
/// controller on; it is said at once, so that a target that is warm never names an older generation.
fn serving_generation(target: &Target<'_>, declared: &Declared) -> Option<i64> {
    let serving = target.declared.serving.as_ref();
    let is_new = serving.is_none_or(|serving| !serving.is_of(&target.declared.cells));
    if is_new && target.is_warm() && declared.refused.is_none() {
        return Some(declared.generation);
    }
    serving.map(|serving| serving.generation)
}

/// `None` until every required target is warm, and where nothing runs; zero if none is required.
fn slowest_required(targets: &[Target<'_>], rendered: &[TargetStatus]) -> Option<i64> {
    targets.first()?;
    let required = targets.iter().zip(rendered).filter(|(target, _)| target.is_required());
    required
        .map(|(target, status)| status.time_to_warm_milliseconds.filter(|_| target.is_warm()))
        .try_fold(0, |slowest, took| Some(slowest.max(took?)))
}

/// The conditions that hold now, with the transition times of the `old` ones. In the order of `list`;
/// conditions of other types, of other versions of kubewarm, go.
fn merge(
    old: &[Condition],
    list: impl IntoIterator<Item = (&'static str, verdict::Verdict)>,
    declared: &Declared,
    clock: Clock,
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
            observed_generation: Some(declared.generation),
            last_transition_time: since.unwrap_or_else(|| figures::seconds(clock.wall)),
        }
    });
    merged.collect()
}

fn render(
    target: &Target<'_>,
    observed: &Observed,
    previous: Option<&CacheProfileStatus>,
    clock: Clock,
    size: Usage,
) -> TargetStatus {
    let Observed { declared, access, .. } = observed;
    let generation = Some(declared.generation);
    let is_same = previous.is_some_and(|previous| previous.observed_generation == generation);
    let old = previous
        .and_then(|previous| previous.targets.iter().find(|old| old.name == *target.declared.name));
    let kept = old.filter(|_| is_same);
    let kept = kept.and_then(|old| old.time_to_warm_milliseconds);
    let took = || target.time_to_warm(declared.accepted_at, clock).map(figures::millis);
    let conditions = old.map_or(&[][..], |old| &old.conditions);
    let (profile, access) = (&declared.profile, access.as_deref());
    let voice = Voice { profile, target: &target.declared.name, access };
    let verdicts = [
        ("Accepted", target.accepted.clone()),
        ("Warm", target.warm.clone()),
        ("Fresh", target.fresh.clone()),
        ("WithinLimits", target.within_limits.clone()),
    ];
    TargetStatus {
        name: target.declared.name.to_string(),
        problems: problems::problems(target, voice, clock),
        conditions: merge(conditions, verdicts, declared, clock),
        serving_generation: serving_generation(target, declared),
        objects: Some(figures::count(size.objects)),
        memory: Some(mebibytes(size.bytes)),
        time_to_warm_milliseconds: kept.or_else(took),
        last_confirmed_time: target.last_confirmed().map(figures::seconds),
        resolved: target.resolved().map(|resolved| ResolvedStatus {
            version: Some(resolved.resource.version().to_owned()),
            kind: Some(resolved.kind.to_string()),
            scope: Some(if resolved.namespaced {
                ResolvedScope::Namespaced
            } else {
                ResolvedScope::Cluster
            }),
            namespace_count: target::namespaces(target),
        }),
        informers: Some(figures::informers(&target.cells)),
        latency_milliseconds: figures::latency(&target.cells),
        last_relist: figures::last_relist(&target.cells),
    }
}
