//! The port through which cells learn whether they may still be read.

use crate::model::{CellKey, Fault, Verb};
use tokio::time::Instant;

/// Told by whoever checks access; implemented by whoever runs and serves cells.
///
/// Calls for one cell come one after another, in the order in which its checks ended, and for cells
/// that exist no more, too. They are made on the checking task, so they must not block.
pub trait Fences: Send + Sync + 'static {
    /// A check of all that the cell needs succeeded. What arrived before `sent`, when that check was
    /// sent, was readable; what arrived later is provisional until the next call.
    fn verified(&self, key: &CellKey, sent: Instant);

    /// The API server refuses the cell, this verb at the least: it is to stop serving. Once for each
    /// loss, and again when the reason changes; also for a cell that was never verified.
    fn lost(&self, key: &CellKey, verb: Verb, fault: &Fault);

    /// The API server allows the cell again: it is to be retried now instead of after its wait.
    /// [`Fences::verified`] follows. Also for a cell that was never lost, but whose own requests were
    /// refused last.
    fn returned(&self, key: &CellKey);
}
