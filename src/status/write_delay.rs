//! Decides whether kubewarm writes a changed status, and how long after the last write.

use kubewarm_api::v1alpha1::CacheProfileStatus;
use std::time::Duration;

/// Minimum interval between two status writes of one profile if the status or the reason of a
/// condition changed. It is short, because users and `kubectl wait` react to conditions.
const CONDITION_CHANGE: Duration = Duration::from_secs(1);
/// Minimum interval between two status writes of one profile if another field changed, for instance
/// a message. Such a change is less urgent than a changed condition.
const DETAIL_CHANGE: Duration = Duration::from_secs(10);
/// Minimum interval between two status writes of one profile if only object counts changed. Object
/// counts change all the time, and each write loads the API server.
const COUNT_CHANGE: Duration = Duration::from_mins(1);

/// Returns the minimum interval between the last status write and the write of `wanted`. `known` is
/// the status that was written last. Returns `None` if no write is needed.
///
/// # Cost
///
/// Copies both statuses, unless they are equal or differ in a condition's status or reason.
pub(super) fn write_delay(
    known: Option<&CacheProfileStatus>,
    wanted: &CacheProfileStatus,
) -> Option<Duration> {
    let Some(known) = known else { return Some(CONDITION_CHANGE) };
    if known == wanted {
        return None;
    }
    if !condition_keys(known).eq(condition_keys(wanted)) {
        return Some(CONDITION_CHANGE);
    }
    if normalize(known) != normalize(wanted) {
        return Some(DETAIL_CHANGE);
    }
    objects(known).ne(objects(wanted)).then_some(COUNT_CHANGE)
}

/// Returns `status` without object counts, and without fields whose change alone is no reason for a
/// write: memory, latencies, and the times of checks and retries.
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

/// Returns an entry with the name of each target, and an entry for each condition: target name,
/// type, status and reason. The target name is empty for a condition of the profile.
fn condition_keys(status: &CacheProfileStatus) -> impl Iterator<Item = [&str; 4]> {
    let targets = status.targets.iter().map(|target| (&*target.name, &target.conditions));
    std::iter::once(("", &status.conditions)).chain(targets).flat_map(|(target, conditions)| {
        let words = conditions.iter().map(move |condition| {
            [target, &*condition.type_, &*condition.status, &*condition.reason]
        });
        std::iter::once([target, "", "", ""]).chain(words)
    })
}
