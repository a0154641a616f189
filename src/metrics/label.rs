//! The closed sets of label values.

use super::{
    operator::{Reconciled, StatusWrite},
    reads::{CacheUse, Handler, Method, WatchClosed},
    snapshot::{ConditionStatus, TargetState},
};
use crate::{
    access::{Check, CheckOutcome},
    informer::{Comparison, EventKind, ListOutcome, RelistReason, Stage, Strategy, WatchEnd},
    model::{DecidedBy, Decision, Measure, Mode, Verb, WaitFor, WaitOutcome},
};

/// A closed set of label values.
pub(super) trait Label: Copy + 'static {
    /// Every value.
    const ALL: &'static [Self];

    /// As it stands in the exposition.
    fn as_label(self) -> &'static str;
}

/// One list serves both as the set and as the match, so that neither can miss a variant.
macro_rules! labels {
    ($($set:ident { $($variant:ident => $text:literal),+ $(,)? })+) => {$(
        impl Label for $set {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_label(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    )+};
}

labels! {
    ListOutcome { Success => "success", Failure => "failure" }
    Strategy { Whole => "whole", Streaming => "streaming", Paged => "paged" }
    RelistReason {
        Gone => "gone",
        Decode => "decode",
        Rollback => "rollback",
        ClosedAtOnce => "closed_at_once",
        Redefined => "redefined",
        Recreated => "recreated",
        Disordered => "disordered",
        Inconsistent => "inconsistent",
        ForbiddenRecovered => "forbidden_recovered",
        Readmitted => "readmitted",
    }
    Comparison {
        Equal => "equal",
        Different => "different",
        Skipped => "skipped",
        Failed => "error",
    }
    WatchEnd {
        ServerTimeout => "server_timeout",
        Eof => "eof",
        Idle => "idle",
        Gone => "gone",
        Http4xx => "http_4xx",
        Http429 => "http_429",
        Http5xx => "http_5xx",
        Decode => "decode",
        Broken => "broken",
        Shutdown => "shutdown",
    }
    EventKind {
        Added => "added",
        Modified => "modified",
        Deleted => "deleted",
        Bookmark => "bookmark",
        Error => "error",
    }
    Stage {
        List => "list",
        ListItem => "list_item",
        WatchLine => "watch_line",
        WatchObject => "watch_object",
    }
    Mode { Active => "Active", Plan => "Plan", Paused => "Paused" }
    ConditionStatus { True => "True", False => "False", Unknown => "Unknown" }
    TargetState {
        Synced => "synced",
        Syncing => "syncing",
        Stale => "stale",
        Forbidden => "forbidden",
        Missing => "missing",
        Limited => "limited",
    }
    Reconciled { Ok => "ok", Cancelled => "cancelled" }
    Check { Trial => "trial", RulesReview => "rules_review", AccessReview => "access_review" }
    CheckOutcome { Allowed => "allowed", Refused => "refused", Undecided => "undecided" }
    Verb { List => "list", Watch => "watch" }
    Measure { Objects => "objects", Memory => "bytes" }
    StatusWrite { Written => "written", Failed => "failed" }
    Handler {
        Get => "get",
        List => "list",
        Watch => "watch",
        Discovery => "discovery",
        Forward => "forward",
        Other => "other",
    }
    Method { Get => "GET", Other => "other" }
    WaitFor { Warmth => "warmth", Version => "version", Proof => "proof" }
    WaitOutcome { Met => "met", Refused => "refused" }
    DecidedBy { Cache => "cache", Api => "api" }
    Decision { Allow => "allow", Deny => "deny", Error => "error" }
    WatchClosed {
        Timeout => "timeout",
        Expired => "expired",
        Future => "future",
        Slow => "slow",
        CellGone => "cell_gone",
        Refused => "refused",
        Client => "client",
        Shutdown => "shutdown",
    }
    CacheUse { Hit => "hit", Wait => "wait", Miss => "miss" }
}

/// The label of an HTTP status: those that API servers send by themselves, else their class, so
/// that a proxy with odd numbers makes no new series.
pub(super) fn code_label(code: Option<u16>) -> &'static str {
    match code {
        None => "none",
        Some(200) => "200",
        Some(304) => "304",
        Some(400) => "400",
        Some(401) => "401",
        Some(403) => "403",
        Some(404) => "404",
        Some(405) => "405",
        Some(406) => "406",
        Some(409) => "409",
        Some(410) => "410",
        Some(421) => "421",
        Some(422) => "422",
        Some(429) => "429",
        Some(500) => "500",
        Some(502) => "502",
        Some(503) => "503",
        Some(504) => "504",
        Some(400..=499) => "4xx",
        Some(500..=599) => "5xx",
        Some(_) => "other",
    }
}

/// Every value of [`code_label`].
pub(super) const CODES: &[&str] = &[
    "none", "200", "304", "400", "401", "403", "404", "405", "406", "409", "410", "421", "422",
    "429", "500", "502", "503", "504", "4xx", "5xx", "other",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_code_has_one_of_the_listed_labels() {
        let listed = |code| CODES.contains(&code_label(code));
        assert!(listed(None) && (0..=u16::MAX).all(|code| listed(Some(code))));
    }
}
