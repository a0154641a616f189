//! What the controller shows of the profiles, to those who observe them.

use crate::status::Observed;
use kubewarm_api::model::{CellKey, DeclaredTarget, Mode};
use parking_lot::RwLock;
use std::{collections::BTreeSet, sync::Arc};

/// What everyone else sees of the controller: the profiles as they are run.
#[derive(Clone, Debug, Default)]
pub struct Declarations(pub(super) Arc<RwLock<Option<Arc<Vec<Observed>>>>>);

impl Declarations {
    /// Every profile; `None` before they have been listed and discovery has answered.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Vec<Observed>>> {
        self.0.read().clone()
    }

    /// The cells that all profiles declare, those of namespace selectors included; not those that
    /// are only planned, nor those that a limit has stopped.
    #[must_use]
    pub fn cells(&self) -> Option<Vec<CellKey>> {
        let profiles = self.get()?;
        let watched = profiles.iter().filter(|observed| observed.declared.mode != Mode::Plan);
        let targets = watched.flat_map(|observed| &observed.declared.targets);
        // What a limit has stopped keeps nobody waiting.
        let targets = targets.filter(|target| !target.is_stopped());
        let keys = targets.flat_map(DeclaredTarget::all_cells).map(|cell| &cell.key);
        // Cells that profiles share are one cell.
        let keys: BTreeSet<_> = keys.cloned().collect();
        Some(keys.into_iter().collect())
    }
}
