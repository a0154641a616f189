//! Decides when `/readyz` succeeds: once every informer that can sync has synced, or after 10
//! minutes. `/readyz` then succeeds until the shutdown. If clients have a fallback, `/readyz` waits
//! for failing informers too, and without a limit.

#[cfg(test)]
mod tests;

use super::cached_response::CachedResponse;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{FaultReason, InformerKey};
use kubewarm_cache::informer::{FirstSync, FirstSyncMethod, InformerPhase, InformerReport};
use kubewarm_client::PeerReplicas;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};
use tokio::sync::watch;

/// Time after which `/readyz` no longer waits for a failing informer. A failing aggregated API
/// server therefore does not make all replicas unready. Not if clients have a fallback.
const MAX_FAILING: SignedDuration = SignedDuration::from_secs(60);

/// Maximum time for which `/readyz` waits for informers, after kubewarm has first listed the
/// profiles. A tenant with thousands of informers or slow lists therefore does not make all
/// replicas unready. Not if clients have a fallback.
const MAX_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// Time after an informer's last list. After this time, its event log is as long as in other
/// replicas. Before, a client of another replica that continues its watch here would get 410, and
/// list. The API server sends a bookmark every minute, and each replica's event log covers 75 s.
const LOG_WINDOW: SignedDuration = SignedDuration::from_secs(75);

/// Maximum number of informers that `/readyz?verbose` names as not synced yet.
const MAX_NAMED: usize = 100;

/// The informers of all profiles for which `/readyz` waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredInformers {
    /// The informers that kubewarm knows so far. Further informers can follow while `is_complete`
    /// is false.
    pub informers: Arc<[InformerKey]>,
    /// Whether `informers` contains the informers of all targets. False while kubewarm has not
    /// listed the namespaces that a profile's namespace selector matches.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadinessReport {
    /// How the wait for the informers' first lists ended. This outcome determines the HTTP status
    /// code of `/readyz`.
    pub(super) end: StartupOutcome,
    pub(super) is_listed: bool,
    /// Whether kubewarm has not yet listed the namespaces that a profile's namespace selector
    /// matches. The target's informers are then still unknown, so `/readyz` waits for this list, at
    /// most until `deadline`.
    pub(super) is_selecting: bool,
    /// Number of informers that `/readyz` counts. While `/readyz` waits for first lists, it ignores
    /// informers that profiles declared after the start, so that new profiles cannot delay a
    /// starting replica. Later `/readyz` counts all declared informers.
    pub(super) declared: usize,
    /// Number of informers that listed less than [`LOG_WINDOW`] ago, instead of copying a store.
    pub(super) short_logs: usize,
    /// Whether `/readyz` waits for the event logs of these informers, because another replica has
    /// clients that can come here.
    pub(super) is_log_short: bool,
    /// Number of informers that have synced once, or whose phase is `Paused`. A paused informer
    /// does not sync until a person edits its profile, so `/readyz` does not wait for it.
    pub(super) synced: usize,
    /// Number of informers that kubewarm blocks, whose requests the API server rejects, or whose
    /// resource the API server does not serve. `/readyz` does not wait for them, because they sync
    /// only after a change in the cluster.
    pub(super) refused: usize,
    /// Number of informers whose lists have failed for 60 seconds without a success.
    pub(super) failing_long: usize,
    /// Number of informers that count neither as `synced` nor as `refused` nor as `failing_long`.
    /// `/readyz` waits for these informers, until `deadline` if there is one.
    pub(super) pending: usize,
    /// At most 100 of the informers for which `/readyz` waits, each with its key, phase and reason
    /// of failure.
    pub(super) pending_informers: Vec<String>,
    /// Time at which the wait for the informers ends: 10 minutes after kubewarm has first listed
    /// the profiles. `None` when the wait has ended, or has no limit.
    pub(super) deadline: Option<Timestamp>,
}

/// Computes the result of `/readyz`. After the first success, `/readyz` succeeds until the shutdown
/// begins.
#[derive(Debug, Default)]
pub struct ReadinessTracker {
    /// The other replicas; `None` if replicas copy no stores.
    peers: Option<PeerReplicas>,
    /// The CAs of the certificate that kubewarm issues, `None` inside until the replica has it.
    /// `None` if kubewarm issues no certificate.
    authorities: Option<watch::Receiver<Option<Arc<str>>>>,
    /// Whether clients use the API server while no replica is ready. Then a replica that is not
    /// warm costs more than no replica.
    has_fallback: bool,
    progress: Mutex<ReadinessProgress>,
    pub(super) answer: CachedResponse<Arc<ReadinessReport>>,
}

