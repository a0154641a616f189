//! When `/readyz` says yes: once every cell that can be synced has been, and then for good.

use crate::{
    informer::{CellReport, Phase},
    metrics::CellSnapshot,
    model::{CellKey, Reason},
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
};

/// A cell that has failed for so long is not waited for: a dead aggregated API must take no replica
/// out of the Service.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// How many pending cells are named.
const MAX_NAMED: usize = 100;

/// What is to be waited for at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing: completely listed once.
    Synced,
    /// Nothing: refused, and only somebody else's deed helps.
    Refused,
    /// Nothing any more: it has failed for 60 s.
    FailingLong,
    /// Its first list.
    Pending,
}

/// A cell that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCell {
    /// Which.
    pub key: CellKey,
    /// Where it stands; `None` if no informer has been started for it yet.
    pub phase: Option<Phase>,
    /// Why it failed, if it did.
    pub reason: Option<Reason>,
}

/// The answer of `/readyz`, and what it rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether this replica should get requests.
    pub ready: bool,
    /// Whether it is about to end.
    pub stopping: bool,
    /// Whether the profiles have been listed and their cells declared.
    pub listed: bool,
    /// Cells that count: at a start those first declared and still declared, later all.
    pub declared: usize,
    /// Of these, completely listed once, or paused.
    pub synced: usize,
    /// Refused: 401, 403, 404, or invalid.
    pub refused: usize,
    /// Failed for 60 s.
    pub failing_long: usize,
    /// Waited for.
    pub pending: usize,
    /// At most 100 of those.
    pub pending_cells: Vec<PendingCell>,
}

/// Remembers what has been: readiness, once reached, stays until the shutdown begins.
#[derive(Debug, Default)]
pub struct Gate {
    stage: Mutex<Stage>,
}

#[derive(Debug, Default)]
enum Stage {
    /// Profiles have not been listed.
    #[default]
    Starting,
    /// They have, and declared these. Cells declared later are not waited for.
    Warming(HashSet<CellKey>),
    /// Everything that can be synced was.
    Ready,
    /// About to end.
    Stopping,
}

impl Gate {
    /// Says no from here on.
    pub fn begin_shutdown(&self) {
        *self.stage.lock() = Stage::Stopping;
    }

    /// Whether the shutdown has begun.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(&*self.stage.lock(), Stage::Stopping)
    }

    /// Looks at the cells and answers.
    ///
    /// `declared` are the cells of all profiles, `None` before the profiles have been listed and
    /// resolved; `cells` what their informers say. A declared cell without an informer is pending.
    pub fn look(
        &self,
        declared: Option<&[CellKey]>,
        cells: &[CellSnapshot],
        now: Timestamp,
    ) -> Readiness {
        let mut stage = self.stage.lock();
        if let (Stage::Starting, Some(declared)) = (&*stage, declared) {
            *stage = Stage::Warming(declared.iter().cloned().collect());
        }
        let reports: HashMap<_, _> = cells.iter().map(|cell| (&cell.key, &*cell.report)).collect();
        let mut readiness = Readiness { listed: declared.is_some(), ..Readiness::default() };
        for key in declared.unwrap_or_default() {
            if let Stage::Warming(first) = &*stage
                && !first.contains(key)
            {
                continue;
            }
            readiness.add(key, reports.get(key).copied(), now);
        }
        if matches!(&*stage, Stage::Warming(_)) && readiness.listed && readiness.pending == 0 {
            *stage = Stage::Ready;
        }
        readiness.ready = matches!(&*stage, Stage::Ready);
        readiness.stopping = matches!(&*stage, Stage::Stopping);
        readiness
    }
}

impl Readiness {
    fn add(&mut self, key: &CellKey, report: Option<&CellReport>, now: Timestamp) {
        self.declared += 1;
        match report.map_or(Standing::Pending, |report| standing(report, now)) {
            Standing::Synced => self.synced += 1,
            Standing::Refused => self.refused += 1,
            Standing::FailingLong => self.failing_long += 1,
            Standing::Pending => {
                self.pending += 1;
                if self.pending_cells.len() < MAX_NAMED {
                    self.pending_cells.push(PendingCell {
                        key: key.clone(),
                        phase: report.map(|report| report.phase),
                        reason: report.and_then(|r| r.fault.as_ref()).map(|fault| fault.reason),
                    });
                }
            }
        }
    }
}

