//! The reasons that each condition can have, in the order of their severity, and the Events that
//! kubewarm sends about them. `docs/reference/conditions.md` has the cause of each reason and the
//! next step; a test compares it with this module.

use super::{
    events::{INCONSISTENT, NORMAL, NOT_READY, READY, REFUSED, ROLLED_BACK, WARNING},
    index_problems::{INDEX_WITHOUT_VALUES, UNKNOWN_FIELD},
    problems::{READ_AS_JSON, UNDECODABLE},
    reasons::ConditionReason,
};
use kubewarm_api::model::FaultReason;
use strum::VariantArray as _;

/// The condition reasons, Events and problems that `docs/reference/conditions.md` has to explain. A
/// test compares this list with the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Condition, status and reason, sorted by condition and then by severity, the most severe
    /// reason first.
    pub conditions: Vec<[&'static str; 3]>,
    /// Type and reason of each Event.
    pub events: Vec<[&'static str; 2]>,
    /// Problem reasons that are no condition reasons: they occur only in `targets[].problems`.
    pub problems: Vec<&'static str>,
}

/// The reasons of two Events about a condition. kubewarm sends a warning with the first reason when
/// the condition gets the `reason` of its [`ReasonRow`]. kubewarm sends a `Normal` Event with the
/// second reason when the condition becomes true again.
type Events = (&'static str, Option<&'static str>);

/// One reason that a condition can have.
#[derive(Clone, Copy, Debug)]
struct ReasonRow {
    condition: &'static str,
    status: &'static str,
    reason: ConditionReason,
    events: Option<Events>,
}

impl ReasonRow {
    const fn new(condition: &'static str, status: &'static str, reason: ConditionReason) -> Self {
        Self { condition, status, reason, events: None }
    }

    const fn with_events(self, began: &'static str, ended: Option<&'static str>) -> Self {
        Self { events: Some((began, ended)), ..self }
    }
}

/// The reasons, sorted by condition and then by severity, the most severe reason first.
const ROWS: &[ReasonRow] = &[
    ReasonRow::new("Ready", "False", ConditionReason::InvalidSpec),
    ReasonRow::new("Ready", "False", ConditionReason::PermissionsMissing),
    ReasonRow::new("Ready", "False", ConditionReason::LimitExceeded),
    ReasonRow::new("Ready", "False", ConditionReason::UnknownResource),
    ReasonRow::new("Ready", "False", ConditionReason::TargetsNotWarm),
    ReasonRow::new("Ready", "False", ConditionReason::Stale),
    ReasonRow::new("Ready", "Unknown", ConditionReason::Pending),
    ReasonRow::new("Ready", "Unknown", ConditionReason::Plan),
    ReasonRow::new("Ready", "Unknown", ConditionReason::Paused),
    ReasonRow::new("Ready", "True", ConditionReason::Ready),
    ReasonRow::new("Accepted", "False", ConditionReason::InvalidSpec),
    ReasonRow::new("Accepted", "False", ConditionReason::ServiceAccountNotFound),
    ReasonRow::new("Accepted", "False", ConditionReason::CrossNamespaceNotAllowed),
    ReasonRow::new("Accepted", "False", ConditionReason::ScopeNotAvailable),
    ReasonRow::new("Accepted", "False", ConditionReason::ScopeMismatch),
    ReasonRow::new("Accepted", "False", ConditionReason::UnsupportedField),
    ReasonRow::new("Accepted", "False", ConditionReason::TooManyInformers),
    ReasonRow::new("Accepted", "False", ConditionReason::LimitExceeded),
    ReasonRow::new("Accepted", "False", ConditionReason::NotListable),
    ReasonRow::new("Accepted", "False", ConditionReason::UnknownResource)
        .with_events("KindUnknown", Some("KindServed")),
    ReasonRow::new("Accepted", "Unknown", ConditionReason::Discovering),
    ReasonRow::new("Accepted", "True", ConditionReason::Resolved),
    ReasonRow::new("Authorized", "False", ConditionReason::AccessRevoked)
        .with_events("AccessRevoked", Some("AccessReturned")),
    ReasonRow::new("Authorized", "False", ConditionReason::TokenRequestDenied),
    ReasonRow::new("Authorized", "False", ConditionReason::PermissionsMissing),
    ReasonRow::new("Authorized", "Unknown", ConditionReason::Verifying),
    ReasonRow::new("Authorized", "True", ConditionReason::Verified),
    ReasonRow::new("Warm", "False", ConditionReason::Forbidden)
        .with_events("PermissionsMissing", Some("PermissionsGranted")),
    ReasonRow::new("Warm", "False", ConditionReason::ResourceNotFound),
    ReasonRow::new("Warm", "False", ConditionReason::NamespaceNotFound)
        .with_events("NamespaceNotFound", None),
    ReasonRow::new("Warm", "False", ConditionReason::ServerUnreachable),
    ReasonRow::new("Warm", "False", ConditionReason::StreamTimedOut),
    ReasonRow::new("Warm", "False", ConditionReason::Syncing),
    ReasonRow::new("Warm", "False", ConditionReason::Paused),
    ReasonRow::new("Warm", "False", ConditionReason::Plan),
    ReasonRow::new("Warm", "Unknown", ConditionReason::Pending),
    ReasonRow::new("Warm", "True", ConditionReason::Synced),
    ReasonRow::new("Fresh", "False", ConditionReason::ServerUnreachable),
    ReasonRow::new("Fresh", "False", ConditionReason::WatchSilent),
    ReasonRow::new("Fresh", "False", ConditionReason::Relisting),
    ReasonRow::new("Fresh", "False", ConditionReason::Reconnecting),
    ReasonRow::new("Fresh", "Unknown", ConditionReason::NotWarm),
    ReasonRow::new("Fresh", "True", ConditionReason::WatchesCurrent),
    ReasonRow::new("WithinLimits", "False", ConditionReason::MemoryExceeded)
        .with_events("LimitExceeded", Some("WithinLimits")),
    ReasonRow::new("WithinLimits", "False", ConditionReason::LimitExceeded),
    ReasonRow::new("WithinLimits", "False", ConditionReason::ObjectsExceeded)
        .with_events("LimitExceeded", Some("WithinLimits")),
    ReasonRow::new("WithinLimits", "Unknown", ConditionReason::Measuring),
    ReasonRow::new("WithinLimits", "True", ConditionReason::BelowLimits),
    ReasonRow::new("WarmupDeadlineMet", "False", ConditionReason::DeadlineMissed),
    ReasonRow::new("WarmupDeadlineMet", "Unknown", ConditionReason::Warming),
    ReasonRow::new("WarmupDeadlineMet", "Unknown", ConditionReason::NoDeadline),
    ReasonRow::new("WarmupDeadlineMet", "True", ConditionReason::DeadlineMet),
    ReasonRow::new("Stalled", "True", ConditionReason::InvalidSpec),
    ReasonRow::new("Stalled", "True", ConditionReason::CrossNamespaceNotAllowed),
    ReasonRow::new("Stalled", "True", ConditionReason::ScopeMismatch),
    ReasonRow::new("Stalled", "True", ConditionReason::UnsupportedField),
    ReasonRow::new("Stalled", "True", ConditionReason::TooManyInformers),
    ReasonRow::new("Stalled", "True", ConditionReason::NotListable),
    ReasonRow::new("Stalled", "Unknown", ConditionReason::Discovering),
    ReasonRow::new("Stalled", "False", ConditionReason::NotStalled),
];

/// Events that are not about one reason of a condition.
const OTHER_EVENTS: [[&str; 2]; 5] = [
    [NORMAL, READY],
    [WARNING, NOT_READY],
    [WARNING, REFUSED],
    [WARNING, ROLLED_BACK],
    [WARNING, INCONSISTENT],
];

/// Returns the rank of a reason among the reasons of `condition`. A reason with a smaller rank is
/// more severe. Returns `None` if the condition has no such reason.
pub(super) fn rank(condition: &str, reason: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.condition == condition && row.reason.as_str() == reason)
}

