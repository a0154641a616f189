//! Connects the access checker, which checks whether informers may list and watch, to the
//! controller.

use crate::{
    access::{AccessChecker, AccessStates, CheckerDependencies, MAX_ACCESS_AGE},
    controller::DeclarationsReceiver,
    metrics::OperatorMetrics,
};
use kubewarm_api::model::{
    FaultReason, InformerKey, InformerSpec, ResolvedProfile, ResolvedTarget, Resource, Verb,
};
use kubewarm_cache::informer::{InformerHandles, PermissionState};
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Creates an access checker for the informers that the profiles in `declarations` declare.
/// `profile_informers` are the informers with which kubewarm watches CacheProfiles.
pub(super) fn new_access_checker(
    clients: Arc<dyn ClientProvider>,
    buckets: NamespaceBuckets,
    declarations: DeclarationsReceiver,
    profile_informers: &Arc<[InformerKey]>,
    reports: &InformerHandles,
    metrics: OperatorMetrics,
    outage_grace_period: Duration,
) -> AccessChecker {
    AccessChecker::new(CheckerDependencies {
        buckets,
        clients,
        informers: Box::new(move || {
            declarations.borrow().as_ref().map(|decided| Arc::clone(&decided.access_checks))
        }),
        profile_informers: Arc::clone(profile_informers),
        reports: reports.clone(),
        // During an outage, nothing confirms the permission of an informer, which clients may read
        // for the grace period.
        max_access_age: MAX_ACCESS_AGE.max(outage_grace_period),
        count_check: Box::new(move |check, outcome| metrics.count_access_check(check, outcome)),
    })
}

/// Returns, for each resource and verb, the number of the profile's informers that lack this
/// permission.
pub(super) fn count_missing_permissions(
    access: &AccessStates,
    profile: &ResolvedProfile,
) -> BTreeMap<(Resource, Verb), u64> {
    let mut missing = BTreeMap::new();
    for InformerSpec { key, .. } in profile.targets.iter().flat_map(ResolvedTarget::all_informers) {
        let Some(PermissionState::Refused(refused)) = access.get(key).map(|access| access.state)
        else {
            continue;
        };
        for verb in refused.verbs.iter().filter(|_| refused.reason == FaultReason::Forbidden) {
            *missing.entry((key.resource.clone(), *verb)).or_default() += 1;
        }
    }
    missing
}
