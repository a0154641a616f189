//! The state of one declared informer, as its profile's status counts it.

use super::reasons::{ConditionReason, fault_effect};
use crate::access::InformerAccess;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{AccessLossPolicy, DeclaredProfile, FaultReason, InformerKey};
use kubewarm_cache::{
    informer::{InformerFault, InformerPhase, InformerReport, Verb},
    store::StoreUsage,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How long an ended watch or a broken connection is not reported. API servers end every watch
/// after some minutes, so a shorter interruption is normal.
const SHORT_INTERRUPTION: SignedDuration = SignedDuration::from_secs(5);

/// Input about one declared informer. The default is an informer that does not run and is not
/// checked.
#[derive(Clone, Debug, Default)]
pub struct InformerView {
    /// Snapshot of the running informer; `None` if it does not run.
    pub report: Option<InformerReport>,
    /// Its permission state; `None` if it is not checked.
    pub access: Option<InformerAccess>,
}

impl InformerView {
    /// Keeps only the permission state, for an informer that runs for other profiles alone.
    pub(super) fn without_report(self) -> Self {
        Self { report: None, ..self }
    }

    /// Returns what counts against the limits of a profile with this `policy`.
    ///
    /// All bytes of the store count. Objects count only if the policy serves them after access was
    /// lost.
    pub(super) fn usage(&self, policy: AccessLossPolicy) -> StoreUsage {
        let Some(report) = &self.report else { return StoreUsage::default() };
        let is_withheld = report.lost.is_some() && !report.serves(policy);
        let objects = if is_withheld { 0 } else { report.usage.objects };
        StoreUsage { objects, ..report.usage }
    }
}

/// All clocks, read once for the computation of all statuses.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Wall clock, for timestamps in the status.
    pub wall: Timestamp,
    /// Monotonic clock, for ages.
    pub mono: Instant,
    pub process_start: Instant,
}

/// The state in which an informer is counted. An informer has the first one that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum InformerState {
    /// A limit stops it.
    Limited,
    /// The API server refuses its requests with HTTP 401 or 403.
    Forbidden,
    /// Its kind or its namespace does not exist.
    Missing,
    /// It never synced, and its last attempt failed for another reason.
    Failing,
    /// It waits for its first list or receives it. A declared informer that does not run counts
    /// here, too.
    Syncing,
    /// It synced once, but its store may be older than `maxStaleness`.
    Stale,
    /// It synced, and its store is current.
    Synced,
}

/// Why a synced informer is stale, the most severe reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum StalenessReason {
    /// The API server does not answer, or only with errors.
    Unreachable,
    /// The watch has sent nothing for longer than `maxStaleness`.
    Silent,
    /// Access was lost, and the profile serves stale data.
    Blocked,
    /// The profile is paused, so no watch is open.
    Paused,
    /// The informer relists.
    Relisting,
    /// The watch ended and is not open again yet.
    Reconnecting,
}

/// A declared informer with its computed state.
#[derive(Debug)]
pub(super) struct ObservedInformer<'a> {
    pub(super) key: &'a InformerKey,
    pub(super) view: InformerView,
    pub(super) state: InformerState,
    pub(super) staleness: Option<StalenessReason>,
    serves: bool,
}

impl<'a> ObservedInformer<'a> {
    pub(super) fn new(
        key: &'a InformerKey,
        view: InformerView,
        profile: &DeclaredProfile,
        clock: ClockReading,
    ) -> Self {
        let report = view.report.as_ref();
        let serves = report.is_some_and(|report| report.serves(profile.on_access_lost));
        let staleness = report
            .filter(|report| report.warmed.is_some())
            .and_then(|report| staleness(report, profile.max_staleness, clock));
        let state =
            report.map_or(InformerState::Syncing, |report| state(report, serves, staleness));
        Self { key, view, state, staleness, serves }
    }

    /// An informer that a limit stops for this profile. Another profile may still run it, and its
    /// access is still checked.
    pub(super) fn new_stopped(key: &'a InformerKey, view: InformerView) -> Self {
        Self {
            key,
            view: view.without_report(),
            state: InformerState::Limited,
            staleness: None,
            serves: false,
        }
    }

    pub(super) fn report(&self) -> Option<&InformerReport> {
        self.view.report.as_ref()
    }