/// Whether a condition can have this status with this reason.
pub(super) fn has_row(condition: &str, status: &str, reason: ConditionReason) -> bool {
    let has_status = |row: &ReasonRow| [row.condition, row.status] == [condition, status];
    ROWS.iter().any(|row| has_status(row) && row.reason == reason)
}

/// Returns the reasons of the Events that kubewarm sends when `condition` gets or loses `reason`.
pub(super) fn events(condition: &str, reason: &str) -> Option<Events> {
    ROWS[rank(condition, reason)?].events
}

/// Returns the reasons, Events and problems that `docs/reference/conditions.md` has to explain.
pub fn reference() -> Reference {
    let about_reasons = ROWS.iter().filter_map(|row| row.events).flat_map(|(began, ended)| {
        [Some([WARNING, began]), ended.map(|ended| [NORMAL, ended])].into_iter().flatten()
    });
    let faults = FaultReason::VARIANTS.iter().map(|reason| reason.as_str());
    Reference {
        conditions: ROWS
            .iter()
            .map(|row| [row.condition, row.status, row.reason.as_str()])
            .collect(),
        events: OTHER_EVENTS.into_iter().chain(about_reasons).collect(),
        problems: faults
            .chain([UNDECODABLE, READ_AS_JSON, UNKNOWN_FIELD, INDEX_WITHOUT_VALUES])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::v1alpha1::CONDITION_TYPES;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_stands_once_under_a_condition_that_there_is() {
        let distinct: BTreeSet<_> =
            ROWS.iter().map(|row| (row.condition, row.reason.as_str())).collect();
        assert_eq!(distinct.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| CONDITION_TYPES.contains(&row.condition)));
    }

    #[test]
    fn every_reason_has_a_row() {
        for reason in ConditionReason::VARIANTS {
            assert!(ROWS.iter().any(|row| row.reason == *reason), "{reason:?}");
        }
    }
}
