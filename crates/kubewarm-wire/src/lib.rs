//! Parses read requests of the Kubernetes API and writes the bodies of responses.
//!
//! The crate is pure: no I/O, no clock, no access to stores or permissions.
//!
//! [`RequestInfo::parse`] parses a request once. The access review and the query both use its result.
//! Codes, reasons and messages of errors are the API server's own.

mod accept;
mod asked;
mod base64;
mod bearer;
mod body;
mod discovery;
mod event;
mod failure;
mod fields;
#[cfg(test)]
mod hostile;
mod labels;
mod onward;
mod options;
mod path;
mod query;
mod table;
mod token;
mod watching;
mod written;

pub mod json;
pub mod tables;

pub use self::{
    accept::{DiscoveryForm, MetaVersion, ObjectForm, ResponseForm, TableForm},
    asked::{AccessAttributes, ObjectRequest, RequestInfo, RequestTarget, VersionMatch},
    bearer::parse_websocket_bearer,
    body::{ListEnvelope, object, write_object},
    discovery::{AGGREGATED_DISCOVERY, DiscoveryResponse, is_known, render_discovery_document},
    event::{EventType, bookmark, ended, error_event, event, progress},
    failure::StatusError,
    onward::{ForwardRequest, WriteTarget},
    path::ApiDocument,
    table::TableEnvelope,
    token::encode_continue_token,
    watching::{WatchOptions, WatchStart},
    written::{has_object, version_of},
};
