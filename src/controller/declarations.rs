//! What the controller shows of the profiles, to those who observe them.

use crate::status::Observed;
use kubewarm_api::model::{CellKey, DeclaredTarget, Mode};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// Every profile as it is run; `None` before profiles have been listed and discovery has answered.
pub type Declarations = watch::Receiver<Option<Arc<Vec<Observed>>>>;

/// The cells that all profiles declare, those of namespace selectors included; not those that
/// are only planned, nor those that a limit has stopped: these keep nobody waiting.
#[must_use]
pub fn running_cells(profiles: &[Observed]) -> Vec<CellKey> {
    let running = running_targets(profiles).flat_map(DeclaredTarget::all_cells);
    // Cells that profiles share are one cell.
    let keys: BTreeSet<_> = running.map(|cell| cell.key.clone()).collect();
    keys.into_iter().collect()
}

/// The targets that run: none that is only planned, or that a limit has stopped.
pub fn running_targets(profiles: &[Observed]) -> impl Iterator<Item = &DeclaredTarget> {
    let watched = profiles.iter().filter(|observed| observed.declared.mode != Mode::Plan);
    let targets = watched.flat_map(|observed| &observed.declared.targets);
    targets.filter(|target| !target.is_stopped())
}
