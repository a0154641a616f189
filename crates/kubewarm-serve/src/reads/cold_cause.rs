//! Decides why no informer is readable that can answer a request.

use super::RETRY_AFTER_SECONDS;
use kubewarm_api::model::{FaultReason, GroupResource};
use kubewarm_cache::informer::InformerReport;
use kubewarm_wire::StatusError;

/// Why no informer that can answer a request is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColdCause {
    /// At least one informer lists, or waits for its list. Or the informers have different causes,
    /// and one of them can end by itself.
    NotWarm,
    /// All informers are blocked because kubewarm could not verify their access.
    Unverified,
    /// All informers lack permission to list or watch, or only a person can help for different
    /// causes.
    Forbidden,
    /// kubewarm may not request tokens of the ServiceAccounts with which the informers read.
    TokenDenied,
    /// The ServiceAccounts with which the informers read do not exist.
    NoServiceAccount,
    /// All informers were paused before their first list was complete.
    Paused,
}

impl ColdCause {
    /// Why the informer in the state `report` is not readable.
    pub(super) fn of(report: &InformerReport) -> Self {
        let reason = report.fault.as_ref().map(|fault| fault.reason);
        if reason == Some(FaultReason::ServiceAccountNotFound) {
            Self::NoServiceAccount
        } else if reason == Some(FaultReason::TokenRequestDenied) {
            Self::TokenDenied
        } else if report.is_forbidden() {
            Self::Forbidden
        } else if report.is_unverified() {
            Self::Unverified
        } else {
            Self::NotWarm
        }
    }

    /// The common cause of several informers that are not readable.
    pub(super) fn combine(self, other: Self) -> Self {
        let is_denied = |cause| {
            matches!(
                cause,
                Self::Forbidden | Self::TokenDenied | Self::NoServiceAccount | Self::Paused
            )
        };
        if self == other {
            self
        } else if is_denied(self) && is_denied(other) {
            Self::Forbidden
        } else {
            Self::NotWarm
        }
    }

    pub(super) fn error(self, resource: &GroupResource) -> StatusError {
        let access_missing = |why| StatusError::access_missing(resource, why);
        match self {
            Self::NotWarm => StatusError::not_warm(resource, RETRY_AFTER_SECONDS),
            Self::Unverified => StatusError::access_unverified(resource, RETRY_AFTER_SECONDS),
            Self::Forbidden => access_missing("kubewarm lacks list or watch permission"),
            Self::TokenDenied => access_missing(
                "kubewarm may not request tokens of its CacheProfile's ServiceAccount",
            ),
            Self::NoServiceAccount => {
                access_missing("the ServiceAccount of its CacheProfile does not exist")
            }
            Self::Paused => StatusError::paused(resource),
        }
    }

    /// The last event of a watch whose informer is no longer readable.
    pub(super) fn watch_error(self, resource: &GroupResource) -> StatusError {
        let next = self.error(resource);
        match self {
            // The event log can still contain the client's version, so the client can resume.
            Self::NotWarm | Self::Unverified | Self::Paused => next,
            // The API server rejected the informer, so kubewarm empties the store. Without 410,
            // some clients would watch from their version again, which might never come again after
            // an etcd restore.
            Self::Forbidden | Self::TokenDenied | Self::NoServiceAccount => {
                StatusError::watch_ended(next.message())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use kubewarm_cache::informer::{InformerFault, Verb};

    /// The cause for an informer whose last request failed for `reason`.
    fn cause(reason: FaultReason) -> ColdCause {
        let at = Timestamp::UNIX_EPOCH;
        let (verb, message) = (Verb::List, "no".into());
        let fault =
            InformerFault { reason, verb, message, at, since: at, attempts: 1, next_retry: None };
        ColdCause::of(&InformerReport { fault: Some(fault), ..InformerReport::queued(at) })
    }

    #[test]
    fn the_error_says_why_kubewarm_cannot_read() {
        let pods = GroupResource::new("", "pods").unwrap();
        for (reason, code, why) in [
            (FaultReason::Forbidden, 503, "lacks list or watch permission"),
            (FaultReason::TokenRequestDenied, 503, "may not request tokens"),
            (
                FaultReason::ServiceAccountNotFound,
                503,
                "ServiceAccount of its CacheProfile does not",
            ),
            (FaultReason::Unverified, 429, "could not verify"),
            (FaultReason::Unreachable, 429, "not warm"),
        ] {
            let failure = cause(reason).error(&pods);
            assert_eq!(failure.code(), code, "{failure}");
            assert!(failure.message().contains(why), "{failure}");
        }
    }

    #[test]
    fn different_causes_have_the_error_that_is_true_for_all_informers() {
        let absent = cause(FaultReason::ServiceAccountNotFound);
        assert_eq!(absent.combine(absent), ColdCause::NoServiceAccount);
        assert_eq!(absent.combine(cause(FaultReason::Forbidden)), ColdCause::Forbidden);
        assert_eq!(absent.combine(ColdCause::Paused), ColdCause::Forbidden);
        assert_eq!(absent.combine(cause(FaultReason::Unverified)), ColdCause::NotWarm);
    }
}
