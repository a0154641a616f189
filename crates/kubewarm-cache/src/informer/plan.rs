//! Computes which informers the informer registry must start, pause and stop, and which informers
//! receive new settings.

use kubewarm_api::model::{InformerKey, InformerSpec, ProfileMode};
use std::collections::{BTreeMap, BTreeSet};

/// The informers that the profiles require. Each informer has settings ([`InformerSpec`]) and a
/// mode ([`ProfileMode`]: run, pause or only plan).
pub type DesiredInformers = BTreeMap<InformerKey, (InformerSpec, ProfileMode)>;

/// The changes that turn the running informers into the required informers.
#[derive(Debug, Default)]
#[must_use = "a plan does nothing until it is applied"]
pub struct InformerChanges {
    /// Informers to create or to resume.
    pub start: Vec<InformerSpec>,
    /// Informers to pause. If the informer exists, its store keeps its objects. Otherwise, the
    /// registry creates a paused informer.
    pub pause: Vec<InformerSpec>,
    /// Informers that no profile requires any more. The registry ends them and drops their stores.
    pub stop: BTreeSet<InformerKey>,
    /// Existing informers whose [`ProfileMode`] does not change. The registry replaces only their
    /// settings, so that open watches and running lists go on.
    pub retune: Vec<InformerSpec>,
}

/// Computes the changes that turn the `running` informers into the `desired` informers. The
/// function is pure, and equal inputs give equal plans.
///
/// A profile in mode [`ProfileMode::Plan`] only forecasts costs. So the returned plan never starts
/// an informer of this mode, and stops such an informer if it runs.
pub fn plan(
    desired: &DesiredInformers,
    running: &BTreeMap<InformerKey, ProfileMode>,
) -> InformerChanges {
    let mut plan = InformerChanges::default();
    for (key, (spec, mode)) in desired {
        let list = match (mode, running.get(key)) {
            (ProfileMode::Active, Some(ProfileMode::Active))
            | (ProfileMode::Paused, Some(ProfileMode::Paused)) => &mut plan.retune,
            (ProfileMode::Plan, _) => continue,
            (ProfileMode::Active, _) => &mut plan.start,
            (ProfileMode::Paused, _) => &mut plan.pause,
        };
        list.push(spec.clone());
    }
    let is_wanted =
        |key: &InformerKey| desired.get(key).is_some_and(|(_, mode)| *mode != ProfileMode::Plan);
    plan.stop = running.keys().filter(|key| !is_wanted(key)).cloned().collect();
    plan
}
