//! What a profile would declare on a cluster, for whoever asks before anything runs. Pure.

use super::resolve::resolve;
use crate::forecast::Order;
use kubewarm_api::{
    manifests::FoundNamespaces,
    model::{CellKey, Home, Refusal, ValidatedProfile},
};
use kubewarm_client::Served;
use std::sync::Arc;

/// Resolves `profile` on a cluster that serves `served`, where kubewarm lives in `home`
/// and selectors find `found`: what its cells would be, and what of it would be
/// refused, by target. A selector that is not in `found` has no cells.
#[must_use]
pub fn outlook(
    profile: &ValidatedProfile,
    home: &Home,
    served: &Served,
    found: &FoundNamespaces,
) -> (Order, Vec<(Arc<str>, Refusal)>) {
    let names = |key: &CellKey| Some(found.get(&key.labels)?.iter().cloned().collect());
    let mut order = Order {
        profile: profile.profile.clone(),
        uid: Arc::clone(&profile.uid),
        generation: profile.generation,
        max_concurrent_lists: profile.warmup.max_concurrent_lists,
        targets: Vec::new(),
    };
    let mut refused = Vec::new();
    for target in &profile.targets {
        let kind = Some(served.resolve(&target.of, target.version.as_deref()));
        let resolved = resolve(profile, target, home, kind, names);
        order.targets.extend(resolved.ordered());
        let refusal = resolved.declared.resolved.and_then(Result::err);
        refused.extend(refusal.map(|refusal| (resolved.declared.name, refusal)));
    }
    (order, refused)
}
