//! What to start, hold, stop and retune, decided before anything is touched.

use kubewarm_api::model::{CellKey, CellSpec, Mode};
use std::collections::{BTreeMap, BTreeSet};

/// The cells that should exist, and whether they watch.
pub type Desired = BTreeMap<CellKey, (CellSpec, Mode)>;

/// The difference between the cells that should exist and those that do.
#[derive(Debug, Default)]
#[must_use = "a plan does nothing until it is applied"]
pub struct Plan {
    /// To be made, or to be resumed.
    pub start: Vec<CellSpec>,
    /// To be made without a watch, or whose watch is to end; their tables stay.
    pub hold: Vec<CellSpec>,
    /// Wanted by no profile: watch and table go.
    pub stop: BTreeSet<CellKey>,
    /// Running and to run on; how may have changed.
    pub retune: Vec<CellSpec>,
}

/// Computes the difference. Pure, and ordered: equal inputs give equal plans.
pub fn plan(desired: &Desired, running: &BTreeMap<CellKey, Mode>) -> Plan {
    let mut plan = Plan::default();
    for (key, (spec, mode)) in desired {
        let list = match (mode, running.get(key)) {
            (Mode::Active, Some(Mode::Active)) | (Mode::Paused, Some(Mode::Paused)) => {
                &mut plan.retune
            }
            (Mode::Plan, _) => continue,
            (Mode::Active, _) => &mut plan.start,
            (Mode::Paused, _) => &mut plan.hold,
        };
        list.push(spec.clone());
    }
    let is_wanted = |key: &CellKey| desired.get(key).is_some_and(|(_, mode)| *mode != Mode::Plan);
    plan.stop = running.keys().filter(|key| !is_wanted(key)).cloned().collect();
    plan
}
