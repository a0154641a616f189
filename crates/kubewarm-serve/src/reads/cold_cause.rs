//! Decides why no informer is readable that can answer a request.

use super::RETRY_AFTER_SECONDS;
use kubewarm_api::model::GroupResource;
use kubewarm_cache::informer::InformerReport;
use kubewarm_wire::StatusError;

/// Why no informer that can answer a request is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColdCause {
    /// At least one informer lists, or waits for its list.
    NotWarm,
    /// All informers are blocked because kubewarm could not verify their access.
    Unverified,
    /// All informers lack permission to list or watch.
    Forbidden,
}

impl ColdCause {
    /// Why the informer in the state `report` is not readable.
    pub(super) fn of(report: &InformerReport) -> Self {
        if report.is_forbidden() {
            Self::Forbidden
        } else if report.is_unverified() {
            Self::Unverified
        } else {
            Self::NotWarm
        }
    }

    /// The common cause of several informers that are not readable.
    pub(super) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::NotWarm }
    }

    pub(super) fn error(self, resource: &GroupResource) -> StatusError {
        match self {
            Self::NotWarm => StatusError::not_warm(resource, RETRY_AFTER_SECONDS),
            Self::Unverified => StatusError::access_unverified(resource, RETRY_AFTER_SECONDS),
            Self::Forbidden => StatusError::access_missing(resource),
        }
    }
}
