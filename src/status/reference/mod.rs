//! For each reason of a condition: the cause, the next step for the user, the severity and the
//! Events that kubewarm sends. A test generates `docs/reference/conditions.md` from this module.

mod data;
mod profile;

use super::{
    events::{INCONSISTENT, NORMAL, NOT_READY, READY, REFUSED, ROLLED_BACK, WARNING},
    problems::{READ_AS_JSON, UNDECODABLE},
    reasons::ConditionReason,
};
use kubewarm_api::{model::FaultReason, v1alpha1::CONDITION_TYPES};
use strum::VariantArray as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonEntry {
    /// Type of the condition or Event; empty for a problem of a target.
    pub type_: &'static str,
    /// Status of the condition; empty for an Event or a problem of a target.
    pub status: &'static str,
    pub reason: &'static str,
    /// Why the reason occurs, in one sentence.
    pub cause: &'static str,
    pub next: &'static str,
}

/// Every reason that a status or an Event can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Reasons of conditions, sorted by condition and then by severity, the most severe reason
    /// first.
    pub conditions: Vec<ReasonEntry>,
    pub events: Vec<ReasonEntry>,
    /// Reasons that occur only in `targets[].problems`.
    pub problems: Vec<ReasonEntry>,
}

/// The reasons of two Events about a condition. kubewarm sends a warning with the first reason when
/// the condition gets the `reason` of its [`ReasonRow`]. kubewarm sends a `Normal` Event with the
/// second reason when the condition becomes true again.
type Events = (&'static str, Option<&'static str>);

/// One reason that a condition can have, with its explanation and its Events.
#[derive(Clone, Copy, Debug)]
struct ReasonRow {
    condition: &'static str,
    status: &'static str,
    reason: ConditionReason,
    cause: &'static str,
    next: &'static str,
    events: Option<Events>,
}

impl ReasonRow {
    const fn new(
        condition: &'static str,
        status: &'static str,
        reason: ConditionReason,
        cause: &'static str,
        next: &'static str,
    ) -> Self {
        Self { condition, status, reason, cause, next, events: None }
    }

    const fn with_events(self, began: &'static str, ended: Option<&'static str>) -> Self {
        Self { events: Some((began, ended)), ..self }
    }
}

// Texts for the next step that many reasons share. The introduction of
// `docs/reference/conditions.md` explains each text.
const NOTHING: &str = "None.";
const EDIT: &str = "Edit.";
const GRANT: &str = "Grant.";
const WAIT: &str = "Wait.";
const LOOK: &str = "Status.";
const RAISE: &str = "Raise.";

/// Explanations of Events. Each array contains the Event's type, reason, cause and next step.
const EVENTS: &[[&str; 4]] = &[
    [NORMAL, READY, "All required targets are warm and fresh.", NOTHING],
    [WARNING, NOT_READY, "`Ready` became `False`; the note has the reason.", LOOK],
    [WARNING, REFUSED, "`Stalled` became `True`: only an edit of the profile helps.", EDIT],
    [
        WARNING,
        "KindUnknown",
        "The API server does not serve the kind of a target.",
        "Install its CRD or API service.",
    ],
    [NORMAL, "KindServed", "The API server serves the kind of a target again.", NOTHING],
    [
        WARNING,
        "AccessRevoked",
        "The API server refuses a list or a watch that it allowed before.",
        GRANT,
    ],
    [NORMAL, "AccessReturned", "The API server allows every list and watch again.", NOTHING],
    [
        WARNING,
        "PermissionsMissing",
        "The API server refuses the first list of a target or its watch.",
        GRANT,
    ],
    [
        NORMAL,
        "PermissionsGranted",
        "A target became warm after permissions had been missing.",
        NOTHING,
    ],
    [
        WARNING,
        "NamespaceNotFound",
        "A namespace of a target does not exist.",
        "Create the namespace, or remove it from the scope.",
    ],
    [WARNING, "LimitExceeded", "A limit stopped a target.", RAISE],
    [NORMAL, "WithinLimits", "A target that a limit had stopped fits again.", NOTHING],
    [
        WARNING,
        ROLLED_BACK,
        "Resource versions went back, as after a restore of etcd.",
        "Check the API server's backups; kubewarm has already relisted.",
    ],
    [
        WARNING,
        INCONSISTENT,
        "A comparison found other objects than the API server has.",
        "Report it with the log.",
    ],
];

/// Returns the reasons of all conditions, sorted by condition and then by severity, the most severe
/// reason first.
fn rows() -> impl Iterator<Item = &'static ReasonRow> {
    profile::PROFILE.iter().chain(data::DATA)
}

/// Returns the rank of a reason among the reasons of `condition`. A reason with a smaller rank is
/// more severe. Returns `None` if the condition has no such reason.
pub(super) fn rank(condition: &str, reason: &str) -> Option<usize> {
    rows().position(|row| row.condition == condition && row.reason.as_str() == reason)
}

/// Whether a condition can have this status with this reason.
pub(super) fn has_row(condition: &str, status: &str, reason: ConditionReason) -> bool {
    let row = |row: &ReasonRow| [row.condition, row.status] == [condition, status];
    rows().any(|it| row(it) && it.reason == reason)
}

/// Returns the reasons of the Events that kubewarm sends when `condition` gets or loses `reason`.
pub(super) fn events(condition: &str, reason: &str) -> Option<Events> {
    rows().nth(rank(condition, reason)?)?.events
}

