//! The report of an informer's state, for statuses, metrics and `/debug/informers`.

pub(super) mod access_counter;
pub(super) mod change_notifier;
pub(super) mod latency_window;
pub(super) mod metrics;
pub(super) mod new_results;
pub(super) mod own_requests;
pub(super) mod pending_proofs;
pub(super) mod permission_record;
pub(super) mod permission_state;
pub(super) mod status;

use crate::store::StoreUsage;
use jiff::Timestamp;
use kubewarm_api::model::{AccessLossPolicy, FaultReason, FieldPath, ResourceVersion, Verb};
use serde::{Serialize, Serializer};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The state of an informer in reports. `InformerStatus` derives the state from `TaskState`. A
/// paused or blocked informer has the state `Paused` or `Blocked` instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum InformerPhase {
    /// The first list has not started, because kubewarm limits the number of concurrent lists.
    #[default]
    Queued,
    /// The first list is in progress.
    Listing,
    /// Synced; the watch is open.
    Watching,
    /// Synced; the watch is open, but kubewarm has not confirmed the store within the profile's
    /// `maxStalenessSeconds`. The informer opens second, short watches, which show whether its own
    /// watch is dead.
    Silent,
    /// Synced; the last watch ended, and the informer opens the next watch.
    Reconnecting,
    /// Synced; a relist is in progress, or waits because kubewarm limits the number of concurrent
    /// lists.
    Relisting,
    /// The last list or watch failed. The next attempt starts at [`InformerFault::next_retry`].
    Failing,
    /// No profile that declares the informer is active, so no watch is open. The store keeps its
    /// objects.
    Paused,
    /// Blocked: access was lost or is unconfirmed. The informer sends no requests until access
    /// returns.
    Blocked,
}

/// The last failed request of an informer, and the time of its next attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerFault {
    /// The kind of failure.
    #[serde(serialize_with = "text")]
    pub reason: FaultReason,
    /// The verb of the failed request.
    #[serde(serialize_with = "text")]
    pub verb: Verb,
    /// The API server's message, or the connection error.
    #[serde(serialize_with = "text")]
    pub message: Arc<str>,
    /// Time of the last failure.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// Time of the first failure since the informer's last success.
    pub since: Timestamp,
    /// Number of consecutive failures, at least 1.
    pub attempts: u32,
    /// When the informer retries the failed list or watch. `None` if no attempt is scheduled.
    pub next_retry: Option<Timestamp>,
}

/// How an informer fetches a complete list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum ListMethod {
    /// kubewarm requests the whole list in one response, and parses the response while it arrives.
    List,
    /// The initial events of a watch (`sendInitialEvents`).
    WatchList,
    /// A list in pages, with continue tokens.
    PagedList,
}

/// How an informer got its first complete list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FirstSyncMethod {
    /// [`ListMethod::List`].
    List,
    /// [`ListMethod::WatchList`].
    WatchList,
    /// [`ListMethod::PagedList`].
    PagedList,
    /// A copy of another replica's store, which needs no list of the API server.
    Peer,
}

impl From<ListMethod> for FirstSyncMethod {
    fn from(method: ListMethod) -> Self {
        match method {
            ListMethod::List => Self::List,
            ListMethod::WatchList => Self::WatchList,
            ListMethod::PagedList => Self::PagedList,
        }
    }
}

/// A completed first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstSync {
    /// Start of the warm-up (the time until the first list is complete): when the informer was
    /// created, or when its store was last purged. If access returns before the first list
    /// completes, the warm-up restarts at that time.
    pub started: Timestamp,
    /// When the first list was complete in the store.
    pub synced: Timestamp,
    /// Time from `started` to `synced`, measured on the monotonic clock.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// The method of the list that completed.
    pub strategy: FirstSyncMethod,
}

