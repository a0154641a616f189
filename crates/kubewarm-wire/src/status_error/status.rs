//! Serializes a `StatusError` as a `Status`.

use super::{StatusError, quoted};
use crate::protobuf::{ListMeta, write_bytes, write_message, write_number};
use kube::core::response::{StatusCause, StatusDetails};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use std::collections::BTreeMap;

pub(super) fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

pub(super) fn cause(reason: &str, message: impl Into<String>, field: &str) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message: message.into(), field: field.to_owned() }
}

/// Returns the cause in a 422 for an option that the request must not have. `message` begins with
/// `Forbidden: `.
pub(crate) fn forbidden(field: &str, message: &str) -> StatusCause {
    cause("FieldValueForbidden", message, field)
}

/// Returns the cause in a 422 for the option `field` with an unknown value. `supported` lists the
/// known values.
pub(crate) fn unsupported(field: &str, value: &str, supported: &str) -> StatusCause {
    let message = format!("Unsupported value: {}: supported values: {supported}", quoted(value));
    cause("FieldValueNotSupported", message, field)
}

impl StatusError {
    /// Returns the `Status` object as JSON, with a line feed at the end.
    pub fn body(&self) -> String {
        let mut body = serde_json::to_string(self).unwrap_or_default();
        body.push('\n');
        body
    }
}

impl StatusError {
    /// Returns the `Status` object as a protobuf message, without an envelope.
    ///
    /// The field numbers are from `generated.proto` of `k8s.io/apimachinery/pkg/apis/meta/v1`.
    pub fn message_bytes(&self) -> Vec<u8> {
        let mut status = Vec::new();
        let next = self.token.as_deref().unwrap_or_default();
        write_message(1, |out| ListMeta { next, ..ListMeta::default() }.write(out), &mut status);
        write_bytes(2, b"Failure", &mut status);
        write_bytes(3, self.message.as_bytes(), &mut status);
        write_bytes(4, self.reason.as_bytes(), &mut status);
        if let Some(details) = &self.details {
            write_message(5, |out| write_details(details, out), &mut status);
        }
        write_number(6, self.code.into(), &mut status);
        status
    }
}

fn write_details(details: &StatusDetails, out: &mut Vec<u8>) {
    write_bytes(1, details.name.as_bytes(), out);
    write_bytes(2, details.group.as_bytes(), out);
    write_bytes(3, details.kind.as_bytes(), out);
    for StatusCause { reason, message, field } in &details.causes {
        let write = |out: &mut Vec<u8>| {
            write_bytes(1, reason.as_bytes(), out);
            write_bytes(2, message.as_bytes(), out);
            write_bytes(3, field.as_bytes(), out);
        };
        write_message(4, write, out);
    }
    write_number(5, details.retry_after_seconds.into(), out);
    write_bytes(6, details.uid.as_bytes(), out);
}

impl Serialize for StatusError {
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
