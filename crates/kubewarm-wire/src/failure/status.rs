//! A `Status` as it is sent.

use super::{Failure, quoted};
use serde::Serialize;
use std::borrow::Cow;

/// `details` of a `Status`; `kind` is the plural name, as in the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_seconds: Option<u64>,
}

/// One of several causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'static str,
    pub(super) message: Cow<'static, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) field: &'static str,
}

/// A `Status` as it is sent.
#[derive(Serialize)]
struct Written<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Metadata<'a>,
    status: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

impl Cause {
    /// An option that may not be given here. `message` begins with `Forbidden: `.
    pub(crate) const fn forbidden(field: &'static str, message: &'static str) -> Self {
        Self { reason: "FieldValueForbidden", message: Cow::Borrowed(message), field }
    }

    /// An option that has no such value.
    pub(crate) fn unsupported(field: &'static str, value: &str, supported: &str) -> Self {
        let message =
            format!("Unsupported value: {}: supported values: {supported}", quoted(value));
        Self { reason: "FieldValueNotSupported", message: message.into(), field }
    }
}

impl Failure {
    /// The `Status` as JSON.
    #[must_use]
    pub fn body(&self) -> String {
        let status = Written {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata { token: self.token.as_deref() },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code,
        };
        // Strings and numbers only: this does not fail.
        let mut body = serde_json::to_string(&status).unwrap_or_default();
        body.push('\n');
        body
    }
}
