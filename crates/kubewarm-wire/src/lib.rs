//! Parses read requests of the Kubernetes API and responses of the API server, and writes the
//! bodies of responses.
//!
//! The crate is pure: it performs no I/O, reads no clock, and uses no store and no permissions.
//!
//! kubewarm parses a request once, with [`RequestInfo::parse`]. Both the access review and the
//! query of the store use the parsed request. If the API server also rejects a request, the error
//! has the API server's status code, reason and message.

mod accept;
mod base64;
mod body;
mod builtin_groups;
mod continue_tokens;
mod discovery;
mod event;
mod field_selector;
mod forward_plan;
#[cfg(test)]
mod hostile_tests;
mod indentation;
mod label_selector;
mod managed_fields_template;
mod object_body;
mod options;
mod peer;
mod protobuf_body;
mod query_parameters;
mod request_info;
mod request_path;
mod status_error;
mod table_envelope;
mod timeout;
mod watch_options;
mod websocket_token;
mod written_version;

/// Media type of JSON.
pub const JSON: &str = "application/json";
/// Media type of Kubernetes protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub mod json;
pub mod protobuf;
pub mod tables;
pub mod upstream;

pub use self::{
    accept::{
        DiscoveryForm, MediaType, MetaVersion, ObjectPart, ResponseForm, ResponseFormat, TableForm,
        status_media_type,
    },
    body::{ListEnvelope, write_object, write_single_object},
    builtin_groups::is_builtin_group,
    continue_tokens::encode_continue_token,
    discovery::{AGGREGATED_DISCOVERY, DiscoveryResponse, is_known, render_discovery_document},
    event::{
        BookmarkKind, EventType, bookmark_object, with_end_version, write_bookmark,
        write_error_event, write_event,
    },
    forward_plan::{ForwardPlan, WriteTarget},
    indentation::{JsonIndenter, is_pretty},
    managed_fields_template::ManagedFieldsTemplate,
    object_body::{JsonBuffer, ObjectBody},
    peer::{
        PEER_AUDIENCE, PEER_SUMMARY_HEADER, PeerStoreSummary, is_peer_store_path, peer_store_path,
        write_peer_bookmark, write_peer_event,
    },
    protobuf_body::{
        status_message, write_error_message, write_event_message, write_single_message,
    },
    request_info::{AccessAttributes, ObjectRequest, RequestInfo, RequestTarget, VersionMatch},
    request_path::ApiDocument,
    status_error::StatusError,
    table_envelope::TableEnvelope,
    watch_options::{WatchOptions, WatchStart},
    websocket_token::parse_websocket_bearer,
    written_version::{has_object, version_of},
};
