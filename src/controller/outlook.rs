//! What a profile would declare on a cluster, for whoever asks before anything runs. Pure.

use super::resolve::{OperatorTuning, resolve};
use kubewarm_api::{
    manifests::FoundNamespaces,
    model::{CellKey, Declared, Home, ListPolicy, ValidatedProfile},
};
use kubewarm_client::Served;
use std::sync::Arc;

/// Resolves `profile` on a cluster that serves `served`, where kubewarm lives in `home`
/// and selectors find `found`. A selector that is not in `found` has no cells. Lists are made by `lists`.
#[must_use]
pub fn outlook(
    profile: &ValidatedProfile,
    home: &Home,
    served: &Served,
    found: &FoundNamespaces,
    lists: ListPolicy,
) -> Declared {
    let targets = profile.targets.iter().map(|target| {
        let kind = Some(served.resolve(&target.of, target.version.as_deref()));
        let names = |key: &CellKey| Some(found.get(&key.labels)?.iter().cloned().collect());
        let operator = OperatorTuning { lists, gauge: &|_| Arc::default() };
        resolve(profile, target, home, kind, names, operator)
    });
    Declared::of(profile, targets.collect())
}
