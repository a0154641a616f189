//! The profiles as the controller runs them, for status, metrics, reads and readiness.

use crate::status::ObservedProfile;
use kubewarm_api::model::{DeclaredTarget, InformerKey, ProfileMode};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// Receives every profile as it runs; `None` until profiles have been listed and discovery has
/// answered.
pub type ProfileReceiver = watch::Receiver<Option<Arc<Vec<ObservedProfile>>>>;

/// Returns the informers that all profiles declare, including namespace selectors' informers.
///
/// Informers of planned and stopped targets are left out, so that readiness does not wait for them.
#[must_use]
pub fn running_informers(profiles: &[ObservedProfile]) -> Vec<InformerKey> {
    let running = running_targets(profiles).flat_map(DeclaredTarget::all_informers);
    // Removes duplicates: several profiles can share an informer.
    let keys: BTreeSet<_> = running.map(|informer| informer.key.clone()).collect();
    keys.into_iter().collect()
}

/// Returns the targets that run: those that are neither planned nor stopped by a limit.
pub fn running_targets(profiles: &[ObservedProfile]) -> impl Iterator<Item = &DeclaredTarget> {
    let watched = profiles.iter().filter(|observed| observed.declared.mode != ProfileMode::Plan);
    let targets = watched.flat_map(|observed| &observed.declared.targets);
    targets.filter(|target| !target.is_stopped())
}
