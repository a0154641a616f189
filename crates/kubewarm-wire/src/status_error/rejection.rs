use super::{StatusError, quoted};
use kubewarm_api::model::GroupResource;

impl StatusError {
    /// Returns whether the metrics count the error as a rejection instead of a failure of kubewarm:
    /// the caller, a missing permission or a paused profile causes it, although its code is 429 or
    /// 5xx.
    pub fn is_rejection(&self) -> bool {
        self.is_rejection
    }

    /// 500: the store lacks an object of the requested resource, because kubewarm cannot read it. A
    /// response without the object would be wrong. `object` is the object's name, or `None` if
    /// kubewarm cannot read the name either.
    pub fn incomplete(resource: &GroupResource, object: Option<&str>, problem: &str) -> Self {
        let object = object.map_or_else(
            || "an object whose name it cannot read".to_owned(),
            |object| format!("the object {}", quoted(object)),
        );
        let message = format!(
            "Internal error occurred: kubewarm cannot read {object} of {resource}: {problem}; send the request to the API \
             server"
        );
        Self::new(500, "InternalError", message).about(resource, "").specific_to_cache()
    }

    /// 429: the user or the client address has reached one of its limits, such as the limit on
    /// requests.
    pub fn user_limit(retry_after_seconds: u64) -> Self {
        Self { is_rejection: true, ..Self::too_many_requests(retry_after_seconds) }
    }

    /// 503: the memory for large objects in responses has been in use for too long, because clients
    /// read such responses slowly.
    pub fn memory_in_use(retry_after_seconds: u64) -> Self {
        let message = "kubewarm's memory for large objects in responses is in use; try again";
        Self::unavailable(message, retry_after_seconds)
    }

    /// 429: all pods of the agents' ServiceAccount `account` together have reached one of their
    /// limits. The user can do nothing about it, so the message is for the administrator.
    pub fn agents_limit(account: &str, retry_after_seconds: u64) -> Self {
        let message = format!(
            "Too many requests, please try again later: all pods of the ServiceAccount {account} in --agents together \
             use their part of kubewarm's limits"
        );
        let failure = Self::new(429, "TooManyRequests", message).after(retry_after_seconds);
        Self { is_rejection: true, ..failure }
    }

    /// 429: kubewarm could not verify for a long time whether its identity may list and watch the
    /// resource. The next access check can succeed, so clients retry.
    pub fn access_unverified(resource: &GroupResource, retry_after_seconds: u64) -> Self {
        let message = format!(
            "{resource} not readable: kubewarm could not verify its list and watch permission; it tries again"
        );
        let failure = Self::new(429, "TooManyRequests", message).about(resource, "");
        Self { is_rejection: true, ..failure.after(retry_after_seconds) }
    }

    /// 503: the identity with which kubewarm reads the resource cannot list or watch it. `why`
    /// completes the message. Usually only a person can help, so the error has no `Retry-After`:
    /// client-go would retry for more than a minute before kubectl prints the message. The
    /// informers of client-go and kube-rs retry any error.
    pub fn access_missing(resource: &GroupResource, why: &str) -> Self {
        let message =
            format!("{resource} not readable: {why}; the status of the CacheProfile names it");
        Self::without_retry(resource, message)
    }

    /// 503: the profiles of the resource were paused before a list was complete, so the store has
    /// no objects, or objects of two versions. Like [`Self::access_missing`], the error has no
    /// `Retry-After`.
    pub fn paused(resource: &GroupResource) -> Self {
        let message = format!(
            "{resource} not readable: its CacheProfile was paused before a list was complete; set the \
             profile's spec.mode to Active"
        );
        Self::without_retry(resource, message)
    }

    fn without_retry(resource: &GroupResource, message: String) -> Self {
        let failure = Self::new(503, "ServiceUnavailable", message).about(resource, "");
        Self { is_rejection: true, ..failure }
    }
}
