//! The controller's decisions about all profiles, in the forms that the read API, the access
//! checker, `/readyz`, the status and the metrics need.

use crate::{
    access::{AccessChecks, CheckSettings},
    status::ObservedProfile,
};
use kubewarm_api::model::{InformerKey, InformerSpec, ResolvedProfile, ResolvedTarget};
use kubewarm_serve::reads::ServingIndex;
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// Receives [`Declarations`] when they change. The value is `None` until the first list of profiles
/// and the first discovery are complete, because the informers are unknown before.
pub type DeclarationsReceiver = watch::Receiver<Option<Arc<Declarations>>>;

/// All profiles with their targets, as of one reconciliation, in the forms that the readers need.
/// The readers share this value, so that no reader computes its form again.
#[derive(Debug)]
pub struct Declarations {
    /// All profiles, for statuses and metrics.
    pub profiles: Vec<ObservedProfile>,
    /// The informers from which the read API answers.
    pub serving_index: Arc<ServingIndex>,
    /// The informers whose access kubewarm checks: the informers of all profiles, in every mode,
    /// and the previous informers of a changed profile while their stores still serve reads.
    pub access_checks: Arc<AccessChecks>,
    /// The informers for which `/readyz` waits, including the informers in `selectors`. `/readyz`
    /// does not wait for informers that do not run: those of profiles in mode `Plan`, or of targets
    /// that a limit stopped.
    pub running: Arc<[InformerKey]>,
    /// The informers that watch Namespaces for a namespace selector. Until such an informer has
    /// listed the Namespaces, the target's other informers are unknown, and `/readyz` cannot count
    /// them.
    pub selectors: Vec<InformerKey>,
}

impl Declarations {
    pub(super) fn new(profiles: Vec<ObservedProfile>) -> Self {
        let resolved = || profiles.iter().map(|observed| &observed.resolved);
        // Several profiles can share an informer, so the set removes duplicates.
        let targets = || resolved().flat_map(|profile| profile.running_targets());
        let running: BTreeSet<_> =
            targets().flat_map(ResolvedTarget::all_informers).map(key).collect();
        let selectors = targets().filter_map(|target| target.namespaces.as_ref());
        Self {
            serving_index: Arc::new(ServingIndex::of(resolved())),
            access_checks: Arc::new(access_checks(resolved())),
            running: running.into_iter().collect(),
            selectors: selectors.map(key).collect(),
            profiles,
        }
    }

    /// Whether a reconciliation with the result `profiles` has changed nothing, so that the
    /// controller need not send new declarations. The comparison ignores the statuses in the
    /// cluster, because receivers read these statuses on demand.
    pub(super) fn is_of(&self, profiles: &[ObservedProfile]) -> bool {
        let is_same = |(old, new): (&ObservedProfile, &ObservedProfile)| {
            old.resolved == new.resolved
                && old.access.as_ref().map(Arc::as_ptr) == new.access.as_ref().map(Arc::as_ptr)
                && old.forecast.as_ref().map(Arc::as_ptr) == new.forecast.as_ref().map(Arc::as_ptr)
        };
        self.profiles.len() == profiles.len() && self.profiles.iter().zip(profiles).all(is_same)
    }
}

fn key(informer: &InformerSpec) -> InformerKey {
    informer.key.clone()
}

fn access_checks<'a>(profiles: impl Iterator<Item = &'a Arc<ResolvedProfile>>) -> AccessChecks {
    let mut checks = AccessChecks::new();
    for profile in profiles {
        for target in &profile.targets {
            let informers = target.all_informers().chain(target.serving_informers());
            for InformerSpec { key, settings, .. } in informers {
                let check = checks.entry(key.clone()).or_insert_with(|| CheckSettings {
                    namespace_check: settings.namespace_check,
                    payer: Arc::clone(&profile.profile.namespace),
                });
                check.namespace_check = check.namespace_check.max(settings.namespace_check);
            }
        }
    }
    checks
}
