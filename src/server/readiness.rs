//! Decides when `/readyz` succeeds: once every informer that can sync has synced, or after 10
//! minutes. `/readyz` then succeeds until the shutdown.

use super::cached_response::CachedResponse;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{FaultReason, InformerKey};
use kubewarm_cache::informer::{InformerPhase, InformerReport};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

/// Time after which `/readyz` no longer waits for a failing informer. A failing aggregated API
/// server therefore does not make all replicas unready.
const MAX_FAILING: SignedDuration = SignedDuration::from_secs(60);

/// Maximum time for which `/readyz` waits for informers, after kubewarm has first listed the
/// profiles. A tenant with thousands of informers or slow lists therefore does not make all
/// replicas unready.
const MAX_WAIT: SignedDuration = SignedDuration::from_mins(10);

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
    /// `/readyz` waits for these informers until `deadline`.
    pub(super) pending: usize,
    /// At most 100 of the informers for which `/readyz` waits, each with its key, phase and reason
    /// of failure.
    pub(super) pending_informers: Vec<String>,
    /// Time at which the wait for the informers ends: 10 minutes after kubewarm has first listed
    /// the profiles. `None` when the wait has ended.
    pub(super) deadline: Option<Timestamp>,
}

/// Computes the result of `/readyz`. After the first success, `/readyz` succeeds until the shutdown
/// begins.
#[derive(Debug, Default)]
pub struct ReadinessTracker {
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
    end: StartupOutcome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StartupOutcome {
    /// `/readyz` still waits for informers.
    #[default]
    Waiting,
    /// Every informer that can sync has synced.
    Ready,
    /// Some informers had not synced 10 minutes after kubewarm first listed the profiles.
    TimedOut,
    /// The shutdown has begun.
    Stopping,
}

impl ReadinessTracker {
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
        let listed_at = *progress.listed_at.get_or_insert(now);
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
                readiness.add(key, reports.get(key).copied(), now);
            }
        }
        if progress.end == StartupOutcome::Waiting {
            // Later profiles do not delay `/readyz`, so an incomplete selector of a later profile
            // (`is_selecting`) does not matter here.
            if progress.first.is_some() && readiness.pending == 0 {
                progress.end = StartupOutcome::Ready;
            } else if now.duration_since(listed_at) >= MAX_WAIT {
                progress.end = StartupOutcome::TimedOut;
            } else {
                readiness.deadline = listed_at.checked_add(MAX_WAIT).ok();
            }
        }
        if progress.end != StartupOutcome::Waiting {
            progress.first = None;
        }
        readiness.end = progress.end;
        readiness
    }
}