/// Why an informer relists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RelistReason {
    /// The API server no longer had the version from which the watch should start (410).
    Gone,
    /// kubewarm could not decode an event of the watch.
    Decode,
    /// Resource versions went back, as after an etcd restore.
    Rollback,
    /// Five consecutive watches ended at once, without an event. Some API servers end a watch from
    /// a version that they no longer have in this way, instead of with 410.
    ClosedAtOnce,
    /// The API server ended the watch of a custom resource early. An edit of the CRD can cause this
    /// end, and change the content of objects.
    Redefined,
    /// The informer's namespace or resource disappeared. The relist succeeds once the namespace and
    /// the resource exist again.
    Recreated,
    /// An event arrived for an object that is not in the store, and the event's version is not
    /// newer than the store's version. So the store has missed an earlier event.
    Disordered,
    /// A consistency check found a difference between the store and a list of the same version.
    Inconsistent,
    /// Access returned after a loss.
    ForbiddenRecovered,
    /// Only for the informers with which kubewarm watches its own profiles. Their stores had
    /// omitted profiles because of limits on the memory for specs. A deleted spec has now freed
    /// memory, so kubewarm lists the omitted profiles again.
    Readmitted,
}

impl RelistReason {
    /// The value of `lastRelist.reason` in a profile's status.
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

/// The last completed relist of an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelistReport {
    /// When the relist completed.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// Why the informer relisted.
    pub reason: RelistReason,
    /// Number of objects that the relist found with the same name but another UID.
    #[serde(rename = "replacedObjects")]
    pub replaced: u64,
    /// Number of objects that the relist no longer found. Does not include replaced objects.
    pub deleted_objects: u64,
}

/// An object that kubewarm could not decode, so the store does not contain it. Lists and watches
/// that would contain this object fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndecodableObject {
    /// `namespace/name` of the undecodable object, or [`UndecodableObject::UNNAMED`].
    #[serde(serialize_with = "text")]
    pub object: Arc<str>,
    /// The decode error, without any content of the object.
    #[serde(serialize_with = "text")]
    pub problem: Arc<str>,
    /// When the informer received the object.
    #[serde(rename = "time")]
    pub at: Timestamp,
}

/// Median and 99th percentile of a latency over the last 5 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct LatencyQuantiles {
    /// Median, in seconds when serialized.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// 99th percentile, in seconds when serialized.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
}