/// Returns the explanation of every reason, for the documentation.
#[must_use]
pub fn reference() -> Reference {
    let condition = |row: &ReasonRow| ReasonEntry {
        type_: row.condition,
        status: row.status,
        reason: row.reason.as_str(),
        cause: row.cause,
        next: row.next,
    };
    let of_type = |type_: &'static str| rows().filter(move |row| row.condition == type_);
    let event = |&[type_, reason, cause, next]: &[&'static str; 4]| ReasonEntry {
        type_,
        status: "",
        reason,
        cause,
        next,
    };
    let problem = |reason: &'static str, [cause, next]: [&'static str; 2]| ReasonEntry {
        type_: "",
        status: "",
        reason,
        cause,
        next,
    };
    let undecodable = [
        "kubewarm cannot decode an object. Each get, list or watch that needs the object gets 500, or is forwarded.",
        "Look at the object with kubectl, and at what writes it.",
    ];
    let read_as_json = [
        "kubewarm reads the kind as JSON, because its protobuf has an unknown field, differs from the JSON, or is not UTF-8.",
        "Upgrade kubewarm, or remove the text that is not UTF-8 and restart kubewarm. Until then, clients that accept only protobuf get 406.",
    ];
    let faults =
        FaultReason::VARIANTS.iter().map(|reason| problem(reason.as_str(), fault(*reason)));
    Reference {
        conditions: CONDITION_TYPES.into_iter().flat_map(of_type).map(condition).collect(),
        events: EVENTS.iter().map(event).collect(),
        problems: faults
            .chain([problem(UNDECODABLE, undecodable), problem(READ_AS_JSON, read_as_json)])
            .collect(),
    }
}

/// Returns the cause of a failed request, and the next step for the user.
const fn fault(reason: FaultReason) -> [&'static str; 2] {
    match reason {
        FaultReason::Forbidden => ["The API server refuses the request with 403.", GRANT],
        FaultReason::Unauthorized => [
            "The API server does not accept the credentials and answers 401.",
            "Check that the token is valid and that the account exists.",
        ],
        FaultReason::NotServed => [
            "The API server does not serve the kind and answers 404.",
            "Install the CRD or API service.",
        ],
        FaultReason::NamespaceNotFound => {
            ["The namespace does not exist.", "Create the namespace, or remove it from the scope."]
        }
        FaultReason::NotListable => {
            ["The kind has no such verb; the API server answers 405.", "Remove the target."]
        }
        FaultReason::Gone => ["The resource version or the continue token is too old.", WAIT],
        FaultReason::Unsupported => ["The API server rejects a parameter of the request.", WAIT],
        FaultReason::Throttled => {
            ["The API server answers 429.", "Look at the API server's flow control if this lasts."]
        }
        FaultReason::ServerError => [
            "The API server answers with a 5xx code or an unexpected one.",
            "Check the API server if this lasts.",
        ],
        FaultReason::Unreachable => {
            ["The connection fails or breaks.", "Check the API server and the network."]
        }
        FaultReason::TimedOut => [
            "The API server sends no headers, or no data, in time.",
            "Check the API server and the network.",
        ],
        FaultReason::Malformed => [
            "The answer does not follow the protocol.",
            "Look for a proxy between kubewarm and the API server.",
        ],
        FaultReason::TooLarge => [
            "One object or one line is larger than kubewarm accepts.",
            "Find the object, and make it smaller.",
        ],
        FaultReason::ClosedAtOnce => [
            "The watch ends at once, again and again.",
            "Check the API server, and proxies between it and kubewarm.",
        ],
        FaultReason::TokenRequestDenied => {
            ["kubewarm may not request tokens of the profile's ServiceAccount.", GRANT]
        }
        FaultReason::ServiceAccountNotFound => {
            ["The profile's ServiceAccount does not exist.", "Create the ServiceAccount."]
        }
        FaultReason::Unverified => [
            "No list or watch has confirmed the permission for too long.",
            "Check the API server; a confirmation ends the problem.",
        ],
        FaultReason::Internal => ["A task of kubewarm panicked: a bug.", "Report it with the log."],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_stands_once_under_a_condition_that_there_is() {
        let distinct: BTreeSet<_> =
            rows().map(|row| (row.condition, row.reason.as_str())).collect();
        assert_eq!(distinct.len(), rows().count());
        assert!(rows().all(|row| CONDITION_TYPES.contains(&row.condition)));
    }

    #[test]
    fn every_reason_has_a_row() {
        for reason in ConditionReason::VARIANTS {
            assert!(rows().any(|row| row.reason == *reason), "{reason:?}");
        }
    }

    #[test]
    fn every_event_of_a_reason_is_described() {
        let described: BTreeSet<_> = EVENTS.iter().map(|[_, reason, ..]| *reason).collect();
        assert_eq!(described.len(), EVENTS.len());
        for (began, ended) in rows().filter_map(|row| row.events) {
            for event in [Some(began), ended].into_iter().flatten() {
                assert!(described.contains(event), "{event}");
            }
        }
    }

    #[test]
    fn every_entry_has_two_sentences() {
        let Reference { conditions, events, problems } = reference();
        for entry in conditions.iter().chain(&events).chain(&problems) {
            for sentence in [entry.cause, entry.next] {
                assert!(sentence.ends_with('.'), "{entry:?}");
                assert!(sentence.split(' ').count() <= 22, "{entry:?}");
            }
        }
    }
}
