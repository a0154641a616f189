//! The state of one informer of a profile, as the profile's status counts it.

use super::{
    permissions::ExcessByNamespace,
    reasons::{ConditionReason, fault_effect},
};
use crate::access::InformerAccess;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{AccessLossPolicy, FaultReason, InformerKey, ResolvedProfile};
use kubewarm_cache::{
    informer::{InformerFault, InformerPhase, InformerReport, Verb},
    store::StoreUsage,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How long an interrupted watch can last until the status reports it. Short interruptions are
/// normal, because API servers end every watch after some minutes.
const SHORT_INTERRUPTION: SignedDuration = SignedDuration::from_secs(5);

/// What kubewarm knows about one informer that a profile needs. The default is an informer that
/// does not run and whose permissions are unknown.
#[derive(Clone, Debug, Default)]
pub struct InformerView {
    pub report: Option<InformerReport>,
    /// The informer's permission state; `None` if kubewarm makes no access checks for the informer.
    pub access: Option<InformerAccess>,
    /// A number for each user who reads from the informer, although the informer drops
    /// managedFields, and who can apply the objects. Such an apply removes the user's own fields.
    /// The numbers hide the users' names.
    pub appliers: Vec<u64>,
}

/// The current state of the informers and permissions. A status shows this state in addition to the
/// decisions of the controller.
#[derive(Clone, Copy)]
pub struct LiveState<'a> {
    /// Returns the report and the permission state of an informer.
    pub informers: &'a dyn Fn(&InformerKey) -> InformerView,
    /// Returns the permissions that the profile's identity has and does not need; `None` if they
    /// are unknown or must not be shown.
    pub excess: &'a dyn Fn(&ResolvedProfile) -> Option<ExcessByNamespace>,
}

impl InformerView {
    /// Drops the report and keeps only the permission state, for a profile whose status must ignore
    /// the report because the informer runs only for other profiles.
    pub(super) fn without_report(self) -> Self {
        Self { report: None, ..self }
    }

    /// Returns the objects and bytes of the store that count against the limits of a profile with
    /// this `policy`.
    ///
    /// All bytes of the store count. After the informer lost access, its objects count only if the
    /// policy still lets clients read them.
    pub(super) fn usage(&self, policy: AccessLossPolicy) -> StoreUsage {
        let Some(report) = &self.report else { return StoreUsage::default() };
        let is_withheld = report.lost_at.is_some() && !report.serves(policy);
        let objects = if is_withheld { 0 } else { report.usage.objects };
        StoreUsage { objects, ..report.usage }
    }
}

/// The current time on the wall clock and on the monotonic clock. The computation of all statuses
/// uses one reading, so that all ages in the statuses are of the same moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Time on the wall clock, for timestamps in the status.
    pub wall: Timestamp,
    /// Time on the monotonic clock, from which ages are computed.
    pub mono: Instant,
    pub process_start: Instant,
}

/// The state by which the status counts an informer. If several states apply, the first of them in
/// this enum counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum InformerState {
    /// A limit stops the informer's target.
    Limited,
    /// The API server rejects the informer's requests with 401 or 403.
    Forbidden,
    /// The informer's kind or namespace does not exist.
    Missing,
    /// Clients cannot read the informer's store, and the informer's last request failed. The error
    /// is neither 401 nor 403, and the kind and the namespace exist.
    Failing,
    /// The informer's first list is not complete. An informer that a profile needs but that does
    /// not run has this state too.
    Syncing,
    /// Clients can read the informer's store, but kubewarm cannot confirm that the store is
    /// current.
    Stale,
    Synced,
}

/// Why an informer with a complete first list is stale, the most severe reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum StalenessReason {
    /// The API server does not answer, or answers only with errors.
    Unreachable,
    /// The informer has received nothing from the watch for longer than `maxStaleness`.
    Silent,
    /// The informer lost access, and the profile's `onAccessLost` is `ServeStale`.
    Blocked,
    /// The profile is paused, so no watch is open.
    Paused,
    Relisting,
    /// The watch ended, and the informer has not opened it again yet.
    Reconnecting,
}

#[derive(Debug)]
pub(super) struct ObservedInformer<'a> {
    pub(super) key: &'a InformerKey,
    pub(super) view: InformerView,
    pub(super) state: InformerState,
    pub(super) staleness: Option<StalenessReason>,
    can_serve: bool,
}

impl<'a> ObservedInformer<'a> {
    pub(super) fn new(
        key: &'a InformerKey,
        view: InformerView,
        profile: &ResolvedProfile,
        clock: ClockReading,
    ) -> Self {
        let report = view.report.as_ref();
        let can_serve = report.is_some_and(|report| report.serves(profile.on_access_lost));
        let staleness = report
            .filter(|report| report.warmed.is_some())
            .and_then(|report| staleness(report, profile.max_staleness, clock));
        let state =
            report.map_or(InformerState::Syncing, |report| state(report, can_serve, staleness));
        Self { key, view, state, staleness, can_serve }
    }

    /// Creates the informer of a target that a limit stopped. Drops the informer's report, which
    /// exists if another profile runs the same informer. Keeps the permission state, because
    /// kubewarm still checks the informer's access.
    pub(super) fn new_stopped(key: &'a InformerKey, view: InformerView) -> Self {
        Self {
            key,
            view: view.without_report(),
            state: InformerState::Limited,
            staleness: None,
            can_serve: false,
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

    /// Whether clients of this profile can read the informer's store.
    pub(super) fn is_warm(&self) -> bool {
        self.can_serve
    }

    /// Returns the informer's namespace for the status. The name is empty for all namespaces and
    /// for cluster-scoped resources.
    pub(super) fn namespace(&self) -> &'a str {
        self.key.scope.namespace().unwrap_or_default()
    }
}

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
    can_serve: bool,
    staleness: Option<StalenessReason>,
) -> InformerState {
    let fault = report.fault.as_ref();
    if let Some(state) = fault.and_then(|fault| fault_effect(fault.reason).state) {
        return state;
    }
    match (can_serve, staleness, fault) {
        (_, _, None) if report.phase == InformerPhase::Blocked => InformerState::Forbidden,
        (false, _, Some(_)) => InformerState::Failing,
        (false, _, None) => InformerState::Syncing,
        (true, Some(_), _) => InformerState::Stale,
        (true, None, _) => InformerState::Synced,
    }
}

/// Returns why an informer with a complete first list is stale, or `None` if its store is fresh.
fn staleness(
    report: &InformerReport,
    max_staleness: Duration,
    clock: ClockReading,
) -> Option<StalenessReason> {
    let bound = report.kept_bound(max_staleness, clock.mono);
    let within =
        report.current_at.is_some_and(|at| clock.mono.saturating_duration_since(at) <= bound);
    let blink = |since: Timestamp| within && clock.wall.duration_since(since) < SHORT_INTERRUPTION;
    match (report.phase, &report.fault) {
        // A successful request clears the informer's fault, so an informer with an open watch has
        // no fault. If the watch sends nothing, the informer stays fresh until `maxStaleness` has
        // passed.
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