/// A snapshot of an informer's state, which `/debug/informers` returns as JSON. Cheap to clone.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerReport {
    /// Number of objects and bytes in the store.
    /// [`InformerHandles::get_summary`](super::InformerHandles::get_summary) sets both numbers to
    /// 0.
    #[serde(flatten)]
    pub usage: StoreUsage,
    /// Field paths of the store's indexes at which no object has a value. `get_summary` leaves this
    /// list empty.
    #[serde(skip)]
    pub paths_without_values: Vec<FieldPath>,
    /// What the informer does at present.
    #[serde(rename = "state")]
    pub phase: InformerPhase,
    /// When `phase` began.
    pub since: Timestamp,
    /// When and how the first list completed. `None` before the first list completes.
    pub warmed: Option<FirstSync>,
    /// When the last list completed. `None` while the store has no complete list.
    #[serde(rename = "syncedTime")]
    pub synced_at: Option<Timestamp>,
    /// When the loss of access began that blocks the store; `None` if the store is not blocked.
    /// Only clients of profiles with `onAccessLost: ServeStale` can read a blocked store.
    #[serde(rename = "accessLostTime")]
    pub lost_at: Option<Timestamp>,
    /// Number of times that the informer has lost access. A response compares the number before and
    /// after, so that a loss in between does not go unnoticed.
    pub losses: u64,
    /// The informer's last failed request. A successful request clears this field, but the start of
    /// the next attempt does not.
    #[serde(rename = "lastError")]
    pub fault: Option<InformerFault>,
    /// The version that the store has reached, by a list, an event or a bookmark.
    #[serde(rename = "resourceVersion")]
    pub version: Option<ResourceVersion>,
    /// Why the informer reads the resource as JSON although it is a built-in kind: kubewarm cannot
    /// read an object in protobuf. `None` usually.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_fallback: Option<Box<str>>,
    /// The store contains every change made before this time, on the monotonic clock. It is the
    /// time at which kubewarm sent a consistent list whose version the store has reached (ADR 28).
    #[serde(skip)]
    pub current_at: Option<Instant>,
    /// When the store was last confirmed to contain every earlier change, on the wall clock.
    #[serde(rename = "lastProgressTime")]
    pub current_time: Option<Timestamp>,
    /// When a client last requested to read the store, on the monotonic clock. `None` if no client
    /// has.
    #[serde(skip)]
    pub read_at: Option<Instant>,
    /// When the last event arrived.
    #[serde(rename = "lastEventTime")]
    pub event_time: Option<Timestamp>,
    /// When the last bookmark arrived.
    #[serde(rename = "lastBookmarkTime")]
    pub bookmark_time: Option<Timestamp>,
    /// Whether the API server sends no bookmarks for the kind, because it does not serve the kind
    /// from its watch cache: the last probe (a second, short watch) received none, and no bookmark
    /// arrived since.
    pub lacks_bookmarks: bool,
    /// Number of objects received so far in the current list.
    pub listed: u64,
    /// Total number of objects of the current list, if the API server reports it.
    pub expected: Option<u64>,
    /// Whether kubewarm is requesting the total number of objects, because the current list exceeds
    /// a limit on memory or objects. The list is paused meanwhile.
    #[serde(skip)]
    pub is_counting: bool,
    /// The last completed relist.
    pub last_relist: Option<RelistReport>,
    /// At most 17 objects that kubewarm could not decode, so that the report stays small. kubewarm
    /// removes an object from this field when the object is deleted or a later version decodes. If
    /// there are more than 16 objects, the last one has no name. Only a relist removes an object
    /// without a name.
    #[serde(serialize_with = "each")]
    pub undecodable: Arc<[UndecodableObject]>,
    /// Time from a list request to the last byte of the list or of one page.
    #[serde(rename = "listLatencySeconds")]
    pub list_latency: Option<LatencyQuantiles>,
    /// Time from receipt of an event until the store contains the event's change.
    #[serde(rename = "eventLatencySeconds")]
    pub event_latency: Option<LatencyQuantiles>,
    /// Time from the authorization of a client's read request to kubewarm's response, including all
    /// waiting time.
    #[serde(rename = "readLatencySeconds")]
    pub read_latency: Option<LatencyQuantiles>,
}

fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

fn text<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn each<S: Serializer>(objects: &Arc<[UndecodableObject]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(&**objects)
}

impl UndecodableObject {
    /// The value of `object` if the name cannot be read, and for all objects above the limit of the
    /// report.
    pub const UNNAMED: &str = "?";

    /// Whether the report does not contain the object's name.
    pub fn is_unnamed(&self) -> bool {
        &*self.object == Self::UNNAMED
    }

    /// Whether the object can be in `namespace` and can have this name. `None` means every
    /// namespace or every name. An object without a name in the report can be any object, so the
    /// result is then `true`.
    pub fn is_in(&self, namespace: Option<&str>, name: Option<&str>) -> bool {
        let (own_namespace, own_name) = self.object.split_once('/').unwrap_or(("", &self.object));
        self.is_unnamed()
            || (namespace.is_none_or(|namespace| namespace == own_namespace)
                && name.is_none_or(|name| name == own_name))
    }
}

/// The lowest `maxStalenessSeconds` for which one consistent list a minute and the bookmarks of the
/// informer's watch are enough. A lower value needs probes (second, short watches). This constant
/// is the default of `maxStalenessSeconds`.
pub const KEPT_BY_BOOKMARKS: Duration = Duration::from_mins(2);
/// How long after a client's read kubewarm keeps a `maxStalenessSeconds` below 2 minutes. Later,
/// kubewarm keeps only 2 minutes, which needs fewer requests.
const READ_RECENTLY: Duration = Duration::from_mins(10);

impl InformerReport {
    /// Returns the report of an informer that was created at `since` and has not listed yet.
    pub fn queued(since: Timestamp) -> Self {
        Self { since, ..Self::default() }
    }

