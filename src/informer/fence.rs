//! How cells learn whether they may still be read, and what becomes of them then.

use super::{
    Proof, Reports, Unproven,
    board::{Board, IsNews},
    lanes::Lane,
    state::{Access, Signal},
    task::SharedSink,
};
use crate::model::{CellKey, Delta, Fault, OnAccessLost, Tuning, Verb};
use parking_lot::{Mutex, RwLock};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// Told by whoever checks access; implemented by whoever runs and serves cells.
///
/// Calls for one cell come one after another, in the order in which its checks ended, and for cells
/// that exist no more, too. They are made on the checking task, so they must not block.
pub trait Fences: Send + Sync + 'static {
    /// The API server refuses the cell, this verb at the least: its store is dropped, unless a profile
    /// says `ServeStale`. Or for too long nobody has verified that it does not
    /// ([`Reason::Unverified`](crate::model::Reason::Unverified)): its store stays. Either way its watch
    /// ends, and nothing of it is read. Once for each loss, again when the reason changes, and for a cell
    /// that began to exist since it was refused; also for a cell that was never verified.
    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault);

    /// The API server allows the cell again: it is to be retried now instead of after its wait. Also for a cell that was never lost, but whose own requests were
    /// refused last.
    fn returned(&self, key: &CellKey);
}

/// A cell, as those see it who do not run it.
pub(super) struct Face {
    pub(super) board: Arc<Board>,
    pub(super) sink: SharedSink,
    /// Locked while the cell's task does anything.
    pub(super) turn: Arc<Mutex<()>>,
    /// What its profiles ask of it.
    pub(super) tuning: watch::Receiver<Tuning>,
    /// The last proof to readers that the table is current.
    pub(super) proof: Lane<Result<Proof, Unproven>>,
}

/// The faces of all cells.
pub(super) type Faces = Arc<RwLock<BTreeMap<CellKey, Arc<Face>>>>;

/// What each says holds on return. They wait for as long as the cell's task works on what has just
/// arrived, a few milliseconds at the most.
impl Fences for Reports {
    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault) {
        let Some(face) = self.face(key) else { return };
        let _turn = face.turn.lock();
        if face.board.lose(key, verb, fault) == IsNews::No {
            return;
        }
        // The task has not been told more than that it is over: it does nothing from here on.
        let state = face.board.state();
        let is_dropped = !state.synced || state.access == Access::Lost && !face.serves_stale();
        if is_dropped {
            face.empty(key);
        }
        tracing::warn!(
            cell = %key, ?verb, reason = %fault.reason(), %fault, is_dropped, "access lost: fenced"
        );
    }

    fn returned(&self, key: &CellKey) {
        let Some(face) = self.face(key) else { return };
        let _turn = face.turn.lock();
        face.board.regain(key);
    }
}

impl Face {
    fn serves_stale(&self) -> bool {
        self.tuning.borrow().on_access_lost == OnAccessLost::ServeStale
    }

    /// Gives up everything that is held.
    fn empty(&self, key: &CellKey) {
        self.sink.lock().apply(Delta::Purge);
        self.board.forget_undecodable();
        self.board.signal(key, Signal::Purged);
    }

    /// Gives up what is held of a cell that lost access, once none of its profiles says `ServeStale`.
    pub(super) fn free(&self, key: &CellKey) {
        if self.board.state().access != Access::Lost || self.serves_stale() {
            return;
        }
        let _turn = self.turn.lock();
        let state = self.board.state();
        if state.access == Access::Lost && state.synced {
            self.empty(key);
        }
    }
}
