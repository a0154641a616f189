//! Metrics about profiles, computed at each scrape.

use kubewarm_api::{
    model::{ProfileMode, ProfileRef, Resource, Verb},
    v1alpha1::{CacheProfileStatus, TargetStatus},
};
use kubewarm_cache::informer::OTHER;
use prometheus::{Registry, proto::MetricFamily, register_int_gauge_vec_with_registry};
use std::{collections::BTreeMap, sync::Arc};
use strum::VariantArray as _;

/// Maximum number of profiles with their own series, in the order of namespace and name. Further
/// profiles share the series whose labels `namespace` and `profile` are `_other`.
///
/// A profile has 31 series, and one more for each missing permission.
const MAX_PROFILES: usize = 100;

/// Maximum number of exported conditions per profile, which bounds the number of series. kubewarm
/// writes 8 conditions.
const MAX_CONDITIONS: usize = 16;

pub const CONDITION_STATUSES: [&str; 3] = ["True", "False", "Unknown"];

#[derive(Clone, Debug)]
pub struct ProfileSnapshot {
    pub profile: ProfileRef,
    pub mode: ProfileMode,
    /// The status that this replica computed last. Metrics contain at most 16 of its conditions.
    pub status: Arc<CacheProfileStatus>,
    /// Number of informers that lack a permission, by resource and verb.
    pub missing: BTreeMap<(Resource, Verb), u64>,
}

/// State of a target, derived from its informers. If several states apply, the first of `Limited`,
/// `Forbidden`, `Missing`, `Failing`, `Syncing` and `Stale` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TargetState {
    /// Every informer is synced and fresh.
    Synced,
    /// At least one informer has not synced yet, and no informer that has not synced has failing
    /// requests.
    Syncing,
    /// At least one informer is not warm, and its requests fail.
    Failing,
    /// Every informer is synced, but at least one is stale.
    Stale,
    /// The API server rejects the requests of at least one informer with 401 or 403.
    Forbidden,
    /// The kind or a namespace does not exist, or the target is not accepted.
    Missing,
    /// A limit stops the target.
    Limited,
}

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
        "Mode of the profile: always 1. Under _other: number of profiles.",
    )?;
    let conditions = gauges(
        "kubewarm_profile_condition",
        &["condition", "status"],
        "Whether the condition has this status: 1 or 0. Under _other: number of profiles.",
    )?;
    let targets =
        gauges("kubewarm_profile_targets", &["state"], "Targets of the profile in this state.")?;
    let missing = gauges(
        "kubewarm_missing_permissions",
        &["group", "version", "resource", "verb"],
        "Informers that the API server rejects for lack of this permission. Absent if there are none.",
    )?;
    for (at, profile) in profiles.iter().enumerate() {
        let [namespace, name] = if at < MAX_PROFILES {
            [&*profile.profile.namespace, &*profile.profile.name]
        } else {
            [OTHER, OTHER]
        };
        info.with_label_values(&[namespace, name, profile.mode.as_ref()]).inc();
        // The shared series `_other` does not contain the conditions of profiles in the modes
        // `Paused` and `Plan`. The condition `Ready` of such profiles is never `True`, so they
        // would look like active profiles that are not ready.
        let is_counted = at < MAX_PROFILES || profile.mode == ProfileMode::Active;
        let conditions_of = profile.status.conditions.iter().take(MAX_CONDITIONS);
        for condition in conditions_of.filter(|_| is_counted) {
            for status in CONDITION_STATUSES {
                let labels = [namespace, name, &*condition.type_, status];
                conditions.with_label_values(&labels).add(i64::from(condition.status == status));
            }
        }
        // The number of series about missing permissions has a limit: a profile's number of
        // targets, and for `_other` the number of kinds in the cluster.
        for ((resource, verb), count) in &profile.missing {
            let (group, version) = (resource.group(), resource.version());
            let labels = [namespace, name, group, version, resource.resource(), verb.as_str()];
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
    fn of(target: &TargetStatus) -> Self {
        let Some(informers) = &target.informers else { return Self::Syncing };
        let is_false = |type_: &str| {
            target
                .conditions
                .iter()
                .any(|condition| condition.type_ == type_ && condition.status == "False")
        };
        if is_false("WithinLimits") {
            Self::Limited
        } else if informers.forbidden > 0 {
            Self::Forbidden
        } else if informers.missing > 0 || is_false("Accepted") {
            Self::Missing
        } else if informers.failing > 0 {
            Self::Failing
        } else if informers.syncing > 0 {
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use kubewarm_api::v1alpha1::InformerCounts;

    #[test]
    fn profiles_beyond_the_first_hundred_are_aggregated() {
        let synced = InformerCounts { total: 1, synced: 1, ..InformerCounts::default() };
        let target = TargetStatus { informers: Some(synced), ..TargetStatus::default() };
        let targets = vec![target.clone(), target];
        let status = Arc::new(CacheProfileStatus { targets, ..CacheProfileStatus::default() });
        let profile = |at: usize| ProfileSnapshot {
            profile: ProfileRef { namespace: "shop".into(), name: format!("p{at:04}").into() },
            mode: ProfileMode::Active,
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

    #[test]
    fn a_target_whose_requests_fail_is_failing_and_one_that_waits_is_syncing() {
        let state = |informers| {
            TargetState::of(&TargetStatus { informers: Some(informers), ..TargetStatus::default() })
        };
        let counts =
            InformerCounts { total: 3, synced: 1, syncing: 1, ..InformerCounts::default() };
        assert_eq!(state(counts.clone()), TargetState::Syncing);
        let failing = InformerCounts { failing: 1, ..counts };
        assert_eq!(state(failing.clone()), TargetState::Failing);
        assert_eq!(state(InformerCounts { missing: 1, ..failing }), TargetState::Missing);
    }

    #[test]
    fn conditions_of_inactive_profiles_are_not_counted_under_other() {
        let warm = Condition {
            type_: "Warm".to_owned(),
            status: "Unknown".to_owned(),
            reason: "Paused".to_owned(),
            message: String::new(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            observed_generation: None,
        };
        let status = CacheProfileStatus { conditions: vec![warm], ..CacheProfileStatus::default() };
        let status = Arc::new(status);
        let profile = |at: usize| ProfileSnapshot {
            profile: ProfileRef { namespace: "shop".into(), name: format!("p{at:04}").into() },
            mode: if at < MAX_PROFILES { ProfileMode::Active } else { ProfileMode::Paused },
            status: Arc::clone(&status),
            missing: BTreeMap::new(),
        };
        let mut profiles: Vec<_> = (0..=MAX_PROFILES).map(profile).collect();
        let families = profile_families(&mut profiles).unwrap();
        let family =
            families.iter().find(|family| family.name() == "kubewarm_profile_condition").unwrap();
        assert_eq!(family.get_metric().len(), MAX_PROFILES * CONDITION_STATUSES.len());
    }
}
