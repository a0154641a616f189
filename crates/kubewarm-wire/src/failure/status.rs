//! A `Status` as it is sent.

use super::{Failure, quoted};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use std::{borrow::Cow, collections::BTreeMap};

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
        // A `Status` holds strings and numbers only, so this does not fail.
        let mut body = serde_json::to_string(self).unwrap_or_default();
        body.push('\n');
        body
    }
}

impl Serialize for Failure {
    /// A `Status`, with its fields in the order of the API server.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let metadata: BTreeMap<_, _> = self.token.iter().map(|token| ("continue", token)).collect();
        let mut status = to.serialize_struct("Status", 8)?;
        status.serialize_field("kind", "Status")?;
        status.serialize_field("apiVersion", "v1")?;
        status.serialize_field("metadata", &metadata)?;
        status.serialize_field("status", "Failure")?;
        status.serialize_field("message", &self.message)?;
        status.serialize_field("reason", self.reason)?;
        if let Some(details) = &self.details {
            status.serialize_field("details", details)?;
        }
        status.serialize_field("code", &self.code)?;
        status.end()
    }
}
