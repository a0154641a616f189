//! Why a condition is not true: which reasons there are, which is graver, and which of them people are told of;
//! and what the faults of cells come to.

use super::cell::CellState;
use kubewarm_api::model::Reason;

/// A reason of one condition.
struct ReasonRow {
    condition: &'static str,
    reason: &'static str,
    events: Option<Events>,
}

/// The `reason` of the warning when a condition comes to have a reason, and of the Event when the
/// condition is true again.
type Events = (&'static str, Option<&'static str>);

/// The reasons of each condition of targets, the gravest first. What is not in it is the least grave.
const ROWS: &[ReasonRow] = &[
    quiet("Accepted", "InvalidSpec"),
    quiet("Accepted", "ServiceAccountNotFound"),
    quiet("Accepted", "CrossNamespaceNotAllowed"),
    quiet("Accepted", "ScopeNotAvailable"),
    quiet("Accepted", "ScopeMismatch"),
    quiet("Accepted", "UnsupportedField"),
    quiet("Accepted", "TooManyInformers"),
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
    quiet("Warm", "Plan"),
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

/// The place of a reason among those of its condition: less is graver.
pub(super) fn gravity(condition: &str, reason: &str) -> usize {
    let found = ROWS.iter().position(|row| row.condition == condition && row.reason == reason);
    found.unwrap_or(ROWS.len())
}

/// What people are told of a reason.
pub(super) fn events(condition: &str, reason: &str) -> Option<Events> {
    ROWS.get(gravity(condition, reason))?.events
}

/// What a fault of a cell comes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultRow {
    /// Where the cell is counted, whatever it holds; `None`: that depends on what it holds.
    pub(super) state: Option<CellState>,
    /// The reason of `Warm` before the first sync.
    pub(super) warm: &'static str,
    /// Whether the API server does not answer, or only with errors.
    pub(super) is_outage: bool,
}

/// The row of a fault with this reason.
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
    use crate::status::CONDITIONS;
    use kubewarm_api::model::RefusalReason;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_stands_once_under_a_condition_that_there_is() {
        let rows: BTreeSet<_> = ROWS.iter().map(|row| (row.condition, row.reason)).collect();
        assert_eq!(rows.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| CONDITIONS.contains(&row.condition)));
    }

    #[test]
    fn what_only_an_edit_can_mend_is_graver_than_what_mends_by_itself() {
        let place = |reason: RefusalReason| gravity("Accepted", reason.as_str());
        assert!(place(RefusalReason::InvalidSpec) < place(RefusalReason::UnknownResource));
        assert!(gravity("Fresh", "NotWarm") < gravity("Fresh", "no such reason"));
    }
}
