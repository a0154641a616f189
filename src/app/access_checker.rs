//! Connects the access checker, which checks whether informers may list and watch, to the profiles.
//! The profiles determine which informers the access checker checks. They also determine the
//! namespace whose rate limit each access check counts against.

use crate::{
    access::{
        AccessChecker, AccessReports, CheckSettings, CheckerDependencies, MAX_ACCESS_AGE,
        PermissionState,
    },
    controller::ProfileReceiver,
    metrics::OperatorMetrics,
    status::ObservedProfile,
};
use kubewarm_api::model::{
    FaultReason, InformerKey, InformerSpec, ResolvedProfile, ResolvedTarget, Resource, Verb,
};
use kubewarm_cache::informer::{ChangeNotifier, InformerReports};
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use std::{collections::BTreeMap, sync::Arc};

/// Creates an access checker for the informers that the profiles in `declarations` declare. `own`
/// are the informers with which kubewarm watches CacheProfiles.
pub(super) fn new_access_checker(
    clients: Arc<dyn ClientProvider>,
    buckets: NamespaceBuckets,
    declarations: &ProfileReceiver,
    own: &Arc<[InformerKey]>,
    reports: &InformerReports,
    changes: ChangeNotifier,
    metrics: OperatorMetrics,
) -> AccessChecker {
    let (mut declarations, own) = (declarations.clone(), Arc::clone(own));
    AccessChecker::new(CheckerDependencies {
        buckets,
        clients,
        informers: Box::new(move || {
            let latest = declarations.borrow_and_update();
            let profiles = latest.clone().filter(|_| latest.has_changed());
            drop(latest);
            Some(informers_to_check(&profiles?))
        }),
        own,
        reports: reports.clone(),
        changes,
        max_access_age: MAX_ACCESS_AGE,
        count_check: Box::new(move |check, outcome| metrics.count_access_check(check, outcome)),
    })
}

/// Returns the informers to check, without duplicates: the informers that the profiles declare, and the previous
/// informers of a changed profile while their stores still serve reads.
fn informers_to_check(profiles: &[ObservedProfile]) -> BTreeMap<InformerKey, CheckSettings> {
    let mut all = BTreeMap::<InformerKey, CheckSettings>::new();
    for profile in profiles.iter().map(|observed| &observed.declared) {
        for target in &profile.targets {
            let serving = target.serving.iter().flat_map(|serving| &*serving.informers);
            for InformerSpec { key, settings, .. } in target.all_informers().chain(serving) {
                let wanted = all.entry(key.clone()).or_insert_with(|| CheckSettings {
                    namespace_check: settings.namespace_check,
                    payer: Arc::clone(&profile.profile.namespace),
                });
                wanted.namespace_check = wanted.namespace_check.max(settings.namespace_check);
            }
        }
    }
    all
}

/// Returns, for each resource and verb, the number of the profile's informers that lack the
/// permission.
pub(super) fn count_missing_permissions(
    access: &AccessReports,
    profile: &ResolvedProfile,
) -> BTreeMap<(Resource, Verb), u64> {
    let mut missing = BTreeMap::new();
    for InformerSpec { key, .. } in profile.targets.iter().flat_map(ResolvedTarget::all_informers) {
        let Some(PermissionState::Refused(refused)) = access.get(key).map(|found| found.state)
        else {
            continue;
        };
        for verb in refused.verbs.iter().filter(|_| refused.reason == FaultReason::Forbidden) {
            *missing.entry((key.resource.clone(), *verb)).or_default() += 1;
        }
    }
    missing
}
