use crate::status::ObservedProfile;
use kubewarm_api::model::{InformerKey, ProfileMode, ResolvedTarget};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// Receives all profiles with their targets after each reconciliation, for the status, the metrics,
/// the read API and `/readyz`. The value is `None` until the first list of profiles and the first
/// discovery are complete.
pub type ProfileReceiver = watch::Receiver<Option<Arc<Vec<ObservedProfile>>>>;

/// Returns the informers of all targets that [`running_targets`] returns, including the informers
/// that watch Namespaces for a selector.
///
/// Of the informers that profiles declare, `/readyz` waits only for the returned informers. It does
/// not wait for informers of profiles in mode `Plan`, or of targets that a limit stopped.
#[must_use]
pub fn running_informers(profiles: &[ObservedProfile]) -> Vec<InformerKey> {
    let running = running_targets(profiles).flat_map(ResolvedTarget::all_informers);
    // Several profiles can share an informer, so the set removes duplicates.
    let keys: BTreeSet<_> = running.map(|informer| informer.key.clone()).collect();
    keys.into_iter().collect()
}

/// Returns the targets that run informers: targets of active and paused profiles that no limit has
/// stopped.
pub fn running_targets(profiles: &[ObservedProfile]) -> impl Iterator<Item = &ResolvedTarget> {
    let watched = profiles.iter().filter(|observed| observed.declared.mode != ProfileMode::Plan);
    let targets = watched.flat_map(|observed| &observed.declared.targets);
    targets.filter(|target| !target.is_stopped())
}
