//! The reasons of the targets' conditions: their severity, their Events, and the faults that cause
//! them.

use super::cell::CellState;
use kubewarm_api::model::Reason;

struct ReasonRow {
    condition: &'static str,
    reason: &'static str,
    events: Option<Events>,
}

/// Reason of the warning Event when a condition gets this reason, and of the Event when the
/// condition becomes true again.
type Events = (&'static str, Option<&'static str>);

/// The reasons of each condition, the most severe first. A reason that is not listed is the least
/// severe.
const ROWS: &[ReasonRow] = &[
    quiet("Accepted", "InvalidSpec"),
    quiet("Accepted", "ServiceAccountNotFound"),
    quiet("Accepted", "CrossNamespaceNotAllowed"),
    quiet("Accepted", "ScopeNotAvailable"),
    quiet("Accepted", "ScopeMismatch"),
    quiet("Accepted", "UnsupportedField"),
    quiet("Accepted", "TooManyCells"),
    quiet("Accepted", "NotListable"),
    told("Accepted", "UnknownResource", "KindUnknown", Some("KindServed")),
    told("Authorized", "AccessRevoked", "AccessRevoked", Some("AccessReturned")),
    quiet("Authorized", "TokenRequestDenied"),
    quiet("Authorized", "PermissionsMissing"),
    quiet("Authorized", "Verifying"),
    told("Warm", "Forbidden", "PermissionsMissing", Some("PermissionsGranted")),
    quiet("Warm", "ResourceNotFound"),
    told("Warm", "NamespaceNotFound", "NamespaceNotFound", None),
    quiet("Warm", "ServerUnreachable"),
    quiet("Warm", "StreamTimedOut"),
    quiet("Warm", "Syncing"),
    quiet("Warm", "Paused"),
    quiet("Warm", "PlanOnly"),
    quiet("Fresh", "ServerUnreachable"),
    quiet("Fresh", "WatchSilent"),
    quiet("Fresh", "Relisting"),
    quiet("Fresh", "Reconnecting"),
    quiet("Fresh", "NotWarm"),
    told("WithinLimits", "MemoryExceeded", "LimitExceeded", Some("WithinLimits")),
    told("WithinLimits", "ObjectsExceeded", "LimitExceeded", Some("WithinLimits")),
    quiet("WithinLimits", "Measuring"),
];

const fn quiet(condition: &'static str, reason: &'static str) -> ReasonRow {
    ReasonRow { condition, reason, events: None }
}

const fn told(
    condition: &'static str,
    reason: &'static str,
    began: &'static str,
    ended: Option<&'static str>,
) -> ReasonRow {
    ReasonRow { condition, reason, events: Some((began, ended)) }
}

/// Position of a reason in `ROWS`. A smaller position is more severe.
pub(super) fn gravity(condition: &str, reason: &str) -> usize {
    let found = ROWS.iter().position(|row| row.condition == condition && row.reason == reason);
    found.unwrap_or(ROWS.len())
}

/// Returns the Events of a reason, or `None` if it sends none.
pub(super) fn events(condition: &str, reason: &str) -> Option<Events> {
    ROWS.get(gravity(condition, reason))?.events
}

/// How a fault of an informer affects the status.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultRow {
    /// The state in which the informer is counted. `None`: that depends on whether it has synced.
    pub(super) state: Option<CellState>,
    /// The reason of `Warm` before the first sync.
    pub(super) warm: &'static str,
    /// Whether the API server does not answer, or only with errors.
    pub(super) is_outage: bool,
}

/// Returns the effect of a fault with this reason.
pub(super) const fn of_fault(reason: Reason) -> FaultRow {
    let (state, warm, is_outage) = match reason {
        Reason::Forbidden
        | Reason::Unauthorized
        | Reason::TokenRequestDenied
        | Reason::ServiceAccountNotFound => (Some(CellState::Forbidden), "Forbidden", false),
        Reason::NotServed => (Some(CellState::Missing), "ResourceNotFound", false),
        Reason::NamespaceNotFound => (Some(CellState::Missing), "NamespaceNotFound", false),
        Reason::NotListable => (None, "ResourceNotFound", false),
        Reason::Unreachable | Reason::ServerError | Reason::Throttled => {
            (None, "ServerUnreachable", true)
        }
        Reason::TimedOut => (None, "StreamTimedOut", true),
        Reason::Unverified => (None, "ServerUnreachable", false),
        Reason::Gone
        | Reason::Unsupported
        | Reason::Malformed
        | Reason::TooLarge
        | Reason::ClosedAtOnce
        | Reason::Internal => (None, "Syncing", false),
    };
    FaultRow { state, warm, is_outage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::{model::RefusalReason, v1alpha1::CONDITION_TYPES};
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_is_listed_once_under_an_existing_condition() {
        let rows: BTreeSet<_> = ROWS.iter().map(|row| (row.condition, row.reason)).collect();
        assert_eq!(rows.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| CONDITION_TYPES.contains(&row.condition)));
    }

    #[test]
    fn reasons_that_need_an_edit_outrank_reasons_that_recover() {
        let position = |reason: RefusalReason| gravity("Accepted", reason.as_str());
        assert!(position(RefusalReason::InvalidSpec) < position(RefusalReason::UnknownResource));
        assert!(gravity("Fresh", "NotWarm") < gravity("Fresh", "no such reason"));
    }
}
