//! How much two statuses of a profile differ: what may wait, and what nobody needs to hear.

use crate::api::{AccessStatus, CacheProfileStatus, Problem, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// How soon a difference deserves a write. Ordered: a greater one more urgently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Difference {
    /// None, or only what never causes a write by itself: resource versions, memory, latencies,
    /// the time of the next retry, when access was last verified.
    Quiet,
    /// Numbers of objects.
    Objects,
    /// Anything else.
    Detail,
    /// A condition's status or reason.
    Flip,
}

impl Difference {
    /// From `old`, if there is one, to `new`.
    pub(super) fn between(old: Option<&CacheProfileStatus>, new: &CacheProfileStatus) -> Self {
        let Some(old) = old else { return Self::Flip };
        let targets_line_up = old.targets.len() == new.targets.len()
            && old.targets.iter().zip(&new.targets).all(|(old, new)| old.name == new.name);
        let pairs = || old.targets.iter().zip(&new.targets);
        if !same_words(&old.conditions, &new.conditions)
            || !targets_line_up
            || pairs().any(|(old, new)| !same_words(&old.conditions, &new.conditions))
        {
            return Self::Flip;
        }
        if !same_profile(old, new) || pairs().any(|(old, new)| !same_target(old, new)) {
            return Self::Detail;
        }
        let objects = pairs().any(|(old, new)| old.objects != new.objects);
        if objects || old.objects != new.objects { Self::Objects } else { Self::Quiet }
    }
}

fn same_words(old: &[Condition], new: &[Condition]) -> bool {
    let same = |(old, new): (&Condition, &Condition)| {
        old.type_ == new.type_ && old.status == new.status && old.reason == new.reason
    };
    old.len() == new.len() && old.iter().zip(new).all(same)
}

/// No `..`: a new field must be put into one of the classes before this compiles again.
fn same_profile(old: &CacheProfileStatus, new: &CacheProfileStatus) -> bool {
    let CacheProfileStatus {
        conditions,
        observed_generation,
        warm_targets,
        objects: _,
        memory: _,
        time_to_warm_milliseconds,
        targets: _,
        access,
        plan,
    } = old;
    *conditions == new.conditions
        && *observed_generation == new.observed_generation
        && *warm_targets == new.warm_targets
        && *time_to_warm_milliseconds == new.time_to_warm_milliseconds
        && same_access(access.as_ref(), new.access.as_ref())
        && *plan == new.plan
}

/// No `..`, as above.
fn same_access(old: Option<&AccessStatus>, new: Option<&AccessStatus>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
    let AccessStatus {
        subject,
        method,
        last_verified_time: _,
        roles,
        missing,
        excess,
        excess_completeness,
        manifests,
        manifests_elevated,
    } = old;
    *subject == new.subject
        && *method == new.method
        && *roles == new.roles
        && *missing == new.missing
        && *excess == new.excess
        && *excess_completeness == new.excess_completeness
        && *manifests == new.manifests
        && *manifests_elevated == new.manifests_elevated
}

/// No `..`, as above.
fn same_target(old: &TargetStatus, new: &TargetStatus) -> bool {
    let TargetStatus {
        name,
        conditions,
        serving_generation,
        objects: _,
        memory: _,
        resource_version: _,
        time_to_warm_milliseconds,
        problems,
        resolved,
        cells,
        latency_milliseconds: _,
        last_relist,
    } = old;
    *name == new.name
        && *conditions == new.conditions
        && *serving_generation == new.serving_generation
        && *time_to_warm_milliseconds == new.time_to_warm_milliseconds
        && problems.len() == new.problems.len()
        && problems.iter().zip(&new.problems).all(|(old, new)| same_problem(old, new))
        && *resolved == new.resolved
        && *cells == new.cells
        && *last_relist == new.last_relist
}

/// No `..`, as above.
fn same_problem(old: &Problem, new: &Problem) -> bool {
    let Problem { namespace, reason, message, next_retry_time: _, object } = old;
    *namespace == new.namespace
        && *reason == new.reason
        && *message == new.message
        && *object == new.object
}
