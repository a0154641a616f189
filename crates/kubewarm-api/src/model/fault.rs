//! Why a request to the API server did not do what it was for.

use super::escape;
use std::time::Duration;

/// The longest message kept, in bytes: enough for the API server's own sentences.
const MAX_MESSAGE: usize = 400;

/// The closed set of causes: condition reasons, metric labels and retry rules follow from it.
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
pub enum Reason {
    /// 403: the verb is not granted. Only a changed role helps.
    Forbidden,
    /// 401: the credentials are not accepted.
    Unauthorized,
    /// 404 on a list or watch: the kind is not served.
    #[strum(serialize = "ResourceNotFound")]
    NotServed,
    /// The namespace does not exist.
    NamespaceNotFound,
    /// 405: the kind is served, but has no such verb.
    NotListable,
    /// 410, as status or as event: the version or the continue token is too old.
    Gone,
    /// 400 or 422: the server does not understand the request, such as a streaming list.
    Unsupported,
    /// 429.
    Throttled,
    /// 5xx, or any other status that should not occur.
    ServerError,
    /// No connection, or one that broke.
    #[strum(serialize = "ServerUnreachable")]
    Unreachable,
    /// No headers, or no data, in time; or data below the rate that counts as progress.
    TimedOut,
    /// The answer is not what the protocol says: HTML, truncated JSON, no resource version.
    Malformed,
    /// One line or object is larger than the cap.
    TooLarge,
    /// The watch ended at once, again and again.
    ClosedAtOnce,
    /// The operator may not ask for tokens of the ServiceAccount that a profile names.
    TokenRequestDenied,
    /// The ServiceAccount that a profile names does not exist.
    ServiceAccountNotFound,
    /// For too long no real request has shown that there is still access.
    Unverified,
    /// A task panicked, such as an informer's own: a bug in kubewarm.
    #[strum(serialize = "InternalError")]
    Internal,
}

/// Which request failed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    /// `list`, whole, streamed or in pages.
    List,
    /// `watch`.
    Watch,
}

impl Verb {
    /// As RBAC writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A failed request: cause, the server's words, and when it says to come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    reason: Reason,
    message: String,
    retry_after: Option<Duration>,
    code: Option<u16>,
}

impl Fault {
    /// A fault without an HTTP status.
    ///
    /// In `message` what a terminal would act on is escaped, and it is cut at 400 bytes; it must come from a Status, a transport error or from
    /// ourselves, never from the body of an object.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut message = escape(&message).into_owned();
        if message.len() > MAX_MESSAGE {
            let end = (0..=MAX_MESSAGE).rev().find(|&at| message.is_char_boundary(at));
            message.truncate(end.unwrap_or(0));
            message.push('…');
        }
        Self { reason, message, retry_after: None, code: None }
    }

    /// The task that asked panicked: a bug in kubewarm.
    #[must_use]
    pub fn broke_off() -> Self {
        Self::new(Reason::Internal, "the question broke off")
    }

    /// Adds the HTTP status code.
    #[must_use]
    pub fn with_code(self, code: u16) -> Self {
        Self { code: Some(code), ..self }
    }

    /// Adds the server's `Retry-After`.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// The cause.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// What happened, in the server's words where it gave any.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How long the server asked to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The HTTP status, where there was one; that of a Status in a watch event too.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.code
    }
}

impl Reason {
    /// Whether the identity is refused, as far as such an answer goes: without access, nothing that
    /// was read as it may be served for long.
    #[must_use]
    pub const fn refuses_identity(self) -> bool {
        matches!(
            self,
            Self::Forbidden
                | Self::Unauthorized
                | Self::TokenRequestDenied
                | Self::ServiceAccountNotFound
        )
    }

    /// A stable `CamelCase` word. Never derived from `Debug` or from a server message.
    #[must_use]
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
    fn reasons_are_distinct_words() {
        let words: BTreeSet<_> = Reason::VARIANTS.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::VARIANTS.len());
    }

    #[test]
    fn a_message_is_one_line() {
        let fault = Fault::new(Reason::ServerError, "down\n2026 INFO forged\u{1b}[2J");
        assert_eq!(fault.to_string(), r"down\n2026 INFO forged\u{1b}[2J");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let fault = Fault::new(Reason::ServerError, "é".repeat(1_000));
        assert!(fault.message().len() <= MAX_MESSAGE + '…'.len_utf8());
        assert!(fault.message().ends_with("é…"));
    }
}
