//! When `/readyz` says yes: once every cell that can be synced has been, and then for good.

use super::hold::Hold;
use jiff::{SignedDuration, Timestamp};
use kubewarm_api::model::{CellKey, Reason};
use kubewarm_cache::informer::{CellReport, Phase};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

/// A cell that has failed for so long is not waited for: a dead aggregated API must take no replica
/// out of the Service.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// So long after the profiles were first listed, what is still pending is not waited for: one tenant
/// that declares thousands of cells, or whose lists trickle, must take no replica out of the Service.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// How many pending cells are named.
const MAX_NAMED: usize = 100;

/// The cells of all profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredCells {
    /// Those that are known.
    pub cells: Vec<CellKey>,
    /// Whether these are all. If not, the namespaces of some selector have not been listed yet, and
    /// its cells are missing.
    pub complete: bool,
}

/// The answer of `/readyz`, and what it rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readiness {
    /// How waiting for the first lists ended. It decides the answer.
    pub(super) end: WaitEnd,
    /// Whether the profiles have been listed.
    pub(super) listed: bool,
    /// Whether the namespaces of some selector have not been: its cells are waited for, but unknown.
    pub(super) selecting: bool,
    /// Cells that count: at a start those first declared and still declared, later all.
    pub(super) declared: usize,
    /// Of these, completely listed once, or paused.
    pub(super) synced: usize,
    /// Refused: 401, 403, 404, or invalid.
    pub(super) refused: usize,
    /// Failed for 60 s.
    pub(super) failing_long: usize,
    /// Not synced, and none of the above: waited for until `deadline`.
    pub(super) pending: usize,
    /// At most 100 of those: the key, the phase, and the reason of a failure.
    pub(super) pending_cells: Vec<String>,
    /// At a start, when waiting ends: 10 minutes after the profiles were first listed.
    pub(super) deadline: Option<Timestamp>,
}

/// Remembers what has been: readiness, once reached, stays until the shutdown begins.
#[derive(Debug, Default)]
pub struct Gate {
    stage: Mutex<Stage>,
    /// The last answer, so that frequent probes cost no more than one a second.
    pub(super) answer: Hold<Arc<Readiness>>,
}

#[derive(Debug, Default)]
struct Stage {
    /// When the profiles were first listed.
    listed_at: Option<Timestamp>,
    /// What they declared then. Cells declared later are not waited for.
    first: Option<HashSet<CellKey>>,
    end: WaitEnd,
}

/// How waiting for the first lists ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// It did not.
    #[default]
    Open,
    /// Everything that can be synced was.
    Ready,
    /// Time was up, so that readiness was reached without some cells.
    GaveUp,
    /// The process is about to end.
    Stopping,
}

impl Gate {
    /// Says no from here on.
    pub fn begin_shutdown(&self) {
        self.stage.lock().end = WaitEnd::Stopping;
    }

    /// Whether the shutdown has begun.
    pub(super) fn is_stopping(&self) -> bool {
        self.stage.lock().end == WaitEnd::Stopping
    }

    /// Looks at the cells and answers.
    ///
    /// `declared` is `None` before the profiles have been listed; `cells` is what the informers say.
    /// A declared cell without an informer is pending.
    pub(super) fn look(
        &self,
        declared: Option<&DeclaredCells>,
        cells: &[(CellKey, CellReport)],
        now: Timestamp,
    ) -> Readiness {
        let Some(declared) = declared else {
            let end = if self.is_stopping() { WaitEnd::Stopping } else { WaitEnd::Open };
            return Readiness { end, ..Readiness::default() };
        };
        let mut stage = self.stage.lock();
        let listed_at = *stage.listed_at.get_or_insert(now);
        if declared.complete && stage.first.is_none() {
            stage.first = Some(declared.cells.iter().cloned().collect());
        }
        let reports: HashMap<_, _> = cells.iter().map(|(key, report)| (key, report)).collect();
        let mut readiness =
            Readiness { listed: true, selecting: !declared.complete, ..Readiness::default() };
        for key in &declared.cells {
            let counts = |first: &HashSet<_>| stage.end != WaitEnd::Open || first.contains(key);
            if stage.first.as_ref().is_none_or(counts) {
                readiness.add(key, reports.get(key).copied(), now);
            }
        }
        if stage.end == WaitEnd::Open {
            // A selector that came later is not waited for either.
            if stage.first.is_some() && readiness.pending == 0 {
                stage.end = WaitEnd::Ready;
            } else if now.duration_since(listed_at) >= LONGEST {
                stage.end = WaitEnd::GaveUp;
            } else {
                readiness.deadline = listed_at.checked_add(LONGEST).ok();
            }
        }
        if stage.end != WaitEnd::Open {
            stage.first = None;
        }
        readiness.end = stage.end;
        readiness
    }
}

