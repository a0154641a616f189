//! Defines the errors with a 429 or 5xx code that the caller or a missing permission causes.

use super::StatusError;
use kubewarm_api::model::GroupResource;

impl StatusError {
    /// Returns whether the caller or a missing permission causes the error, although its code is
    /// 429 or 5xx.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        self.is_rejection
    }

    /// 429: the caller has reached the request limit of one user or one address.
    #[must_use]
    pub fn user_limit(retry_after_seconds: u64) -> Self {
        Self { is_rejection: true, ..Self::too_many_requests(retry_after_seconds) }
    }

    /// 429: kubewarm lacks the permission to list or watch the resource.
    #[must_use]
    pub fn access_missing(resource: &GroupResource, retry_after_seconds: u64) -> Self {
        let message = format!(
            "{resource} not readable: kubewarm lacks list or watch permission; the status of the CacheProfile names it"
        );
        let failure = Self::new(429, "TooManyRequests", message).about(resource, "");
        Self { is_rejection: true, ..failure.after(retry_after_seconds) }
    }
}
