//! The snapshot of a cell, for statuses, metrics and `/debug/cells`.

use crate::store::Usage;
use jiff::Timestamp;
use kubewarm_api::model::{OnAccessLost, Reason, ResourceVersion, Verb};
use serde::{Deserialize, Serialize, Serializer};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Where a cell stands. The informer's state machine lives in `state.rs`; this is its public face.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Phase {
    /// Declared; its first list waits for a slot.
    #[default]
    Queued,
    /// The first list is under way.
    Listing,
    /// Synced, and the watch is open.
    Watching,
    /// Synced; the watch has been silent for too long and is being probed.
    Silent,
    /// Synced; the watch ended and is being opened again.
    Reconnecting,
    /// Synced; a later list is under way, or waits for a slot.
    Relisting,
    /// The last attempt failed; the next is at [`CellFault::next_retry`].
    Failing,
    /// No profile that declares it is active: no watch is open.
    Paused,
    /// Access was lost: nothing is tried until it has returned.
    Fenced,
}

/// Why a cell is not healthy, and when it tries again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellFault {
    /// The cause.
    #[serde(serialize_with = "text")]
    pub reason: Reason,
    /// What was tried.
    #[serde(serialize_with = "text")]
    pub verb: Verb,
    /// The server's or the transport's words.
    #[serde(serialize_with = "text")]
    pub message: Arc<str>,
    /// When it last failed.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// When it first failed since it was last healthy.
    pub since: Timestamp,
    /// Failures in a row, at least 1.
    pub attempts: u32,
    /// When the next attempt is due; `None` while one is under way.
    pub next_retry: Option<Timestamp>,
}

/// How a first state was fetched in the end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// One list parsed as it arrived.
    Whole,
    /// `sendInitialEvents`.
    Streaming,
    /// Pages.
    Paged,
}

/// A completed first sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Warmed {
    /// When the cell was declared.
    pub started: Timestamp,
    /// When the first list was applied.
    pub synced: Timestamp,
    /// From declaration to sync, on the monotonic clock.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// How.
    pub strategy: Strategy,
}

/// Why a synced cell listed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RelistReason {
    /// The server no longer had the version: 410.
    Gone,
    /// The stream could not be decoded.
    Decode,
    /// The resource versions went back: an etcd restore.
    Rollback,
    /// The watch ended at once, several times in a row.
    ClosedAtOnce,
    /// The server ended the watch of a custom resource early: its CRD may have been edited.
    Redefined,
    /// The namespace or the kind was away and is back.
    Recreated,
    /// An event came out of order and could not be told from the replay of a deleted object.
    Disordered,
    /// The table was not what a list of its version names.
    Inconsistent,
    /// Access had been lost and returned.
    ForbiddenRecovered,
    /// Of the profiles themselves: specs were freed after some had been left out.
    Readmitted,
}

impl RelistReason {
    /// As the status writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::Decode => "Decode",
            Self::Rollback => "Rollback",
            Self::ClosedAtOnce => "ClosedAtOnce",
            Self::Redefined => "Redefined",
            Self::Recreated => "Recreated",
            Self::Disordered => "Disordered",
            Self::Inconsistent => "Inconsistent",
            Self::ForbiddenRecovered => "ForbiddenRecovered",
            Self::Readmitted => "Readmitted",
        }
    }
}

/// A loss of access, after which no complete list has been applied yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was noticed, monotonic.
    pub at: Instant,
    /// The same on the wall clock.
    pub time: Timestamp,
}

/// The last relist of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Relist {
    /// When it completed.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// Why.
    pub reason: RelistReason,
    /// Objects found under the same key with another UID.
    #[serde(rename = "replacedObjects")]
    pub replaced: u64,
    /// Objects that had gone; replaced ones are not counted.
    pub deleted_objects: u64,
}

/// An object that could not be decoded and is therefore missing from the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undecodable {
    /// `namespace/name` as far as it could be read, else `?`.
    #[serde(serialize_with = "text")]
    pub object: Arc<str>,
    /// What is wrong with it; never its content.
    #[serde(serialize_with = "text")]
    pub problem: Arc<str>,
    /// When it was seen.
    #[serde(rename = "time")]
    pub at: Timestamp,
}

/// Median and 99th percentile of a latency over the last 5 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Quantiles {
    /// Half were faster.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// All but one in a hundred were faster.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
}

