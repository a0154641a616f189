//! Verification, and what it is told: the cells that profiles declare, and whose turn their checks
//! take.

use crate::{
    access::{AccessReports, PATIENCE, Standing, Surroundings, Verifier, Wanted},
    controller::Declarations,
    metrics::OperatorMetrics,
    status::{Excesses, Observed},
};
use kubewarm_api::model::{
    self, CellKey, Identity, NamespaceCheck, ProfileRef, Reason, Resource, Verb,
};
use kubewarm_cache::informer::{Changes, Reports};
use kubewarm_client::{Buckets, Clients};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Verifies what `declarations` declare, and tells the cells. `own`: what the operator itself reads.
pub(super) fn verifier(
    (clients, buckets): (Arc<dyn Clients>, Buckets),
    (declarations, own): (&Declarations, &Arc<[CellKey]>),
    reports: &Reports,
    changes: Changes,
    metrics: OperatorMetrics,
) -> Verifier {
    let (declarations, own, mut seen) = (declarations.clone(), Arc::clone(own), None);
    Verifier::new(Surroundings {
        buckets,
        clients,
        wanted: Box::new(move || wanted(&declarations, &mut seen)),
        own,
        reports: reports.clone(),
        changes,
        patience: PATIENCE,
        count: Box::new(move |check, outcome| metrics.access_checked(check, outcome)),
    })
}

/// Every cell that a profile declares or is answered from, once. `None` where nothing is declared but
/// what was `seen` last.
fn wanted(
    declarations: &Declarations,
    seen: &mut Option<Arc<Vec<Observed>>>,
) -> Option<BTreeMap<CellKey, Wanted>> {
    let mut wanted = BTreeMap::new();
    let profiles =
        declarations.get().filter(|new| !seen.as_ref().is_some_and(|old| Arc::ptr_eq(old, new)))?;
    *seen = Some(Arc::clone(&profiles));
    for profile in profiles.iter().map(|observed| &observed.declared) {
        for target in &profile.targets {
            let serving = target.serving.iter().flat_map(|serving| &*serving.cells);
            let is_selected = target.namespaces.is_some();
            for key in target.cells.iter().chain(&target.namespaces).chain(serving) {
                want(&mut wanted, key, &profile.profile, is_selected);
            }
        }
    }
    Some(wanted)
}

fn want(
    wanted: &mut BTreeMap<CellKey, Wanted>,
    key: &CellKey,
    profile: &ProfileRef,
    is_selected: bool,
) {
    let is_named = key.extent.namespace().is_some_and(|name| *name != *profile.namespace);
    let namespace_check =
        if is_named && !is_selected { NamespaceCheck::Ask } else { NamespaceCheck::Known };
    let wanted = wanted
        .entry(key.clone())
        .or_insert_with(|| Wanted { namespace_check, payer: Arc::clone(&profile.namespace) });
    wanted.namespace_check = wanted.namespace_check.max(namespace_check);
}

/// What the subject of a profile may do too much in the namespaces of its cells; `None` where that
/// is nobody's business in the profile's namespace, or not known yet.
pub(super) fn excess(
    access: &AccessReports,
    home: &str,
    profile: &model::Declared,
) -> Option<Excesses> {
    let cells: Vec<_> =
        profile.targets.iter().flat_map(|t| t.cells.iter().chain(&t.namespaces)).collect();
    let identity = &cells.first()?.identity;
    if *identity == Identity::Operator && *profile.profile.namespace != *home {
        return None;
    }
    let places: BTreeSet<_> = cells.iter().map(|key| key.extent.namespace()).collect();
    let of = |place: Option<&str>| {
        let place: Option<Arc<str>> = place.map(Into::into);
        let found = access.excess(identity, place.as_ref())?;
        Some((place.unwrap_or_default(), found))
    };
    places.into_iter().map(of).collect()
}

/// How many cells of a profile lack which permission.
pub(super) fn missing(
    access: &AccessReports,
    profile: &model::Declared,
) -> BTreeMap<(Resource, Verb), u64> {
    let mut missing = BTreeMap::new();
    for key in profile.targets.iter().flat_map(|t| t.cells.iter().chain(&t.namespaces)) {
        let Some(Standing::Refused(refused)) = access.get(key).map(|found| found.standing) else {
            continue;
        };
        for verb in refused.verbs.iter().filter(|_| refused.reason == Reason::Forbidden) {
            *missing.entry((key.resource.clone(), *verb)).or_default() += 1;
        }
    }
    missing
}
