//! How profiles stand, read at each scrape.

use super::{
    OTHER, descriptor,
    label::Label,
    snapshot::{ConditionStatus, ProfileSnapshot, TargetState},
};
use prometheus::{
    IntGaugeVec,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::fmt;

/// How many profiles have series of their own, 31 each and one for each permission that it lacks: the
/// first by namespace and name. The rest are added up under `_other`.
const MAX_PROFILES: usize = 100;

/// How many conditions of a profile are exported; the API has 8.
const MAX_CONDITIONS: usize = 16;

/// Reads `profiles` at each scrape.
pub(super) struct ProfileCollector<F> {
    profiles: F,
    descs: Vec<Desc>,
}

impl<F: Fn() -> Vec<ProfileSnapshot>> ProfileCollector<F> {
    pub(super) fn new(profiles: F) -> prometheus::Result<Self> {
        let descriptors = [
            descriptor::PROFILE_INFO,
            descriptor::PROFILE_CONDITION,
            descriptor::PROFILE_TARGETS,
            descriptor::RBAC_MISSING,
        ];
        let descs =
            descriptors.iter().map(descriptor::Descriptor::desc).collect::<Result<_, _>>()?;
        Ok(Self { profiles, descs })
    }
}

impl<F: Fn() -> Vec<ProfileSnapshot> + Send + Sync> Collector for ProfileCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut profiles = (self.profiles)();
        profiles.sort_by(|a, b| a.profile.cmp(&b.profile));
        families(&profiles).unwrap_or_else(|error| {
            tracing::error!(%error, "profiles not measured");
            Vec::new()
        })
    }
}

fn families(profiles: &[ProfileSnapshot]) -> prometheus::Result<Vec<MetricFamily>> {
    let info: IntGaugeVec = descriptor::PROFILE_INFO.int_gauges()?;
    let conditions = descriptor::PROFILE_CONDITION.int_gauges()?;
    let targets = descriptor::PROFILE_TARGETS.int_gauges()?;
    let missing = descriptor::RBAC_MISSING.int_gauges()?;
    for (at, profile) in profiles.iter().enumerate() {
        let [namespace, name] = if at < MAX_PROFILES {
            [&*profile.profile.namespace, &*profile.profile.name]
        } else {
            [OTHER, OTHER]
        };
        info.get_metric_with_label_values(&[namespace, name, profile.mode.as_label()])?.inc();
        for condition in profile.conditions.iter().take(MAX_CONDITIONS) {
            for status in ConditionStatus::ALL {
                let labels = [namespace, name, &*condition.condition, status.as_label()];
                conditions
                    .get_metric_with_label_values(&labels)?
                    .add(i64::from(condition.status == *status));
            }
        }
        // Those of a profile are bounded by its targets; under `_other`, by the kinds of the cluster.
        for ((of, verb), count) in &profile.missing {
            let of = [of.group(), of.version(), of.resource()];
            let labels = [namespace, name, of[0], of[1], of[2], verb.as_label()];
            missing
                .get_metric_with_label_values(&labels)?
                .add(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        for state in TargetState::ALL {
            let count = profile.targets.get(state).copied().unwrap_or(0);
            targets
                .get_metric_with_label_values(&[namespace, name, state.as_label()])?
                .add(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    Ok([info, conditions, targets, missing].iter().flat_map(Collector::collect).collect())
}

impl<F> fmt::Debug for ProfileCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileCollector").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Mode, ProfileRef};
    use std::collections::BTreeMap;

    #[test]
    fn profiles_beyond_the_cap_are_added_up() {
        let profile = |at: usize| ProfileSnapshot {
            profile: ProfileRef { namespace: "shop".into(), name: format!("p{at:04}").into() },
            mode: Mode::Active,
            conditions: Vec::new(),
            missing: BTreeMap::new(),
            targets: BTreeMap::from([(TargetState::Synced, 2)]),
        };
        let profiles: Vec<_> = (0..MAX_PROFILES + 30).map(profile).collect();
        let families = families(&profiles).unwrap();
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
