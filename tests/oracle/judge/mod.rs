//! Compares the responses that readers received with what etcd stored.

mod reads;
mod watches;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::collection::COLLECTIONS;
use crate::history::{EtcdHistory, Timeline};
use crate::observation::{Millis, Observation, ObservedContent, ReaderId};
use crate::run::PAGES;

use self::reads::ReadFloors;
use self::watches::JudgedWatches;

/// How late etcd's own watch or this process can be, so that a response can be right although the
/// recorder seems to contradict it.
const SLACK: Millis = 2_000;

/// By how much an answer can be older than it states.
const AGE_TOLERANCE: Millis = 1_000;

/// `freshness.maxStalenessSeconds` of the profiles.
const MAX_STALENESS: Millis = 10_000;

/// How long after a restore a replica can have states from before it: the time until the API server
/// runs again, on a busy machine, and until the replica's watches are open again.
const UNNOTICED: Millis = 20_000;

/// How late an event can be while nothing is disturbed: ten times what it takes on a busy machine.
const LATEST_EVENT: Millis = 10_000;

/// The kinds of faults that a response can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingKind {
    /// etcd never stored this state or write, or the response is malformed.
    NeverExisted,
    /// The answer is older than it states, or older than `maxStalenessSeconds`.
    OldUndeclared,
    /// The answer of a strict read, or of the API server, lacks an earlier write.
    OldStrict,
    /// The reader has seen, or written, a newer state at the same replica.
    WentBack,
    /// The list has a lower version than the request named.
    TooOld,
    /// A watch lost, repeated, reordered or invented a change.
    WatchBroke,
    /// A watch did not bring the last changes, or brought a change late, although nothing was
    /// disturbed.
    Silent,
    /// A refused read whose status code no injected fault explains.
    Refused,
}

/// One fault, with a description of the response.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: FindingKind,
    at: Millis,
    reader: ReaderId,
    text: String,
}

/// The times of a run that the judge needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunTimes {
    /// From this time on, no fault was injected, and the effects of all faults were over.
    pub(crate) calm: Millis,
    /// For each start of the API server, the time of the start and the time when it was ready.
    /// Until it is ready, it refuses permitted requests, because it has not loaded all Roles.
    pub(crate) restarts: Vec<(Millis, Millis)>,
    pub(crate) end: Millis,
}

/// How many answers were judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JudgedCounts {
    pub(crate) events: usize,
    pub(crate) lists: usize,
    pub(crate) gets: usize,
    pub(crate) refused: usize,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) counts: JudgedCounts,
    pub(crate) findings: Vec<Finding>,
    /// The age of the oldest response.
    pub(crate) oldest: Millis,
}

/// The timelines of each collection, one for each epoch.
type Timelines<'a> = Vec<Vec<Timeline<'a>>>;

/// Judges all observations. The observations of each reader must be in the order of their arrival.
pub(crate) fn judge(
    history: &EtcdHistory,
    observations: &[Observation],
    times: &RunTimes,
) -> Verdict {
    let timelines: Timelines<'_> =
        (0..COLLECTIONS.len()).map(|collection| history.timelines(collection)).collect();
    let mut verdict = Verdict::default();
    let mut floors = ReadFloors::default();
    let mut sessions = JudgedWatches::default();
    for observation in observations {
        let timelines = &timelines[observation.collection];
        verdict.counts.count(&observation.content);
        refusal(observation, times, &mut verdict);
        if !can_mix_histories(observation, timelines) {
            floors.judge(observation, timelines, &mut verdict);
        }
        sessions.judge(observation, timelines, times, &mut verdict);
    }
    sessions.finish(&timelines, times, &mut verdict);
    verdict
}

/// Judges a refused read. The refusal is a fault if nothing was disturbed, or if its status code
/// claims something permanent, such as 403.
fn refusal(observation: &Observation, times: &RunTimes, verdict: &mut Verdict) {
    if matches!(observation.content, ObservedContent::Malformed) {
        verdict.find(FindingKind::NeverExisted, observation, "a malformed response");
    }
    let ObservedContent::Refused { code } = observation.content else { return };
    let is_during = |&(start, ready)| (start..ready + SLACK).contains(&observation.arrived);
    let is_starting = times.restarts.iter().any(is_during);
    // 410 is no fault, because it tells a client to list again.
    let is_temporary =
        matches!(code, 0 | 410 | 429 | 500..) || (is_starting && matches!(code, 401 | 403));
    if !is_temporary || observation.sent >= times.calm {
        verdict.find(FindingKind::Refused, observation, &format!("code {code}"));
    }
}

/// Whether a list in pages can contain states from before a restore, because of a known limitation:
/// the API server answered the first page, and the replica, which had not noticed the restore yet,
/// answered the other pages at the same version.
fn can_mix_histories(observation: &Observation, timelines: &[Timeline<'_>]) -> bool {
    let ObservedContent::List { age, .. } = &observation.content else { return false };
    let is_forwarded = age.freshness.is_none();
    // Each epoch but the first begins with a restore.
    let is_unnoticed = |timeline: &Timeline<'_>| {
        let began = timeline.epoch.began;
        (began..began + UNNOTICED).contains(&observation.arrived)
    };
    is_forwarded && observation.reader.name == PAGES && timelines.iter().skip(1).any(is_unnoticed)
}

impl JudgedCounts {
    fn count(&mut self, content: &ObservedContent) {
        match content {
            ObservedContent::Refused { .. } => self.refused += 1,
            ObservedContent::List { .. } => self.lists += 1,
            ObservedContent::Get { .. } => self.gets += 1,
            ObservedContent::Event { .. } | ObservedContent::Bookmark { .. } => self.events += 1,
            ObservedContent::Malformed
            | ObservedContent::Written { .. }
            | ObservedContent::WatchOpened { .. } => {}
        }
    }
}

impl std::ops::AddAssign for JudgedCounts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.lists += other.lists;
        self.gets += other.gets;
        self.refused += other.refused;
    }
}

impl Verdict {
    fn find(&mut self, kind: FindingKind, observation: &Observation, text: &str) {
        let (at, reader) = (observation.arrived, observation.reader.clone());
        let path = COLLECTIONS[observation.collection].path();
        self.findings.push(Finding { kind, at, reader, text: format!("{path}: {text}") });
    }

    /// The number of findings of each kind.
    pub(crate) fn kinds(&self) -> BTreeMap<FindingKind, usize> {
        let mut kinds = BTreeMap::new();
        for finding in &self.findings {
            *kinds.entry(finding.kind).or_default() += 1;
        }
        kinds
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, at, reader: ReaderId { replica, name }, text } = self;
        write!(f, "{kind:?} at {at} ms, {name} at replica {replica}: {text}")
    }
}
