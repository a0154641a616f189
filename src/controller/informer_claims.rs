//! Combines the requirements of all profiles for one informer into one spec. This module performs
//! no I/O.

use super::resolve::deletion_timestamp_path;
use kubewarm_api::model::{
    AccessLossPolicy, FieldPath, InformerKey, InformerSettings, InformerSpec, ProfileMode,
    ProfileRef,
};
use kubewarm_cache::{informer::DesiredInformers, store::INDEXES_PER_STORE};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// For each profile and target, the field indexes that the profile declares and a store omits. A
/// store omits an index if it already has the maximum number of indexes.
pub(super) type OmittedIndexes = BTreeMap<(ProfileRef, Arc<str>), BTreeSet<FieldPath>>;

#[derive(Debug, Default)]
pub(super) struct InformerClaims(BTreeMap<InformerKey, Vec<InformerClaim>>);

/// The requirements of one target for an informer. Several targets can require the same informer,
/// and [`InformerClaims::merge`] combines their requirements.
#[derive(Debug)]
struct InformerClaim {
    spec: InformerSpec,
    mode: ProfileMode,
    /// The target whose profile declares the field indexes in `spec`. `None` for an informer that
    /// watches Namespaces for a selector, and for an informer of an earlier profile generation.
    target: Option<Arc<str>>,
}

impl InformerClaims {
    /// Adds the requirements of a target. `spec` contains the settings of the target's profile.
    ///
    /// The caller must add profiles in order of precedence. If a store reaches its maximum number
    /// of field indexes, it gets the indexes that were added first.
    pub(super) fn add(
        &mut self,
        spec: &InformerSpec,
        mode: ProfileMode,
        target: Option<&Arc<str>>,
    ) {
        let claim = InformerClaim { spec: spec.clone(), mode, target: target.cloned() };
        self.0.entry(spec.key.clone()).or_default().push(claim);
    }

    /// Returns one spec for each informer, and the field indexes that the stores omit.
    ///
    /// - An informer watches if at least one profile that requires it is not paused. In that case
    ///   the settings of paused profiles are ignored, except `on_access_lost` and the field
    ///   indexes.
    /// - `max_staleness` and `consistency_check_period` are the minimum over the profiles that are
    ///   not ignored. The informer checks whether its namespace exists if one of these profiles
    ///   requires the check.
    /// - An informer that loses access keeps its store if any profile, active or paused, sets
    ///   `onAccessLost` to `ServeStale`.
    /// - All other settings (such as the priority, the list strategy and the page size) come from
    ///   one target: of the profiles that are not ignored, the target with the highest priority. Of
    ///   several such targets, the target that was added first counts.
    /// - The field indexes of all profiles are combined. Paused profiles are included, because
    ///   clients still read the stores of paused profiles.
    pub(super) fn merge(self) -> (DesiredInformers, OmittedIndexes) {
        let mut omitted = OmittedIndexes::new();
        let merged = self.0.into_iter().filter_map(|(key, claims)| {
            let mode = if claims.iter().any(|claim| claim.mode == ProfileMode::Active) {
                ProfileMode::Active
            } else {
                ProfileMode::Paused
            };
            let tuned =
                claims.iter().filter(|claim| claim.mode == mode).map(|claim| &claim.spec.settings);
            let stale = AccessLossPolicy::ServeStale;
            let is_kept = claims.iter().any(|claim| claim.spec.settings.on_access_lost == stale);
            let on_access_lost = if is_kept { stale } else { AccessLossPolicy::Reject };
            let settings = InformerSettings { on_access_lost, ..merge_settings(tuned)? };
            let indexes = merge_indexes(&claims, &mut omitted);
            Some((key.clone(), (InformerSpec { key, settings, indexes }, mode)))
        });
        (merged.collect(), omitted)
    }
}

fn merge_settings<'a>(
    tuned: impl Iterator<Item = &'a InformerSettings>,
) -> Option<InformerSettings> {
    let tuned: Vec<_> = tuned.collect();
    let first = *tuned.iter().min_by_key(|settings| Reverse(settings.list_slot_owner.priority))?;
    Some(InformerSettings {
        max_staleness: tuned.iter().map(|settings| settings.max_staleness).min()?,
        consistency_check_period: tuned
            .iter()
            .filter_map(|settings| settings.consistency_check_period)
            .min(),
        namespace_check: tuned.iter().map(|settings| settings.namespace_check).max()?,
        ..first.clone()
    })
}

/// Returns the field indexes that `claims` require of one store, at most [`INDEXES_PER_STORE`].
/// Adds all further indexes to `omitted`; the informer runs without them.
///
/// The index of `metadata.deletionTimestamp` precedes the indexes that profiles declare. Without
/// it, each search for the namespaces of a selector would decode all Namespaces in the store.
fn merge_indexes(claims: &[InformerClaim], omitted: &mut OmittedIndexes) -> BTreeSet<FieldPath> {
    let finds = |path: &FieldPath| {
        claims.iter().any(|claim| claim.target.is_none() && claim.spec.indexes.contains(path))
    };
    let mut united: BTreeSet<_> = deletion_timestamp_path().filter(finds).into_iter().collect();
    for InformerClaim { spec, target, .. } in claims {
        for path in &spec.indexes {
            if united.contains(path) {
                continue;
            }
            if united.len() < INDEXES_PER_STORE {
                united.insert(path.clone());
            } else if let Some(target) = target {
                let by = (spec.settings.list_slot_owner.profile.clone(), Arc::clone(target));
                omitted.entry(by).or_default().insert(path.clone());
            }
        }
    }
    united
}
