//! How profiles stand, read at each scrape.

use kubewarm_api::{
    model::{Mode, ProfileRef, Resource, Verb},
    v1alpha1::{CacheProfileStatus, TargetStatus},
};
use kubewarm_cache::informer::OTHER;
use prometheus::{Registry, proto::MetricFamily, register_int_gauge_vec_with_registry};
use std::{collections::BTreeMap, sync::Arc};
use strum::VariantArray as _;

/// How many profiles have series of their own, 31 each and one for each permission that it lacks: the
/// first by namespace and name. The rest are added up under `_other`.
const MAX_PROFILES: usize = 100;

/// How many conditions of a profile are exported; the API has 8.
const MAX_CONDITIONS: usize = 16;

/// What a condition can be.
pub const CONDITION_STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// A profile as this replica sees it.
#[derive(Clone, Debug)]
pub struct ProfileSnapshot {
    /// Which profile.
    pub profile: ProfileRef,
    /// Whether it watches.
    pub mode: Mode,
    /// The status that this replica computed last; at most 16 of its conditions are exported.
    pub status: Arc<CacheProfileStatus>,
    /// How many cells lack which permission.
    pub missing: BTreeMap<(Resource, Verb), u64>,
}

/// How a target stands, all its cells together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TargetState {
    /// Every cell is synced and current.
    Synced,
    /// Some cell has not been synced yet, and may still be.
    Syncing,
    /// Every cell is synced, some are not known to be current.
    Stale,
    /// Some cell may not be read.
    Forbidden,
    /// Its kind or a namespace is not there.
    Missing,
    /// A limit has stopped it.
    Limited,
}

/// How `profiles` stand.
pub(super) fn profile_families(
    profiles: &mut [ProfileSnapshot],
) -> prometheus::Result<Vec<MetricFamily>> {
    profiles.sort_by(|a, b| a.profile.cmp(&b.profile));
    let registry = Registry::new();
    let gauges = |name: &str, labels: &[&str], help: &str| {
        let labels = [&["namespace", "profile"], labels].concat();
        register_int_gauge_vec_with_registry!(name, help, &labels, registry)
    };
    let info = gauges(
        "kubewarm_profile_info",
        &["mode"],
        "Always 1; how many there are for those under _other.",
    )?;
    let conditions = gauges(
        "kubewarm_profile_condition",
        &["condition", "status"],
        "Whether the condition has this status: 1 or 0; how many have it for those under _other.",
    )?;
    let targets = gauges("kubewarm_profile_targets", &["state"], "Targets in this state.")?;
    let missing = gauges(
        "kubewarm_rbac_missing",
        &["group", "version", "resource", "verb"],
        "Cells that the API server refuses for want of this permission; absent where there are none.",
    )?;
    for (at, profile) in profiles.iter().enumerate() {
        let [namespace, name] = if at < MAX_PROFILES {
            [&*profile.profile.namespace, &*profile.profile.name]
        } else {
            [OTHER, OTHER]
        };
        info.with_label_values(&[namespace, name, profile.mode.as_ref()]).inc();
        for condition in profile.status.conditions.iter().take(MAX_CONDITIONS) {
            for status in CONDITION_STATUSES {
                let labels = [namespace, name, &*condition.type_, status];
                conditions.with_label_values(&labels).add(i64::from(condition.status == status));
            }
        }
        // Those of a profile are bounded by its targets; under `_other`, by the kinds of the cluster.
        for ((of, verb), count) in &profile.missing {
            let of = [of.group(), of.version(), of.resource()];
            let labels = [namespace, name, of[0], of[1], of[2], verb.as_str()];
            missing.with_label_values(&labels).add(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        for state in TargetState::VARIANTS {
            targets.with_label_values(&[namespace, name, state.as_ref()]).add(0);
        }
        for target in &profile.status.targets {
            let state = TargetState::of(target);
            targets.with_label_values(&[namespace, name, state.as_ref()]).inc();
        }
    }
    Ok(registry.gather())
}

impl TargetState {
    /// From the counts of its status.
    fn of(target: &TargetStatus) -> Self {
        let Some(informers) = &target.informers else { return Self::Syncing };
        let is_false = |type_: &str| {
            target.conditions.iter().any(|it| it.type_ == type_ && it.status == "False")
        };
        if is_false("WithinLimits") {
            Self::Limited
        } else if informers.forbidden > 0 {
            Self::Forbidden
        } else if informers.missing > 0 || is_false("Accepted") {
            Self::Missing
        } else if informers.syncing > 0 || informers.failing > 0 {
            Self::Syncing
        } else if informers.stale > 0 {
            Self::Stale
        } else {
            Self::Synced
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::v1alpha1::InformerCounts;

    #[test]
    fn profiles_beyond_the_cap_are_added_up() {
        let synced = InformerCounts { total: 1, synced: 1, ..InformerCounts::default() };
        let target = TargetStatus { informers: Some(synced), ..TargetStatus::default() };
        let targets = vec![target.clone(), target];
        let status = Arc::new(CacheProfileStatus { targets, ..CacheProfileStatus::default() });
        let profile = |at: usize| ProfileSnapshot {
            profile: ProfileRef { namespace: "shop".into(), name: format!("p{at:04}").into() },
            mode: Mode::Active,
            status: Arc::clone(&status),
            missing: BTreeMap::new(),
        };
        let mut profiles: Vec<_> = (0..MAX_PROFILES + 30).map(profile).collect();
        let families = profile_families(&mut profiles).unwrap();
        let series = |name: &str| families.iter().find(|f| f.name() == name).unwrap().get_metric();
        assert_eq!(series("kubewarm_profile_info").len(), MAX_PROFILES + 1);
        let rest = series("kubewarm_profile_targets").iter().find(|metric| {
            let labels: Vec<_> =
                metric.get_label().iter().map(prometheus::proto::LabelPair::value).collect();
            labels.contains(&OTHER) && labels.contains(&"synced")
        });
        let added = rest.unwrap().get_gauge().get_value();
        assert!((added - 60.0).abs() < f64::EPSILON, "{added}");
    }
}
