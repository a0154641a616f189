//! The Kubernetes API as it is spoken: what a read request says, and what is answered. Pure: no I/O,
//! no clock, and nothing of what is stored or allowed.
//!
//! A request is parsed once ([`Asked::parse`]); the review of the caller and the query are both made
//! from that. Texts, codes and reasons of refusals are the API server's own.

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
    accept::{Form, Listing, MetaVersion, Part, TableForm},
    asked::{Access, Asked, At, Objects, What},
    bearer::websocket_bearer,
    body::{ListFrame, object, write_object},
    discovery::{AGGREGATED_DISCOVERY, Sent, discovery_document, is_known},
    event::{EventType, bookmark, ended, error_event, event, progress},
    failure::Failure,
    onward::{Onward, Written},
    path::Document,
    table::TableFrame,
    token::continue_token,
    watching::{Begin, Watching},
    written::{has_object, version_of},
};