#[derive(Debug, Default)]
struct ReadinessProgress {
    listed_at: Option<Timestamp>,
    /// The informers that profiles declared when kubewarm had first listed all profiles and the
    /// namespaces of their selectors. `/readyz` does not wait for informers that profiles declare
    /// later. `None` before that time, and after the wait has ended.
    first: Option<HashSet<InformerKey>>,
    /// When `/readyz` first had no informer to wait for. It waits for event logs at most
    /// [`LOG_WINDOW`] longer, also if an informer lists again and again.
    warm_at: Option<Timestamp>,
    end: StartupOutcome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StartupOutcome {
    /// `/readyz` still waits for informers.
    #[default]
    Waiting,
    /// The replica has no certificate that clients can verify. This wait has no limit, because
    /// every client would fail.
    Uncertified,
    /// Every informer that can sync has synced.
    Ready,
    /// Some informers had not synced 10 minutes after kubewarm first listed the profiles.
    TimedOut,
    /// The shutdown has begun.
    Stopping,
}

impl ReadinessTracker {
    /// Creates a tracker for a replica that has just started beside `peers`.
    pub fn new(peers: Option<PeerReplicas>) -> Self {
        Self { peers, ..Self::default() }
    }

    /// Lets `/readyz` fail until there are `authorities`: until the replica has the certificate
    /// that kubewarm issues, clients cannot verify it.
    #[must_use]
    pub fn with_certificate(self, authorities: watch::Receiver<Option<Arc<str>>>) -> Self {
        Self { authorities: Some(authorities), ..self }
    }

    /// Lets `/readyz` wait for failing informers too, and without a limit.
    #[must_use]
    pub fn with_fallback(self) -> Self {
        Self { has_fallback: true, ..self }
    }

    /// Makes `/readyz` fail from now on.
    pub fn begin_shutdown(&self) {
        self.progress.lock().end = StartupOutcome::Stopping;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.progress.lock().end == StartupOutcome::Stopping
    }

    /// Computes whether kubewarm is ready at the time `now`.
    ///
    /// `declared` is `None` before kubewarm has listed the profiles. `informers` contains the
    /// reports of running informers. A declared informer without a report counts as not synced.
    pub(super) fn compute(
        &self,
        declared: Option<&DeclaredInformers>,
        informers: &[(InformerKey, InformerReport)],
        now: Timestamp,
    ) -> ReadinessReport {
        let Some(declared) = declared else {
            let end =
                if self.is_stopping() { StartupOutcome::Stopping } else { StartupOutcome::Waiting };
            return ReadinessReport { end, ..ReadinessReport::default() };
        };
        let mut progress = self.progress.lock();
        let first_listed_at = *progress.listed_at.get_or_insert(now);
        if declared.is_complete && progress.first.is_none() {
            progress.first = Some(declared.informers.iter().cloned().collect());
        }
        let reports: HashMap<_, _> = informers.iter().map(|(key, report)| (key, report)).collect();
        let mut readiness = ReadinessReport {
            is_listed: true,
            is_selecting: !declared.is_complete,
            ..ReadinessReport::default()
        };
        for key in &*declared.informers {
            let counts =
                |first: &HashSet<_>| progress.end != StartupOutcome::Waiting || first.contains(key);
            if progress.first.as_ref().is_none_or(counts) {
                let report = reports.get(key).copied();
                readiness.add(key, report, self.has_fallback, now);
            }
        }
        let is_issued = self.authorities.as_ref().is_none_or(|known| known.borrow().is_some());
        if progress.end == StartupOutcome::Waiting && is_issued {
            // Later profiles do not delay `/readyz`, so an incomplete selector of a later profile
            // (`is_selecting`) does not matter here.
            let peers = self.peers.as_ref();
            let is_warm = progress.first.is_some() && readiness.pending == 0;
            if is_warm {
                progress.warm_at.get_or_insert(now);
            }
            let has_waited =
                progress.warm_at.is_some_and(|at| now.duration_since(at) >= LOG_WINDOW);
            let is_log_short = peers.is_some_and(PeerReplicas::has_peers)
                && readiness.short_logs > 0
                && !has_waited;
            if is_warm && !is_log_short {
                progress.end = StartupOutcome::Ready;
            } else if !self.has_fallback && now.duration_since(first_listed_at) >= MAX_WAIT {
                progress.end = StartupOutcome::TimedOut;
            } else {
                let deadline = first_listed_at.checked_add(MAX_WAIT).ok();
                readiness.deadline = deadline.filter(|_| !self.has_fallback);
                readiness.is_log_short = is_log_short;
            }
            if let Some(peers) = peers.filter(|_| progress.end != StartupOutcome::Waiting) {
                peers.record_ready();
            }
        }
        if progress.end != StartupOutcome::Waiting {
            progress.first = None;
        }
        let is_uncertified = progress.end == StartupOutcome::Waiting && !is_issued;
        readiness.end = if is_uncertified { StartupOutcome::Uncertified } else { progress.end };
        readiness
    }
}

impl ReadinessReport {
    /// Whether `/readyz` succeeds, so that the Service of kubewarm sends requests to this replica.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.end, StartupOutcome::Ready | StartupOutcome::TimedOut)
    }