impl Readiness {
    /// Whether this replica should get requests.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.end, WaitEnd::Ready | WaitEnd::GaveUp)
    }

    fn add(&mut self, key: &CellKey, report: Option<&CellReport>, now: Timestamp) {
        self.declared += 1;
        if let Some(report) = report
            && let Some(settled) = self.settled(report, now)
        {
            *settled += 1;
            return;
        }
        self.pending += 1;
        if self.pending_cells.len() < MAX_NAMED {
            self.pending_cells.push(pending(key, report));
        }
    }

    /// The count that a cell belongs to if its first list is not waited for.
    fn settled(&mut self, report: &CellReport, now: Timestamp) -> Option<&mut usize> {
        if report.phase == Phase::Fenced {
            return Some(&mut self.refused);
        }
        if report.warmed.is_some() || report.phase == Phase::Paused {
            return Some(&mut self.synced);
        }
        let fault = report.fault.as_ref()?;
        let is_absent = matches!(
            fault.reason,
            Reason::NotServed | Reason::NamespaceNotFound | Reason::NotListable
        );
        // While another way of listing is being tried, the refusal of this one settles nothing.
        let is_unsupported = fault.reason == Reason::Unsupported && report.phase == Phase::Failing;
        if fault.reason.refuses_identity() || is_absent || is_unsupported {
            return Some(&mut self.refused);
        }
        (now.duration_since(fault.since) >= LONG).then_some(&mut self.failing_long)
    }
}

impl fmt::Display for Readiness {
    /// One line, without names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.end == WaitEnd::Stopping {
            f.write_str("not ready: shutting down")
        } else if self.is_ready() {
            f.write_str("ok")
        } else if self.listed && self.selecting && self.pending == 0 {
            f.write_str("not ready: namespaces not listed yet")
        } else if self.listed {
            write!(f, "not ready: {} of {} cells pending", self.pending, self.declared)
        } else {
            f.write_str("not ready: profiles not listed yet")
        }
    }
}