    /// The age at which the store is stale, if `max_staleness` is the lowest `maxStalenessSeconds`
    /// of its profiles. If no client has read the store for 10 minutes, the age is at least 2
    /// minutes: a lower age costs requests that no client needs.
    pub fn kept_bound(&self, max_staleness: Duration, now: Instant) -> Duration {
        if self.is_read_recently(now) {
            max_staleness
        } else {
            max_staleness.max(KEPT_BY_BOOKMARKS)
        }
    }

    pub(crate) fn is_read_recently(&self, now: Instant) -> bool {
        self.read_at.is_some_and(|at| now.saturating_duration_since(at) < READ_RECENTLY)
    }

    /// Whether the store holds a complete list and clients can read it.
    pub fn is_warm(&self) -> bool {
        self.synced_at.is_some()
            && self.lost_at.is_none()
            && !self.is_forbidden()
            && !self.is_missing()
    }

    /// Whether clients of a profile with this `onAccessLost` policy can read the store. A 401 or
    /// 403 for the informer's own request counts as a loss of access until the access checker
    /// decides. If the namespace or the resource does not exist, no policy lets clients read.
    pub fn serves(&self, policy: AccessLossPolicy) -> bool {
        match policy {
            AccessLossPolicy::Reject => self.is_warm(),
            AccessLossPolicy::ServeStale => self.synced_at.is_some() && !self.is_missing(),
        }
    }

    /// Whether the API server rejected the informer's last request, or kubewarm's `TokenRequest`
    /// for the informer's ServiceAccount, or whether the informer is blocked for that reason.
    pub fn is_forbidden(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.reason.is_access_denied())
    }

    /// Whether the informer's task updates the store at present. Otherwise the store cannot reach
    /// the API server's version, so a freshness check cannot pass.
    pub fn is_kept_current(&self) -> bool {
        self.synced_at.is_some()
            && self.lost_at.is_none()
            && !matches!(
                self.phase,
                InformerPhase::Queued | InformerPhase::Paused | InformerPhase::Blocked
            )
    }

    /// Whether the informer is blocked because kubewarm could not verify its access for too long,
    /// not because of a rejection.
    pub fn is_unverified(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.reason == FaultReason::Unverified)
    }

    fn is_missing(&self) -> bool {
        let reason = self.fault.as_ref().map(|fault| fault.reason);
        matches!(reason, Some(FaultReason::NotServed | FaultReason::NamespaceNotFound))
    }
}

/// Why a watch ended. The value of the label `reason` of `kubewarm_upstream_watch_ends_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UpstreamWatchEnd {
    /// The API server ended the watch at or after its `timeoutSeconds`.
    ServerTimeout,
    /// The API server ended the watch before its `timeoutSeconds`.
    Eof,
    /// kubewarm closed the watch: no bytes arrived within the time limit, or a second watch or a
    /// list showed that this watch did not deliver an event.
    Idle,
    /// The API server no longer has the version from which the watch started (410).
    Gone,
    /// The API server ended the watch with a 4xx status other than 410 and 429.
    #[strum(serialize = "http_4xx")]
    Http4xx,
    /// The API server throttled the watch (429).
    #[strum(serialize = "http_429")]
    Http429,
    /// The API server ended the watch with a 5xx status, or with an error without a status code.
    #[strum(serialize = "http_5xx")]
    Http5xx,
    /// kubewarm could not decode an event, or resource versions were out of order.
    Decode,
    /// The connection broke, or the response ended within an event.
    Broken,
    /// The informer was stopped, paused or blocked, its namespace disappeared, or a consistency
    /// check found a difference.
    Shutdown,
}

/// The part of a response that kubewarm could not decode. The value of the label `stage` of
/// `kubewarm_upstream_decode_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DecodeStage {
    /// The list response without its items, for example its kind, resource version and continue
    /// token.
    List,
    /// One item of a list.
    ListItem,
    /// One line of a watch.
    WatchLine,
    /// The object of a watch event.
    WatchObject,
}