/// Whether a cell is still waited for at `now`.
fn standing(report: &CellReport, now: Timestamp) -> Standing {
    if report.warmed.is_some() || report.phase == Phase::Paused {
        return Standing::Synced;
    }
    let Some(fault) = &report.fault else {
        return Standing::Pending;
    };
    match fault.reason {
        Reason::Forbidden
        | Reason::Unauthorized
        | Reason::NotServed
        | Reason::NamespaceNotFound
        | Reason::NotListable => return Standing::Refused,
        // While another way of listing is being tried, this one's refusal settles nothing.
        Reason::Unsupported if report.phase == Phase::Failing => return Standing::Refused,
        Reason::Unsupported
        | Reason::Gone
        | Reason::VersionAhead
        | Reason::Throttled
        | Reason::ServerError
        | Reason::Unreachable
        | Reason::TimedOut
        | Reason::Malformed
        | Reason::TooLarge
        | Reason::Lagging
        | Reason::ClosedAtOnce
        | Reason::Internal => {}
    }
    if now.duration_since(fault.since) >= LONG { Standing::FailingLong } else { Standing::Pending }
}

impl fmt::Display for Readiness {
    /// One line, without names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stopping {
            f.write_str("not ready: shutting down")
        } else if self.ready {
            f.write_str("ok")
        } else if self.listed {
            write!(f, "not ready: {} of {} cells pending", self.pending, self.declared)
        } else {
            f.write_str("not ready: profiles not listed yet")
        }
    }
}

impl fmt::Display for PendingCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match self.phase {
            Some(phase) => write!(f, "{phase:?}")?,
            None => f.write_str("not started")?,
        }
        match self.reason {
            Some(reason) => write!(f, ", {reason}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::sample::{at, failing, key, listing, snapshot, synced};

    #[test]
    fn nothing_listed_is_not_everything_synced() {
        let gate = Gate::default();
        let look = gate.look(None, &[], at(1_000));
        assert!(!look.ready);
        assert_eq!(look.to_string(), "not ready: profiles not listed yet");
        assert!(gate.look(Some(&[]), &[], at(1_000)).ready, "no profile is nothing to wait for");
    }

    #[test]
    fn a_declared_cell_without_an_informer_is_waited_for() {
        let gate = Gate::default();
        let declared = [key("pods", "a"), key("pods", "b")];
        let cells = [snapshot(key("pods", "a"), synced())];
        let look = gate.look(Some(&declared), &cells, at(1_000));
        assert!(!look.ready);
        assert_eq!(look.to_string(), "not ready: 1 of 2 cells pending");
        assert_eq!(look.pending_cells[0].to_string(), "pods.v1 in namespace b: not started");
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
        let look = gate.look(Some(&names), &cells(941), at(1_000));
        assert_eq!((look.ready, look.synced, look.refused, look.pending), (false, 1, 2, 1));
        let look = gate.look(Some(&names), &cells(940), at(1_000));
        assert_eq!((look.ready, look.failing_long, look.pending), (true, 1, 0));
    }

    #[test]
    fn a_refused_way_of_listing_settles_nothing_while_the_next_is_tried() {
        let refused = failing(Reason::Unsupported, 999);
        let trying = CellReport { phase: Phase::Listing, ..refused.clone() };
        assert_eq!(standing(&refused, at(1_000)), Standing::Refused);
        assert_eq!(standing(&trying, at(1_000)), Standing::Pending);
    }

    #[test]
    fn once_ready_it_stays_so_until_the_shutdown() {
        let gate = Gate::default();
        let declared = [key("pods", "a")];
        let look =
            |report| gate.look(Some(&declared), &[snapshot(key("pods", "a"), report)], at(1_000));
        assert!(look(synced()).ready);
        let later = look(listing());
        assert_eq!((later.ready, later.pending), (true, 1));
        gate.begin_shutdown();
        let last = look(synced());
        assert_eq!((last.ready, last.stopping), (false, true));
    }

    #[test]
    fn cells_that_come_later_or_go_are_not_waited_for() {
        let gate = Gate::default();
        let [a, b, c] = ["a", "b", "c"].map(|namespace| key("pods", namespace));
        assert!(!gate.look(Some(&[a.clone(), b]), &[], at(1_000)).ready);
        // b went with its profile, c came with another one.
        let look = gate.look(Some(&[a.clone(), c]), &[snapshot(a, synced())], at(1_000));
        assert_eq!((look.ready, look.declared), (true, 1));
    }
}
