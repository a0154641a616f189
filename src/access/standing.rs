//! What is known of a cell's permissions, as everybody else sees it.

use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use std::sync::Arc;

/// What a standing rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// The very list and watch of the cell were allowed; later reviews agree.
    Probe,
    /// Reviews alone: the real requests came to nothing that has to do with permissions, as while
    /// the kind is not served.
    Review,
}

/// Whether a cell may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has said so far.
    Verifying,
    /// It may be listed and watched.
    Granted {
        /// When that was last confirmed, by whatever means.
        verified_at: Timestamp,
        /// What it rests on.
        method: Method,
    },
    /// It was, and for too long no real request has confirmed that: the gate is closed until one does.
    Unverified(Unverified),
    /// The API server refused the real request.
    Refused(Refused),
}

/// What is not verified any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified {
    /// When it was last verified, by whatever means.
    pub verified_at: Timestamp,
    /// What it rested on.
    pub method: Method,
    /// Why the last check came to nothing when patience ended.
    pub message: Arc<str>,
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
    /// Since when, of this process.
    pub since: Timestamp,
    /// When that was last confirmed by the real request.
    pub verified_at: Timestamp,
}

/// Where reviews keep saying something else than the real requests do; these count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// About which verb; of both, `list`.
    pub verb: Verb,
    /// What the review says.
    pub review: Opinion,
}

/// What a review says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It would be allowed.
    Allowed,
    /// It would be refused.
    Denied,
}

/// How punctual the checks of a cell are: from how long ago the last one said anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Punctuality {
    /// As often as they should be.
    OnTime,
    /// The bounds on checks make them wait.
    Late,
    /// They are made, and have come to nothing since access was verified: the last one for this.
    Unanswered(Fault),
}

/// What is known of a cell's permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAccess {
    /// Whether it may be read.
    pub standing: Standing,
    /// When it was last granted before it was refused, in this process: access was taken away, not
    /// merely missing.
    pub revoked: Option<Timestamp>,
    /// What reviews say otherwise.
    pub disagreement: Option<Disagreement>,
    /// Whether it is checked as often as it should be.
    pub punctuality: Punctuality,
}

impl From<bool> for Opinion {
    fn from(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}
