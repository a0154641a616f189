//! How soon the step from one status of a profile to the next is written, if at all.

use kubewarm_api::v1alpha1::CacheProfileStatus;
use std::time::Duration;

/// Between writes of one profile, where a condition's status or reason changed.
const FLIP: Duration = Duration::from_secs(1);
/// Between writes of one profile for anything else but numbers of objects.
const DETAIL: Duration = Duration::from_secs(10);
/// Between writes of one profile for nothing but numbers of objects.
const OBJECTS: Duration = Duration::from_mins(1);

/// How long after the last write `wanted` is written over `known`; `None` if it need not be.
///
/// # Cost
///
/// Copies both statuses, unless they are equal.
pub(super) fn pause(
    known: Option<&CacheProfileStatus>,
    wanted: &CacheProfileStatus,
) -> Option<Duration> {
    let Some(known) = known else { return Some(FLIP) };
    if known == wanted {
        return None;
    }
    if !words(known).eq(words(wanted)) {
        return Some(FLIP);
    }
    if normalize(known) != normalize(wanted) {
        return Some(DETAIL);
    }
    objects(known).ne(objects(wanted)).then_some(OBJECTS)
}

/// `status` without numbers of objects, and without what never causes a write by itself.
fn normalize(status: &CacheProfileStatus) -> CacheProfileStatus {
    let mut status = CacheProfileStatus { memory: None, objects: None, ..status.clone() };
    if let Some(access) = &mut status.access {
        access.last_verified_time = None;
    }
    for target in &mut status.targets {
        (target.memory, target.objects) = (None, None);
        (target.latency_milliseconds, target.last_confirmed_time) = (None, None);
        target.problems.iter_mut().for_each(|problem| problem.next_retry_time = None);
    }
    status
}

fn objects(status: &CacheProfileStatus) -> impl Iterator<Item = Option<i64>> {
    std::iter::once(status.objects).chain(status.targets.iter().map(|target| target.objects))
}

/// Targets, and the type, status and reason of each condition.
fn words(status: &CacheProfileStatus) -> impl Iterator<Item = [&str; 4]> {
    let targets = status.targets.iter().map(|target| (&*target.name, &target.conditions));
    std::iter::once(("", &status.conditions)).chain(targets).flat_map(|(target, conditions)| {
        let words = conditions.iter().map(move |condition| {
            [target, &*condition.type_, &*condition.status, &*condition.reason]
        });
        std::iter::once([target, "", "", ""]).chain(words)
    })
}