impl ReadinessReport {
    /// Whether `/readyz` succeeds, so that the Service of kubewarm sends requests to this replica.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.end, StartupOutcome::Ready | StartupOutcome::TimedOut)
    }

    fn add(&mut self, key: &InformerKey, report: Option<&InformerReport>, now: Timestamp) {
        self.declared += 1;
        if let Some(report) = report
            && let Some(settled) = self.final_count(report, now)
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
    fn final_count(&mut self, report: &InformerReport, now: Timestamp) -> Option<&mut usize> {
        if report.phase == InformerPhase::Blocked {
            return Some(&mut self.refused);
        }
        if report.warmed.is_some() || report.phase == InformerPhase::Paused {
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
        (now.duration_since(fault.since) >= MAX_FAILING).then_some(&mut self.failing_long)
    }
}

impl fmt::Display for ReadinessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.end == StartupOutcome::Stopping {
            f.write_str("not ready: shutting down")
        } else if self.is_ready() {
            f.write_str("ok")
        } else if self.is_listed && self.is_selecting && self.pending == 0 {
            f.write_str("not ready: namespaces not listed yet")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixtures::{at, failing, key, listing, snapshot, synced};

    fn all(informers: &[InformerKey]) -> DeclaredInformers {
        DeclaredInformers { informers: informers.into(), is_complete: true }
    }

    #[test]
    fn readiness_fails_until_the_profiles_are_listed() {
        let readiness = ReadinessTracker::default();
        let look = readiness.compute(None, &[], at(1_000));
        assert!(!look.is_ready());
        assert_eq!(look.to_string(), "not ready: profiles not listed yet");
        assert!(
            readiness.compute(Some(&all(&[])), &[], at(1_000)).is_ready(),
            "without profiles it is ready"
        );
    }

    #[test]
    fn readiness_waits_for_a_declared_informer_that_has_not_started() {
        let readiness = ReadinessTracker::default();
        let declared = [key("pods", "a"), key("pods", "b")];
        let informers = [snapshot(key("pods", "a"), synced())];
        let look = readiness.compute(Some(&all(&declared)), &informers, at(1_000));
        assert!(!look.is_ready());
        assert_eq!(look.to_string(), "not ready: 1 of 2 informers pending");
        assert_eq!(look.pending_informers[0], "pods.v1 in namespace b: not started");
    }

    #[test]
    fn readiness_does_not_wait_for_refused_informers_or_for_a_minute_of_failures() {
        let readiness = ReadinessTracker::default();
        let names = ["a", "b", "c", "d"].map(|namespace| key("pods", namespace));
        let informers = |since| {
            let [a, b, c, d] = names.clone();
            [
                snapshot(a, synced()),
                snapshot(b, failing(FaultReason::Forbidden, 999)),
                snapshot(c, failing(FaultReason::NotServed, 999)),
                snapshot(d, failing(FaultReason::Unreachable, since)),
            ]
        };
        let look = readiness.compute(Some(&all(&names)), &informers(941), at(1_000));
        assert_eq!((look.is_ready(), look.synced, look.refused, look.pending), (false, 1, 2, 1));
        let look = readiness.compute(Some(&all(&names)), &informers(940), at(1_000));
        assert_eq!((look.is_ready(), look.failing_long, look.pending), (true, 1, 0));
    }

    #[test]
    fn a_refused_list_method_is_not_final_while_the_next_one_is_tried() {
        let refused = failing(FaultReason::Unsupported, 999);
        let trying = InformerReport { phase: InformerPhase::Listing, ..refused.clone() };
        let declared = all(&[key("pods", "a")]);
        let [refused, trying] = [refused, trying].map(|report| {
            let informers = [snapshot(key("pods", "a"), report)];
            ReadinessTracker::default().compute(Some(&declared), &informers, at(1_000))
        });
        assert_eq!((refused.refused, refused.pending), (1, 0));
        assert_eq!((trying.refused, trying.pending), (0, 1));
    }

    #[test]
    fn readiness_stays_until_the_shutdown() {
        let readiness = ReadinessTracker::default();
        let declared = [key("pods", "a")];
        let look = |report| {
            readiness.compute(
                Some(&all(&declared)),
                &[snapshot(key("pods", "a"), report)],
                at(1_000),
            )
        };
        assert!(look(synced()).is_ready());
        let later = look(listing());
        assert_eq!((later.is_ready(), later.pending), (true, 1));
        readiness.begin_shutdown();
        let last = look(synced());
        assert_eq!((last.is_ready(), last.end), (false, StartupOutcome::Stopping));
    }

    #[test]
    fn readiness_ignores_informers_that_are_added_later_or_removed() {
        let readiness = ReadinessTracker::default();
        let [a, b, c] = ["a", "b", "c"].map(|namespace| key("pods", namespace));
        assert!(!readiness.compute(Some(&all(&[a.clone(), b])), &[], at(1_000)).is_ready());
        // A profile with informer b was deleted, and another profile declared informer c.
        let look =
            readiness.compute(Some(&all(&[a.clone(), c])), &[snapshot(a, synced())], at(1_000));
        assert_eq!((look.is_ready(), look.declared), (true, 1));
    }

    #[test]
    fn readiness_waits_ten_minutes_for_queued_informers() {
        let readiness = ReadinessTracker::default();
        let declared = all(&[key("pods", "a"), key("pods", "b")]);
        let informers = [snapshot(key("pods", "a"), synced())];
        let look = |second| readiness.compute(Some(&declared), &informers, at(second));
        assert_eq!(look(1_000).deadline, Some(at(1_600)));
        assert!(!look(1_599).is_ready());
        let last = look(1_600);
        assert_eq!((last.is_ready(), last.end, last.pending), (true, StartupOutcome::TimedOut, 1));
        assert_eq!(look(9_000).end, StartupOutcome::TimedOut, "it stays ready");
    }

    #[test]
    fn readiness_waits_ten_minutes_for_a_selectors_namespaces() {
        let readiness = ReadinessTracker::default();
        let some = DeclaredInformers { informers: [key("pods", "a")].into(), is_complete: false };
        let informers = [snapshot(key("pods", "a"), synced())];
        let look = readiness.compute(Some(&some), &informers, at(1_000));
        assert_eq!((look.is_ready(), look.pending), (false, 0));
        assert_eq!(look.to_string(), "not ready: namespaces not listed yet");
        assert!(readiness.compute(Some(&some), &informers, at(1_600)).is_ready());
    }

    #[test]
    fn readiness_does_not_wait_for_a_selector_added_later() {
        let readiness = ReadinessTracker::default();
        let [a, b] = ["a", "b"].map(|namespace| key("pods", namespace));
        assert!(
            !readiness.compute(Some(&all(std::slice::from_ref(&a))), &[], at(1_000)).is_ready()
        );
        let later = DeclaredInformers { informers: [a.clone(), b].into(), is_complete: false };
        assert!(readiness.compute(Some(&later), &[snapshot(a, synced())], at(1_001)).is_ready());
    }
}
