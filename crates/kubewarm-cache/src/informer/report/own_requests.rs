//! The results of an informer's own lists and watches. The access checker uses them as evidence of
//! access, in addition to its access checks.

use tokio::time::Instant;

/// The results of one informer's own requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnRequests {
    /// The results of the informer's lists.
    pub list: VerbResults,
    /// The results of the informer's watches.
    pub watch: VerbResults,
    /// Whether the last request failed, for any reason, or the informer is blocked.
    pub has_failed: bool,
    /// Whether the store holds a complete list.
    pub is_synced: bool,
}

/// The results of one informer's lists, or of its watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbResults {
    /// When the last successful request was sent. A later loss of access does not clear this time.
    pub allowed_at: Option<Instant>,
    /// When the API server began to reject this verb with 401 or 403. A success of the same verb
    /// clears this time, other errors do not.
    pub refused_at: Option<Instant>,
}

impl OwnRequests {
    /// When the API server began to reject the informer's lists or its watches, whichever is later.
    /// `None` if it rejects neither. The access checker starts a check when this time changes, so
    /// it also reacts to the second rejected verb.
    pub fn refused_at(&self) -> Option<Instant> {
        self.list.refused_at.max(self.watch.refused_at)
    }

    /// When the informer sent its latest successful list or watch. This request shows that access
    /// is not lost, although it confirms only one verb.
    pub fn verified_at(&self) -> Option<Instant> {
        self.list.allowed_at.max(self.watch.allowed_at)
    }

    /// The time at which both verbs are confirmed: when the informer sent its last successful list
    /// or its last successful watch, whichever is earlier. `None` until both have succeeded, and
    /// while the informer fails.
    pub fn allowed_at(&self) -> Option<Instant> {
        self.list.allowed_at.min(self.watch.allowed_at).filter(|_| !self.has_failed)
    }

    /// Whether the informer is still on its first list or first watch, and no request has failed.
    /// The informer's own requests then show soon whether it has access.
    pub fn is_starting(&self) -> bool {
        // The condition requires no permitted list: after a streaming list, which is a watch, the
        // informer sends no list that could confirm the verb.
        !(self.has_failed || self.is_synced && self.watch.allowed_at.is_some())
    }
}
