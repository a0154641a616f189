//! One declared cell as its profile sees it: which of seven states, and whether it is current.

use super::reasons::{ConditionReason, of_fault};
use crate::access::CellAccess;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{CellKey, Declared, OnAccessLost, Reason};
use kubewarm_cache::{
    informer::{CellFault, CellReport, Phase, Verb},
    store::Usage,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How long a watch that ended, or a connection that broke, may take to come back before that is
/// said. Servers end every watch after some minutes; a blink of the API server is not a state.
const BLINK: SignedDuration = SignedDuration::from_secs(5);

/// What is known of a declared cell; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct CellView {
    /// Its informer's snapshot; `None` if it does not run.
    pub report: Option<CellReport>,
    /// What is known of its permissions; `None` while it has not been looked at.
    pub access: Option<CellAccess>,
}

impl CellView {
    /// What is known of a cell that only others run: nothing but its permissions.
    pub(super) fn of_others(self) -> Self {
        Self { report: None, ..self }
    }

    /// What counts for a profile with this policy: all of the store's bytes, but no object that access
    /// was lost to.
    pub(super) fn usage(&self, policy: OnAccessLost) -> Usage {
        let Some(report) = &self.report else { return Usage::default() };
        let is_withheld = report.lost.is_some() && !report.serves(policy);
        let objects = if is_withheld { 0 } else { report.usage.objects };
        Usage { objects, ..report.usage }
    }
}

/// The clocks, read once for a whole computation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Wall clock, for what people read.
    pub wall: Timestamp,
    /// Monotonic clock, for ages.
    pub mono: Instant,
    /// When the process started.
    pub process_start: Instant,
}

/// Where a declared cell is counted; exactly one holds. In the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum CellState {
    /// Kept from running by a limit.
    Limited,
    /// 401 or 403.
    Forbidden,
    /// The kind or the namespace does not exist now.
    Missing,
    /// Never synced, and the last attempt failed otherwise.
    Failing,
    /// Waiting for its first list or in it; a declared cell that does not run counts here.
    Syncing,
    /// Synced once, but not known to be current.
    Stale,
    /// Synced and known to be current.
    Synced,
}

/// Why a synced cell is not known to be current, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Staleness {
    /// The server does not answer, or only with errors.
    Unreachable,
    /// The watch has brought nothing for too long.
    Silent,
    /// As `Silent`, because access was lost, and the profile wants what was held served on.
    Fenced,
    /// As `Silent`, and on purpose.
    Paused,
    /// A later list is under way.
    Relisting,
    /// The watch ended and is not open again yet.
    Reconnecting,
}

/// A declared cell with what is known of it.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) key: &'a CellKey,
    pub(super) view: CellView,
    pub(super) state: CellState,
    pub(super) staleness: Option<Staleness>,
    serves: bool,
}

impl<'a> Cell<'a> {
    pub(super) fn new(key: &'a CellKey, view: CellView, profile: &Declared, clock: Clock) -> Self {
        let report = view.report.as_ref();
        let serves = report.is_some_and(|report| report.serves(profile.on_access_lost));
        let staleness = report
            .filter(|report| report.warmed.is_some())
            .and_then(|report| staleness(report, profile.max_staleness, clock));
        let state = report.map_or(CellState::Syncing, |report| state(report, serves, staleness));
        Self { key, view, state, staleness, serves }
    }

    /// One that a limit keeps from running for this profile: another may run it, and whether it is
    /// allowed is verified all the same.
    pub(super) fn stopped(key: &'a CellKey, view: CellView) -> Self {
        Self {
            key,
            view: view.of_others(),
            state: CellState::Limited,
            staleness: None,
            serves: false,
        }
    }

    pub(super) fn report(&self) -> Option<&CellReport> {
        self.view.report.as_ref()
    }

    pub(super) fn access(&self) -> Option<&CellAccess> {
        self.view.access.as_ref()
    }

    pub(super) fn fault(&self) -> Option<&CellFault> {
        self.report().and_then(|report| report.fault.as_ref())
    }

    /// Synced, and still allowed to serve.
    pub(super) fn is_warm(&self) -> bool {
        self.serves
    }

    /// The namespace as status names it: empty for all of them and for the cluster.
    pub(super) fn namespace(&self) -> &'a str {
        self.key.extent.namespace().unwrap_or_default()
    }
}

/// The cells by `key`, without those that have none.
pub(super) fn grouped<'c, 'a: 'c, K: Ord>(
    cells: impl IntoIterator<Item = &'c Cell<'a>>,
    key: impl Fn(&'c Cell<'a>) -> Option<K>,
) -> BTreeMap<K, Vec<&'c Cell<'a>>> {
    let mut groups: BTreeMap<K, Vec<_>> = BTreeMap::new();
    for cell in cells {
        if let Some(key) = key(cell) {
            groups.entry(key).or_default().push(cell);
        }
    }
    groups
}

impl Staleness {
    pub(super) const fn reason(self) -> ConditionReason {
        match self {
            Self::Unreachable => ConditionReason::ServerUnreachable,
            Self::Silent | Self::Fenced | Self::Paused => ConditionReason::WatchSilent,
            Self::Relisting => ConditionReason::Relisting,
            Self::Reconnecting => ConditionReason::Reconnecting,
        }
    }
}

fn state(report: &CellReport, serves: bool, staleness: Option<Staleness>) -> CellState {
    let fault = report.fault.as_ref();
    if let Some(state) = fault.and_then(|fault| of_fault(fault.reason).state) {
        return state;
    }
    match (serves, staleness, fault) {
        (_, _, None) if report.phase == Phase::Fenced => CellState::Forbidden,
        (false, _, Some(_)) => CellState::Failing,
        (false, _, None) => CellState::Syncing,
        (true, Some(_), _) => CellState::Stale,
        (true, None, _) => CellState::Synced,
    }
}

/// Why a cell that was synced is not known to be current; `None` if it is.
fn staleness(report: &CellReport, max_staleness: Duration, clock: Clock) -> Option<Staleness> {
    let within = report
        .current_at
        .is_some_and(|at| clock.mono.saturating_duration_since(at) <= max_staleness);
    let blink = |since: Timestamp| within && clock.wall.duration_since(since) < BLINK;
    match (report.phase, &report.fault) {
        // A fault is kept until the next success; an open watch is one.
        // The probe begins shortly before the bound, so silence within it is still current.
        (Phase::Watching, _) | (Phase::Silent, None) => (!within).then_some(Staleness::Silent),
        (Phase::Paused, _) => Some(Staleness::Paused),
        (Phase::Fenced, _) => Some(Staleness::Fenced),
        (Phase::Relisting, Some(fault)) => Some(failed(fault, Staleness::Relisting)),
        (Phase::Relisting | Phase::Queued | Phase::Listing, _) => Some(Staleness::Relisting),
        (Phase::Silent | Phase::Reconnecting | Phase::Failing, Some(fault)) => {
            (!blink(fault.since)).then(|| failed(fault, Staleness::Reconnecting))
        }
        (Phase::Reconnecting | Phase::Failing, None) => {
            (!blink(report.since)).then_some(Staleness::Reconnecting)
        }
    }
}

fn failed(fault: &CellFault, otherwise: Staleness) -> Staleness {
    if fault.reason == Reason::TimedOut && fault.verb == Verb::Watch {
        Staleness::Silent
    } else if of_fault(fault.reason).is_outage {
        Staleness::Unreachable
    } else {
        otherwise
    }
}