    pub(super) fn access(&self) -> Option<&InformerAccess> {
        self.view.access.as_ref()
    }

    pub(super) fn fault(&self) -> Option<&InformerFault> {
        self.report().and_then(|report| report.fault.as_ref())
    }

    /// Whether it has synced and clients can read its store.
    pub(super) fn is_warm(&self) -> bool {
        self.serves
    }

    /// The namespace in the status; empty for all namespaces and for cluster-scoped resources.
    pub(super) fn namespace(&self) -> &'a str {
        self.key.extent.namespace().unwrap_or_default()
    }
}

/// Groups the informers by `key` and leaves out those without a key.
pub(super) fn group_by<'c, 'a: 'c, K: Ord>(
    informers: impl IntoIterator<Item = &'c ObservedInformer<'a>>,
    key: impl Fn(&'c ObservedInformer<'a>) -> Option<K>,
) -> BTreeMap<K, Vec<&'c ObservedInformer<'a>>> {
    let mut groups: BTreeMap<K, Vec<_>> = BTreeMap::new();
    for informer in informers {
        if let Some(key) = key(informer) {
            groups.entry(key).or_default().push(informer);
        }
    }
    groups
}

impl StalenessReason {
    pub(super) const fn reason(self) -> ConditionReason {
        match self {
            Self::Unreachable => ConditionReason::ServerUnreachable,
            Self::Silent | Self::Blocked | Self::Paused => ConditionReason::WatchSilent,
            Self::Relisting => ConditionReason::Relisting,
            Self::Reconnecting => ConditionReason::Reconnecting,
        }
    }
}

fn state(
    report: &InformerReport,
    serves: bool,
    staleness: Option<StalenessReason>,
) -> InformerState {
    let fault = report.fault.as_ref();
    if let Some(state) = fault.and_then(|fault| fault_effect(fault.reason).state) {
        return state;
    }
    match (serves, staleness, fault) {
        (_, _, None) if report.phase == InformerPhase::Blocked => InformerState::Forbidden,
        (false, _, Some(_)) => InformerState::Failing,
        (false, _, None) => InformerState::Syncing,
        (true, Some(_), _) => InformerState::Stale,
        (true, None, _) => InformerState::Synced,
    }
}

/// Returns why a synced informer is stale, or `None` if it is fresh.
fn staleness(
    report: &InformerReport,
    max_staleness: Duration,
    clock: ClockReading,
) -> Option<StalenessReason> {
    let within = report
        .current_at
        .is_some_and(|at| clock.mono.saturating_duration_since(at) <= max_staleness);
    let blink = |since: Timestamp| within && clock.wall.duration_since(since) < SHORT_INTERRUPTION;
    match (report.phase, &report.fault) {
        // A successful request clears the fault, so an informer with an open watch has none.
        // The probe of a silent watch starts shortly before `maxStaleness`, so until then it is
        // fresh.
        (InformerPhase::Watching, _) | (InformerPhase::Silent, None) => {
            (!within).then_some(StalenessReason::Silent)
        }
        (InformerPhase::Paused, _) => Some(StalenessReason::Paused),
        (InformerPhase::Blocked, _) => Some(StalenessReason::Blocked),
        (InformerPhase::Relisting, Some(fault)) => {
            Some(staleness_of_fault(fault, StalenessReason::Relisting))
        }
        (InformerPhase::Relisting | InformerPhase::Queued | InformerPhase::Listing, _) => {
            Some(StalenessReason::Relisting)
        }
        (
            InformerPhase::Silent | InformerPhase::Reconnecting | InformerPhase::Failing,
            Some(fault),
        ) => {
            (!blink(fault.since)).then(|| staleness_of_fault(fault, StalenessReason::Reconnecting))
        }
        (InformerPhase::Reconnecting | InformerPhase::Failing, None) => {
            (!blink(report.since)).then_some(StalenessReason::Reconnecting)
        }
    }
}

fn staleness_of_fault(fault: &InformerFault, otherwise: StalenessReason) -> StalenessReason {
    if fault.reason == FaultReason::TimedOut && fault.verb == Verb::Watch {
        StalenessReason::Silent
    } else if fault_effect(fault.reason).is_outage {
        StalenessReason::Unreachable
    } else {
        otherwise
    }
}