/// A cell that is waited for, and how it stands.
fn pending(key: &CellKey, report: Option<&CellReport>) -> String {
    let Some(report) = report else { return format!("{key}: not started") };
    match &report.fault {
        Some(fault) => format!("{key}: {:?}, {}", report.phase, fault.reason),
        None => format!("{key}: {:?}", report.phase),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sample::{at, failing, key, listing, snapshot, synced};

    fn all(cells: &[CellKey]) -> DeclaredCells {
        DeclaredCells { cells: cells.to_vec(), complete: true }
    }

    #[test]
    fn nothing_listed_is_not_everything_synced() {
        let gate = Gate::default();
        let look = gate.look(None, &[], at(1_000));
        assert!(!look.is_ready());
        assert_eq!(look.to_string(), "not ready: profiles not listed yet");
        assert!(
            gate.look(Some(&all(&[])), &[], at(1_000)).is_ready(),
            "no profile is nothing to wait for"
        );
    }

    #[test]
    fn readiness_waits_for_a_declared_informer_that_has_not_started() {
        let gate = Gate::default();
        let declared = [key("pods", "a"), key("pods", "b")];
        let cells = [snapshot(key("pods", "a"), synced())];
        let look = gate.look(Some(&all(&declared)), &cells, at(1_000));
        assert!(!look.is_ready());
        assert_eq!(look.to_string(), "not ready: 1 of 2 cells pending");
        assert_eq!(look.pending_cells[0], "pods.v1 in namespace b: not started");
    }

    #[test]
    fn what_is_refused_or_fails_for_a_minute_is_not_waited_for() {
        let gate = Gate::default();
        let names = ["a", "b", "c", "d"].map(|namespace| key("pods", namespace));
        let cells = |since| {
            let [a, b, c, d] = names.clone();
            [
                snapshot(a, synced()),
                snapshot(b, failing(Reason::Forbidden, 999)),
                snapshot(c, failing(Reason::NotServed, 999)),
                snapshot(d, failing(Reason::Unreachable, since)),
            ]
        };
        let look = gate.look(Some(&all(&names)), &cells(941), at(1_000));
        assert_eq!((look.is_ready(), look.synced, look.refused, look.pending), (false, 1, 2, 1));
        let look = gate.look(Some(&all(&names)), &cells(940), at(1_000));
        assert_eq!((look.is_ready(), look.failing_long, look.pending), (true, 1, 0));
    }

    #[test]
    fn a_refused_way_of_listing_settles_nothing_while_the_next_is_tried() {
        let refused = failing(Reason::Unsupported, 999);
        let trying = CellReport { phase: Phase::Listing, ..refused.clone() };
        let declared = all(&[key("pods", "a")]);
        let [refused, trying] = [refused, trying].map(|report| {
            let cells = [snapshot(key("pods", "a"), report)];
            Gate::default().look(Some(&declared), &cells, at(1_000))
        });
        assert_eq!((refused.refused, refused.pending), (1, 0));
        assert_eq!((trying.refused, trying.pending), (0, 1));
    }

    #[test]
    fn once_ready_it_stays_so_until_the_shutdown() {
        let gate = Gate::default();
        let declared = [key("pods", "a")];
        let look = |report| {
            gate.look(Some(&all(&declared)), &[snapshot(key("pods", "a"), report)], at(1_000))
        };
        assert!(look(synced()).is_ready());
        let later = look(listing());
        assert_eq!((later.is_ready(), later.pending), (true, 1));
        gate.begin_shutdown();
        let last = look(synced());
        assert_eq!((last.is_ready(), last.end), (false, WaitEnd::Stopping));
    }

    #[test]
    fn readiness_ignores_informers_that_are_added_later_or_removed() {
        let gate = Gate::default();
        let [a, b, c] = ["a", "b", "c"].map(|namespace| key("pods", namespace));
        assert!(!gate.look(Some(&all(&[a.clone(), b])), &[], at(1_000)).is_ready());
        // b went with its profile, c came with another one.
        let look = gate.look(Some(&all(&[a.clone(), c])), &[snapshot(a, synced())], at(1_000));
        assert_eq!((look.is_ready(), look.declared), (true, 1));
    }

    #[test]
    fn what_only_queues_is_not_waited_for_longer_than_ten_minutes() {
        let gate = Gate::default();
        let declared = all(&[key("pods", "a"), key("pods", "b")]);
        let cells = [snapshot(key("pods", "a"), synced())];
        let look = |second| gate.look(Some(&declared), &cells, at(second));
        assert_eq!(look(1_000).deadline, Some(at(1_600)));
        assert!(!look(1_599).is_ready());
        let last = look(1_600);
        assert_eq!((last.is_ready(), last.end, last.pending), (true, WaitEnd::GaveUp, 1));
        assert_eq!(look(9_000).end, WaitEnd::GaveUp, "for good");
    }

    #[test]
    fn a_selector_that_finds_nothing_is_not_waited_for_longer_than_ten_minutes() {
        let gate = Gate::default();
        let some = DeclaredCells { cells: vec![key("pods", "a")], complete: false };
        let cells = [snapshot(key("pods", "a"), synced())];
        let look = gate.look(Some(&some), &cells, at(1_000));
        assert_eq!((look.is_ready(), look.pending), (false, 0));
        assert_eq!(look.to_string(), "not ready: namespaces not listed yet");
        assert!(gate.look(Some(&some), &cells, at(1_600)).is_ready());
    }

    #[test]
    fn a_selector_that_comes_later_is_not_waited_for() {
        let gate = Gate::default();
        let [a, b] = ["a", "b"].map(|namespace| key("pods", namespace));
        assert!(!gate.look(Some(&all(std::slice::from_ref(&a))), &[], at(1_000)).is_ready());
        let later = DeclaredCells { cells: vec![a.clone(), b], complete: false };
        assert!(gate.look(Some(&later), &[snapshot(a, synced())], at(1_001)).is_ready());
    }
}