/// A snapshot of a cell. Cheap to clone. `/debug/cells` shows its JSON.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellReport {
    /// What its store holds; nothing in a [`Reports::glance`](super::Reports::glance).
    #[serde(flatten)]
    pub usage: Usage,
    /// Stored records that did not decode, each a bug of kubewarm; 0 in a glance.
    #[serde(skip)]
    pub undecodable_records: u64,
    /// Where it stands.
    #[serde(rename = "state")]
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// When it was first completely listed; `None` while nothing is held that is complete.
    pub warmed: Option<Warmed>,
    /// The last complete list.
    #[serde(rename = "syncedTime")]
    pub synced_at: Option<Timestamp>,
    /// Since when what is held may only be served to those who asked for that.
    #[serde(rename = "accessLostTime")]
    pub lost: Option<Loss>,
    /// How often access was lost so far.
    pub losses: u64,
    /// Why it is not healthy. Kept while a retry is under way, cleared by success.
    #[serde(rename = "lastError")]
    pub fault: Option<CellFault>,
    /// The newest version delivered: of a list, an event or a bookmark.
    #[serde(rename = "resourceVersion")]
    pub version: Option<ResourceVersion>,
    /// The last proof that the table was current (list, event, bookmark, probe), monotonic.
    #[serde(skip)]
    pub current_at: Option<Instant>,
    /// The same on the wall clock, for metrics.
    #[serde(rename = "lastProgressTime")]
    pub current_time: Option<Timestamp>,
    /// The last event.
    #[serde(rename = "lastEventTime")]
    pub event_time: Option<Timestamp>,
    /// The last bookmark.
    #[serde(rename = "lastBookmarkTime")]
    pub bookmark_time: Option<Timestamp>,
    /// Objects seen by the list under way.
    pub listed: u64,
    /// Objects the list under way will bring, where the server says so.
    pub expected: Option<u64>,
    /// The last relist.
    pub last_relist: Option<Relist>,
    /// At most 16 objects that could not be decoded; a later good version takes one off the list.
    #[serde(serialize_with = "each")]
    pub undecodable: Arc<[Undecodable]>,
    /// From request to last byte of a list or of a page of it.
    #[serde(rename = "listLatencySeconds")]
    pub list_latency: Option<Quantiles>,
    /// Of events, from bytes read to processed by every observer.
    #[serde(rename = "eventLatencySeconds")]
    pub event_latency: Option<Quantiles>,
    /// Of reads, from allowed to answered, waits included.
    #[serde(rename = "readLatencySeconds")]
    pub read_latency: Option<Quantiles>,
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.time.serialize(to)
    }
}

fn seconds<S: Serializer>(of: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(of.as_secs_f64())
}

fn text<S: Serializer>(of: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(of)
}

fn each<S: Serializer>(of: &Arc<[Undecodable]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(&**of)
}

impl CellReport {
    /// Of a cell declared at `since`, of which nothing is known yet.
    #[must_use]
    pub fn queued(since: Timestamp) -> Self {
        Self { since, ..Self::default() }
    }

    /// Whether a complete list is held that exists and may be read.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.synced_at.is_some() && self.lost.is_none() && !self.is_refused() && !self.is_missing()
    }

    /// Whether the cell may answer for a profile with this policy. Its own request that was refused
    /// counts as a loss until that has been verified.
    #[must_use]
    pub fn serves(&self, policy: OnAccessLost) -> bool {
        match policy {
            OnAccessLost::Reject => self.is_warm(),
            OnAccessLost::ServeStale => self.synced_at.is_some() && !self.is_missing(),
        }
    }

    /// Whether its table follows the cluster, so that it could be proved current.
    #[must_use]
    pub fn is_kept_current(&self) -> bool {
        self.synced_at.is_some()
            && self.lost.is_none()
            && !matches!(self.phase, Phase::Queued | Phase::Paused | Phase::Fenced)
    }

    /// Its own request, or the token for it.
    fn is_refused(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.reason.refuses_identity())
    }

    /// The kind or the namespace is not there.
    fn is_missing(&self) -> bool {
        let reason = self.fault.as_ref().map(|fault| fault.reason);
        matches!(reason, Some(Reason::NotServed | Reason::NamespaceNotFound))
    }
}

/// Why a watch ended: the label of `kubewarm_watch_ends_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WatchEnd {
    /// The server ended it at or after the time asked for.
    ServerTimeout,
    /// It ended before that.
    Eof,
    /// We ended it: silent, and a probe showed or could not deny that it is dead.
    Idle,
    /// 410.
    Gone,
    /// Another 4xx.
    #[strum(serialize = "http_4xx")]
    Http4xx,
    /// 429.
    #[strum(serialize = "http_429")]
    Http429,
    /// 5xx.
    #[strum(serialize = "http_5xx")]
    Http5xx,
    /// Its bytes made no sense.
    Decode,
    /// The connection broke.
    Broken,
    /// The cell was stopped or paused.
    Shutdown,
}

/// The type of a watch event: the label of `kubewarm_watch_events_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
    /// `BOOKMARK`.
    Bookmark,
    /// `ERROR`.
    Error,
}

/// Where undecodable bytes were met: the label of `kubewarm_decode_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// The frame of a list: the response around its items.
    List,
    /// One object of a list.
    ListItem,
    /// A line of a watch.
    WatchLine,
    /// The object of a watch event.
    WatchObject,
}
