//! How cells learn whether they may still be read, and what becomes of them then.

use super::{
    Proof, Reports, Unproven,
    board::{Board, IsNews},
    lanes::Lane,
    state::{Access, Signal},
    task::SharedSink,
};
use crate::model::{CellKey, Delta, Fault, Outcome, Verb};
use parking_lot::{Mutex, RwLock};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Told by whoever checks access; implemented by whoever runs and serves cells.
///
/// Calls for one cell come one after another, in the order in which its checks ended, and for cells
/// that exist no more, too. They are made on the checking task, so they must not block.
pub trait Fences: Send + Sync + 'static {
    /// A check of all that the cell needs succeeded. What arrived before `sent`, when that check was
    /// sent, was readable; what arrived later is provisional until the next call.
    fn verified(&self, key: &CellKey, sent: Instant);

    /// The API server refuses the cell, this verb at the least, or for too long nobody could verify
    /// that it does not ([`Reason::Unverified`](crate::model::Reason::Unverified)): it is to stop
    /// serving. Once for each loss, again when the reason changes, and for a cell that began to exist
    /// since it was refused; also for a cell that was never verified.
    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault);

    /// The API server allows the cell again: it is to be retried now instead of after its wait.
    /// [`Fences::verified`] follows. Also for a cell that was never lost, but whose own requests were
    /// refused last.
    fn returned(&self, key: &CellKey);
}

/// A cell, as those see it who do not run it.
pub(super) struct Face {
    pub(super) board: Arc<Board>,
    pub(super) sink: SharedSink,
    /// Locked while the cell's task does anything.
    pub(super) turn: Arc<Mutex<()>>,
    /// The last proof to readers that the table is current.
    pub(super) proof: Lane<Result<Proof, Unproven>>,
}

/// The faces of all cells.
pub(super) type Faces = Arc<RwLock<BTreeMap<CellKey, Arc<Face>>>>;

/// What each says holds on return. They wait for as long as the cell's task works on what has just
/// arrived, a few milliseconds at the most.
impl Fences for Reports {
    fn verified(&self, key: &CellKey, sent: Instant) {
        let Some(face) = self.face(key) else { return };
        if face.board.state().access != Access::Lost {
            face.board.verified(sent);
            face.sink.lock().apply(Delta::Verified(sent.into_std()));
        }
    }

    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault) {
        let Some(face) = self.face(key) else { return };
        let _turn = face.turn.lock();
        let was_synced = face.board.state().synced;
        if face.board.lose(key, verb, fault) == IsNews::No {
            return;
        }
        // The task has not been told more than that it is over: it does nothing from here on.
        let mut outcome = if was_synced { face.take_back() } else { face.empty(key) };
        if outcome == Outcome::Forgotten {
            outcome = face.empty(key);
        }
        tracing::warn!(
            cell = %key, ?verb, reason = %fault.reason(), %fault,
            is_restored = outcome == Outcome::Restored, "access lost: fenced"
        );
    }

    fn returned(&self, key: &CellKey) {
        let Some(face) = self.face(key) else { return };
        let _turn = face.turn.lock();
        face.board.regain(key);
    }
}

impl Face {
    fn take_back(&self) -> Outcome {
        let mut sink = self.sink.lock();
        let outcome = sink.apply(Delta::TakeBack);
        let version = sink.version();
        drop(sink);
        self.board.restored(version);
        outcome
    }

    /// Gives up everything that is held.
    fn empty(&self, key: &CellKey) -> Outcome {
        let outcome = self.sink.lock().apply(Delta::Purge);
        self.board.see(None);
        self.board.forget_undecodable();
        self.board.signal(key, Signal::Purged);
        outcome
    }

    /// Gives up what is held if access was lost `after` ago and is not back.
    pub(super) fn free(&self, key: &CellKey, after: Duration) {
        if self.board.lost_at().is_none_or(|at| at.elapsed() < after) {
            return;
        }
        let _turn = self.turn.lock();
        let state = self.board.state();
        if state.access == Access::Lost && state.synced {
            self.empty(key);
            tracing::info!(cell = %key, "access is still lost: its memory is freed");
        }
    }
}
