//! The reasons of conditions, and which reason belongs to each failed request, refusal and exceeded
//! limit.

use super::{informer::InformerState, reference};
use kubewarm_api::model::{FaultReason, LimitKind, RefusalReason};

/// The reason of a condition. The module `reference` explains each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
pub(super) enum ConditionReason {
    AccessRevoked,
    BelowLimits,
    CrossNamespaceNotAllowed,
    DeadlineMet,
    DeadlineMissed,
    Discovering,
    Forbidden,
    InvalidSpec,
    LimitExceeded,
    Measuring,
    MemoryExceeded,
    NamespaceNotFound,
    NoDeadline,
    NotListable,
    NotStalled,
    NotWarm,
    ObjectsExceeded,
    Paused,
    Pending,
    PermissionsMissing,
    Plan,
    Ready,
    Reconnecting,
    Relisting,
    Resolved,
    ResourceNotFound,
    ScopeMismatch,
    ScopeNotAvailable,
    ServerUnreachable,
    ServiceAccountNotFound,
    Stale,
    StreamTimedOut,
    Synced,
    Syncing,
    TargetsNotWarm,
    TokenRequestDenied,
    TooManyInformers,
    UnknownResource,
    UnsupportedField,
    Verified,
    Verifying,
    Warming,
    WatchSilent,
    WatchesCurrent,
}

impl ConditionReason {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl From<RefusalReason> for ConditionReason {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::UnknownResource => Self::UnknownResource,
            RefusalReason::NotListable => Self::NotListable,
            RefusalReason::ScopeMismatch => Self::ScopeMismatch,
            RefusalReason::CrossNamespaceNotAllowed => Self::CrossNamespaceNotAllowed,
            RefusalReason::ScopeNotAvailable => Self::ScopeNotAvailable,
            RefusalReason::ServiceAccountNotFound => Self::ServiceAccountNotFound,
            RefusalReason::UnsupportedField => Self::UnsupportedField,
            RefusalReason::TooManyInformers => Self::TooManyInformers,
            RefusalReason::LimitExceeded => Self::LimitExceeded,
            RefusalReason::InvalidSpec => Self::InvalidSpec,
        }
    }
}

impl From<LimitKind> for ConditionReason {
    fn from(measure: LimitKind) -> Self {
        match measure {
            LimitKind::Objects => Self::ObjectsExceeded,
            LimitKind::Memory => Self::MemoryExceeded,
        }
    }
}

/// Returns the rank of a reason among the reasons of `condition`. A reason with a smaller rank is
/// more severe.
pub(super) fn gravity(condition: &str, reason: ConditionReason) -> usize {
    reference::rank(condition, reason.as_str()).unwrap_or(usize::MAX)
}

/// How a failed request of an informer changes the status.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultEffect {
    /// The state by which the status counts the informer. If `None`, the state depends on whether
    /// the informer's first list is complete.
    pub(super) state: Option<InformerState>,
    /// The reason of the target's condition `Warm` if the request fails before the first list is
    /// complete.
    pub(super) warm: ConditionReason,
    /// Whether the failed request shows that the API server does not answer, or answers only with
    /// errors.
    pub(super) is_outage: bool,
}

pub(super) const fn fault_effect(reason: FaultReason) -> FaultEffect {
    let (state, warm, is_outage) = match reason {
        FaultReason::Forbidden
        | FaultReason::Unauthorized
        | FaultReason::TokenRequestDenied
        | FaultReason::ServiceAccountNotFound => {
            (Some(InformerState::Forbidden), ConditionReason::Forbidden, false)
        }
        FaultReason::NotServed => {
            (Some(InformerState::Missing), ConditionReason::ResourceNotFound, false)
        }
        FaultReason::NamespaceNotFound => {
            (Some(InformerState::Missing), ConditionReason::NamespaceNotFound, false)
        }
        FaultReason::NotListable => (None, ConditionReason::ResourceNotFound, false),
        FaultReason::Unreachable | FaultReason::ServerError | FaultReason::Throttled => {
            (None, ConditionReason::ServerUnreachable, true)
        }
        FaultReason::TimedOut => (None, ConditionReason::StreamTimedOut, true),
        FaultReason::Unverified => (None, ConditionReason::ServerUnreachable, false),
        FaultReason::Gone
        | FaultReason::Unsupported
        | FaultReason::Malformed
        | FaultReason::TooLarge
        | FaultReason::ClosedAtOnce
        | FaultReason::Internal => (None, ConditionReason::Syncing, false),
    };
    FaultEffect { state, warm, is_outage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_limits_keep_their_words() {
        for reason in [RefusalReason::UnknownResource, RefusalReason::TooManyInformers] {
            assert_eq!(ConditionReason::from(reason).as_str(), reason.as_str());
        }
        for measure in [LimitKind::Objects, LimitKind::Memory] {
            assert_eq!(ConditionReason::from(measure).as_str(), measure.as_str());
        }
    }

    #[test]
    fn what_only_an_edit_can_fix_is_graver_than_what_passes() {
        let invalid = gravity("Accepted", ConditionReason::InvalidSpec);
        assert!(invalid < gravity("Accepted", ConditionReason::UnknownResource));
        assert!(gravity("Fresh", ConditionReason::NotWarm) < usize::MAX);
    }
}
