//! Where whoever verifies access says what it found; implemented by the informer layer.

use super::{CellKey, Fault, Verb};
use std::time::Instant;

/// What verifying the access of cells comes to. Calls about one cell must not overtake each other;
/// those about a cell that does not exist (any more) do nothing.
///
/// A watch outlives the permissions that it was opened with, so what it has brought since access
/// was last verified is provisional: [`Fences::lost`] takes it back.
///
/// Refusals that an informer meets by itself do not fence. They stand in its report, whose
/// observers are woken: a fault `Forbidden` or `Unauthorized` is to be verified at once.
pub trait Fences: Send + Sync + 'static {
    /// At `at` the identity could still list and watch: when the request was sent that showed it,
    /// not when it was answered. Changes nothing while the cell is fenced.
    fn verified(&self, cell: &CellKey, at: Instant);

    /// It cannot any more. On return the cell's watch or list is over and what was provisional has
    /// been taken back; whether the rest is still served is each profile's affair. The cell then
    /// tries nothing by itself. Again while the cell is fenced: only the fault is replaced.
    fn lost(&self, cell: &CellKey, verb: Verb, fault: &Fault);

    /// It can again. The cell lists as soon as it gets a slot; nothing from before is served, but
    /// where the profile says so, until that list is complete. Changes nothing unless it is fenced.
    fn returned(&self, cell: &CellKey);
}
