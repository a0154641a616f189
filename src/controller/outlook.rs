//! Computes what a profile would declare, before any informer runs. It performs no I/O.

use super::resolve::{OperatorTuning, resolve};
use kubewarm_api::{
    manifests::FoundNamespaces,
    model::{CellKey, Declared, Home, ListPolicy, ValidatedProfile},
};
use kubewarm_client::Served;
use std::sync::Arc;

/// Resolves `profile` on a cluster that serves the kinds in `served`.
///
/// `home` is the operator's scope, and `found` contains the namespaces of each selector. A selector
/// that is not in `found` has no informers.
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
