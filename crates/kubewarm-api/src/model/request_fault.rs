//! Failed requests to the API server, classified by cause.

use super::escape;
use std::time::Duration;

/// Longest message that a [`RequestFault`] stores, in bytes; kubewarm cuts a longer message.
/// Messages of the API server itself are shorter, so they stay complete.
const MAX_MESSAGE: usize = 400;

/// Cause of a failed request to the API server. The cause determines condition reasons, metric
/// labels and when kubewarm retries.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum FaultReason {
    /// 403: RBAC does not permit the verb. A retry can succeed only after a change of a role or a
    /// binding.
    Forbidden,
    /// 401: the API server does not accept the credentials.
    Unauthorized,
    /// 404 for a list or watch: the API server does not serve the resource.
    #[strum(serialize = "ResourceNotFound")]
    NotServed,
    /// The namespace does not exist.
    NamespaceNotFound,
    /// 405: the resource does not support the verb.
    NotListable,
    /// 410 as HTTP status or watch event: the resource version or continue token is too old.
    Gone,
    /// 400 or 422: the API server does not support the request, for example a streaming list.
    Unsupported,
    /// 429: the API server throttles requests.
    Throttled,
    /// 5xx, or another unexpected status.
    ServerError,
    /// kubewarm could not connect to the API server, or the connection broke.
    #[strum(serialize = "ServerUnreachable")]
    Unreachable,
    /// The API server sent no response headers or no data in time, or sent data below the minimum
    /// rate.
    TimedOut,
    /// The response violates the protocol: it is HTML or truncated JSON, or it has no resource
    /// version.
    Malformed,
    /// A watch event or an object exceeds kubewarm's size limit.
    TooLarge,
    /// The API server ended a watch or a streaming list too early, without an error: for example at
    /// once after the start, or before a streaming list was complete.
    ClosedAtOnce,
    /// RBAC does not permit the operator to request tokens of the profile's ServiceAccount.
    TokenRequestDenied,
    /// The profile's ServiceAccount does not exist.
    ServiceAccountNotFound,
    /// No request has confirmed the informer's access for 10 minutes, or for 30 seconds after a
    /// sign of lost access. Such a sign is, for example, an access review that does not permit the
    /// informer's list.
    Unverified,
    /// A task of kubewarm panicked, which is a bug.
    #[strum(serialize = "InternalError")]
    Internal,
}

/// Verb of the failed request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    /// A list: whole, streaming or in pages.
    List,
    /// A watch.
    Watch,
}

impl Verb {
    /// The verb in lower case, as in RBAC rules.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A failed request to the API server: cause, message, HTTP status and `Retry-After`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestFault {
    reason: FaultReason,
    message: String,
    retry_after: Option<Duration>,
    code: Option<u16>,
    is_unanswered: bool,
}

impl RequestFault {
    /// Creates a fault without an HTTP status.
    ///
    /// This function escapes control characters in `message`, and cuts the message to 400 bytes.
    /// The message must come from a `Status`, a transport error or kubewarm. Text from the body of
    /// an object can contain a Secret, so it must not be in the message.
    pub fn new(reason: FaultReason, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut message = escape(&message).into_owned();
        if message.len() > MAX_MESSAGE {
            let end = (0..=MAX_MESSAGE).rev().find(|&at| message.is_char_boundary(at));
            message.truncate(end.unwrap_or(0));
            message.push('…');
        }
        Self { reason, message, retry_after: None, code: None, is_unanswered: false }
    }

    /// Creates the fault for a request whose task in kubewarm panicked, which is a bug.
    pub fn task_panicked() -> Self {
        Self::new(FaultReason::Internal, "the task that sent the request panicked")
    }

    /// Sets the HTTP status code.
    pub fn with_code(self, code: u16) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Sets the value of the response header `Retry-After`.
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// Records that the time limit passed before the head of a response arrived, so that nothing
    /// shows that the API server works.
    pub fn unanswered(self) -> Self {
        Self { is_unanswered: true, ..self }
    }

    /// The cause of the failure.
    pub fn reason(&self) -> FaultReason {
        self.reason
    }

    /// The escaped message: the API server's message if the API server sent one, otherwise
    /// kubewarm's message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The value of the response header `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether no server answered: the connection failed, or the time limit passed before the head
    /// of a response arrived, as with a frozen server or a link that drops all packets. A failed
    /// task then tries again as soon as the API server answers any client.
    pub fn is_server_away(&self) -> bool {
        self.retry_after.is_none()
            && (self.reason == FaultReason::Unreachable || self.is_unanswered)
    }

    /// The HTTP status of the response, or the `code` of a `Status` that a watch event contained.
    pub fn code(&self) -> Option<u16> {
        self.code
    }
}

impl FaultReason {
    /// Whether the request failed because its identity has no access: the API server rejects the
    /// identity, or kubewarm gets no token for it. kubewarm then stops serving the objects that it
    /// read with this identity, unless an access check confirms access.
    pub const fn is_access_denied(self) -> bool {
        matches!(
            self,
            Self::Forbidden
                | Self::Unauthorized
                | Self::TokenRequestDenied
                | Self::ServiceAccountNotFound
        )
    }

    /// The cause as a stable word in `CamelCase`, for condition reasons and metric labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strum::VariantArray as _;

    #[test]
    fn reasons_are_unique() {
        let words: BTreeSet<_> =
            FaultReason::VARIANTS.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), FaultReason::VARIANTS.len());
    }

    #[test]
    fn a_message_is_written_on_one_line() {
        let fault = RequestFault::new(FaultReason::ServerError, "down\n2026 INFO forged\u{1b}[2J");
        assert_eq!(fault.to_string(), r"down\n2026 INFO forged\u{1b}[2J");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let fault = RequestFault::new(FaultReason::ServerError, "é".repeat(1_000));
        assert!(fault.message().len() <= MAX_MESSAGE + '…'.len_utf8());
        assert!(fault.message().ends_with("é…"));
    }
}
