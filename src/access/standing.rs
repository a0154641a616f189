//! What is known of a cell's permissions, as everybody else sees it.

use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use std::sync::Arc;

/// Whether a cell may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has said so far.
    Verifying,
    /// It may be listed and watched.
    Granted {
        /// When the request was sent that shows it.
        verified_at: Timestamp,
        /// Whether only a review shows it, because the real requests fail for reasons other than
        /// permissions, such as a kind that is not served.
        is_by_review: bool,
    },
    /// It was, and for too long no real request has confirmed that: the gate is closed until one does.
    Unverified {
        /// When it was last verified.
        verified_at: Timestamp,
        /// Why the last check came to nothing when patience ended.
        message: Arc<str>,
    },
    /// The API server refused the real request.
    Refused(Refused),
}

/// What was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `list`, `watch` or both, in this order; at least one.
    pub verbs: Vec<Verb>,
    /// One of those that refuse an identity ([`Reason::refuses_identity`]), or
    /// [`Reason::NamespaceNotFound`] where the roles went with their namespace.
    pub reason: Reason,
    /// The API server's words.
    pub message: Arc<str>,
    /// When that was last confirmed by the real request.
    pub verified_at: Timestamp,
    /// When it was last granted before that, in this process: access was taken away, not merely missing.
    pub revoked: Option<Timestamp>,
}

/// What is known of a cell's permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAccess {
    /// Whether it may be read.
    pub standing: Standing,
    /// What reviews keep saying, whether it is allowed, although real requests show otherwise.
    pub overruled: Option<bool>,
    /// Whether the bounds on checks make its checks wait for longer than they should.
    pub is_late: bool,
    /// Why the last check came to nothing, if none has been answered for longer than they should take.
    pub failed: Option<Fault>,
}
