//! What to start, hold, stop and retune, decided before anything is touched.

use super::RelistReason;
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

/// The cells of this process.
pub trait Informers {
    /// Every cell there is, and whether it watches.
    fn running(&self) -> BTreeMap<CellKey, Mode>;
    /// Makes a cell, or resumes one that is held.
    fn start(&mut self, spec: &CellSpec);
    /// Ends a cell's watch, or makes a cell that has none; a table that is there is kept.
    fn hold(&mut self, spec: &CellSpec);
    /// Ends a cell and drops its table; a no-op if there is none.
    fn stop(&mut self, key: &CellKey);
    /// Changes how a cell runs, without interrupting it.
    fn retune(&mut self, spec: &CellSpec);
    /// Has a synced cell that watches list once more, for this reason; what it holds is served on.
    fn relist(&mut self, key: &CellKey, why: RelistReason);
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

/// Carries out `plan`: stops last, so that a successor is there before its predecessor goes.
pub fn apply(plan: Plan, informers: &mut impl Informers) {
    // No `..`: a new field of `Plan` must be dealt with here before this compiles again.
    let Plan { start, hold, stop, retune } = plan;
    for spec in &retune {
        informers.retune(spec);
    }
    for spec in &start {
        informers.start(spec);
    }
    for spec in &hold {
        informers.hold(spec);
    }
    for key in &stop {
        informers.stop(key);
    }
}