    fn add(
        &mut self,
        key: &InformerKey,
        report: Option<&InformerReport>,
        has_fallback: bool,
        now: Timestamp,
    ) {
        self.declared += 1;
        if let Some(report) = report
            && let Some(settled) = self.final_count(report, has_fallback, now)
        {
            *settled += 1;
            return;
        }
        self.pending += 1;
        if self.pending_informers.len() < MAX_NAMED {
            self.pending_informers.push(pending(key, report));
        }
    }

    /// Returns the field of `self` that counts the informer of `report`. Returns `None` while
    /// `/readyz` waits for this informer.
    fn final_count(
        &mut self,
        report: &InformerReport,
        has_fallback: bool,
        now: Timestamp,
    ) -> Option<&mut usize> {
        if report.phase == InformerPhase::Blocked {
            return Some(&mut self.refused);
        }
        if report.warmed.is_some() || report.phase == InformerPhase::Paused {
            let is_list = |warmed: &&FirstSync| warmed.strategy != FirstSyncMethod::Peer;
            let listed_at = report.warmed.as_ref().filter(is_list).map(|warmed| warmed.synced);
            // A copied event log is lost if the informer had to list after all.
            let log_began_at = listed_at.max(report.last_relist.map(|relist| relist.at));
            let is_short = log_began_at.is_some_and(|at| now.duration_since(at) < LOG_WINDOW);
            self.short_logs += usize::from(is_short);
            return Some(&mut self.synced);
        }
        let fault = report.fault.as_ref()?;
        let is_absent = matches!(
            fault.reason,
            FaultReason::NotServed | FaultReason::NamespaceNotFound | FaultReason::NotListable
        );
        // An informer that is still trying another list method can sync. So the API server's
        // rejection of the first method is not final.
        let is_unsupported =
            fault.reason == FaultReason::Unsupported && report.phase == InformerPhase::Failing;
        if fault.reason.is_access_denied() || is_absent || is_unsupported {
            return Some(&mut self.refused);
        }
        let has_failed_long = now.duration_since(fault.since) >= MAX_FAILING;
        (has_failed_long && !has_fallback).then_some(&mut self.failing_long)
    }
}

impl fmt::Display for ReadinessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.end == StartupOutcome::Stopping {
            f.write_str("not ready: shutting down")
        } else if self.is_ready() {
            f.write_str("ok")
        } else if self.end == StartupOutcome::Uncertified {
            f.write_str("not ready: no certificate yet in the Secret of --certificate-secret")
        } else if self.is_listed && self.is_selecting && self.pending == 0 {
            f.write_str("not ready: namespaces not listed yet")
        } else if self.is_log_short && self.pending == 0 {
            f.write_str("not ready: event logs are shorter than 75 s")
        } else if self.is_listed {
            write!(f, "not ready: {} of {} informers pending", self.pending, self.declared)
        } else {
            f.write_str("not ready: profiles not listed yet")
        }
    }
}

fn pending(key: &InformerKey, report: Option<&InformerReport>) -> String {
    let Some(report) = report else { return format!("{key}: not started") };
    match &report.fault {
        Some(fault) => format!("{key}: {:?}, {}", report.phase, fault.reason),
        None => format!("{key}: {:?}", report.phase),
    }
}
