//! Computes the informers to start, hold, stop and retune, before the registry changes any.

use kubewarm_api::model::{CellKey, CellSpec, Mode};
use std::collections::{BTreeMap, BTreeSet};

/// The informers that the profiles require, with their mode.
pub type Desired = BTreeMap<CellKey, (CellSpec, Mode)>;

/// The difference between the required informers and the running ones.
#[derive(Debug, Default)]
#[must_use = "a plan does nothing until it is applied"]
pub struct Plan {
    /// Informers to create or to resume.
    pub start: Vec<CellSpec>,
    /// Informers to pause, or to create without a watch. Their stores remain.
    pub hold: Vec<CellSpec>,
    /// Informers that no profile requires any more: the registry ends them and drops their stores.
    pub stop: BTreeSet<CellKey>,
    /// Running or paused informers whose mode does not change. Their tuning can have changed.
    pub retune: Vec<CellSpec>,
}

/// Computes the difference. The function is pure, and equal inputs give equal plans.
///
/// An informer in the mode `Plan` is neither started nor kept.
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
