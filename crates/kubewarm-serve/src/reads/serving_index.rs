//! Lists the informers from which each profile serves gets, lists and watches.

use crate::metrics::ReadMetrics;
use kubewarm_api::model::{
    FieldPath, IndexDefinition, InformerKey, ProfileRef, ResolvedProfile, Resource,
};
use std::{collections::BTreeMap, sync::Arc};

/// The informers from which profiles serve gets, lists and watches, by resource. kubewarm builds
/// this index again when a profile changes, or when the informers of a profile's targets change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingIndex {
    pub(super) by_resource: BTreeMap<Resource, Vec<ServingInformer>>,
}

/// One informer from which one profile serves gets, lists and watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingInformer {
    /// The profile, with its read policy.
    pub resolved: Arc<ResolvedProfile>,
    /// The informer's key.
    pub key: InformerKey,
    /// The field indexes that the profile declares. Each entry contains the indexes of one target
    /// that uses this informer.
    pub indexes: Vec<Arc<[IndexDefinition]>>,
}

impl ServingInformer {
    /// The field paths of the index `name`, which the profile's targets declare. There can be
    /// several paths, because two targets that share an informer can declare different paths under
    /// one name.
    pub(super) fn indexes(&self, name: &str) -> impl Iterator<Item = &FieldPath> {
        let definitions = self.indexes.iter().flat_map(|of_target| &**of_target);
        definitions.filter(move |index| *index.name == *name).map(|index| &index.path)
    }
}

impl ServingIndex {
    /// Collects the informers of `profiles`.
    ///
    /// After a change of a profile, a target's previous informers serve reads until its new
    /// informers are synced. The index contains the previous and the new informers. A read that
    /// only a new informer can answer waits until the new informer is warm.
    pub fn of<'a>(profiles: impl IntoIterator<Item = &'a Arc<ResolvedProfile>>) -> Self {
        let mut by_resource: BTreeMap<Resource, Vec<ServingInformer>> = BTreeMap::new();
        for resolved in profiles {
            let mut informers: BTreeMap<&InformerKey, Vec<Arc<[IndexDefinition]>>> =
                BTreeMap::new();
            for target in resolved.running_targets() {
                for informer in target.informers.iter().chain(target.serving_informers()) {
                    let indexes = informers.entry(&informer.key).or_default();
                    // After a profile change, previous informers serve reads until the new ones are
                    // synced. They get the changed profile's indexes too, although their stores do
                    // not have these indexes: kubewarm then answers a query by such a field by a
                    // scan of all objects.
                    if !target.named.is_empty() && !indexes.contains(&target.named) {
                        indexes.push(Arc::clone(&target.named));
                    }
                }
            }
            for (key, indexes) in informers {
                by_resource.entry(key.resource.clone()).or_default().push(ServingInformer {
                    resolved: Arc::clone(resolved),
                    key: key.clone(),
                    indexes,
                });
            }
        }
        Self { by_resource }
    }

    /// The informers of `resource`. The result has one entry for each profile that uses an
    /// informer.
    pub fn informers(&self, resource: &Resource) -> &[ServingInformer] {
        self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn admit_to_metrics(&self, resource: &Resource, metrics: &ReadMetrics) {
        if self.by_resource.contains_key(resource) {
            metrics.admit(resource);
        }
    }

    /// The resources of all informers. If `profile` is given, only the resources of this profile's
    /// informers.
    pub fn resources(&self, profile: Option<&ProfileRef>) -> impl Iterator<Item = &Resource> {
        let is_of = move |informers: &[ServingInformer]| {
            profile.is_none_or(|profile| {
                informers.iter().any(|informer| informer.resolved.profile == *profile)
            })
        };
        self.by_resource
            .iter()
            .filter(move |(_, informers)| is_of(informers))
            .map(|(resource, _)| resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::fixtures::{core, declared, informer};
    use kubewarm_api::model::{
        InformerSpec, ResolvedTarget, ResourceInfo, TargetInformers, TargetRequirement,
    };
    use prometheus::Registry;

    fn index(name: &str) -> IndexDefinition {
        IndexDefinition { name: name.into(), path: FieldPath::parse(name).unwrap() }
    }

    fn spec(key: &InformerKey) -> InformerSpec {
        InformerSpec::new(key.clone(), ProfileRef { namespace: "a".into(), name: "p".into() })
    }

    /// A target that declares `informer`. The informer `old` still serves the reads of this target,
    /// as after a profile change.
    fn target(
        name: &str,
        informer: &InformerKey,
        old: &InformerKey,
        indexes: &[&str],
    ) -> ResolvedTarget {
        ResolvedTarget {
            name: name.into(),
            requirement: TargetRequirement::Required,
            declared_as: "pods".into(),
            resolved: None,
            informers: [spec(informer)].into(),
            namespaces: None,
            serving: Some(TargetInformers {
                generation: 1,
                kind: ResourceInfo::new(old.resource.clone(), "Pod"),
                informers: [spec(old)].into(),
            }),
            named: indexes.iter().copied().map(index).collect(),
            left_out: [].into(),
            limited: None,
        }
    }

    #[test]
    fn declared_indexes_count_for_all_informers_of_the_target() {
        let (first, second, old) =
            (informer("a", "", ""), informer("b", "", ""), informer("c", "", ""));
        let targets = vec![
            target("first", &first, &old, &["app", "tier"]),
            target("second", &first, &first, &["node"]),
            target("third", &second, &second, &[]),
        ];
        let declared = Arc::new(ResolvedProfile { targets, ..declared("a") });
        let serving_index = ServingIndex::of([&declared]);
        let names: Vec<Vec<_>> = [&first, &second, &old]
            .into_iter()
            .map(|key| {
                let informers = serving_index.informers(&key.resource).iter();
                let of_key = informers.filter(|informer| informer.key == *key).collect::<Vec<_>>();
                assert_eq!(of_key.len(), 1, "{key}");
                let all = ["app", "tier", "node"].into_iter();
                all.filter(|name| of_key[0].indexes(name).next().is_some()).collect()
            })
            .collect();
        assert_eq!(names, [vec!["app", "tier", "node"], vec![], vec!["app", "tier"]]);
    }

    #[test]
    fn only_resources_with_an_informer_have_their_own_metric_series() {
        let pods = informer("a", "", "");
        let mut serving_index = ServingIndex::default();
        serving_index.add("a", &pods);
        let registry = Registry::new();
        let metrics = ReadMetrics::register(&registry).unwrap();
        let invented = (0..250).map(|number| core(&format!("invented{number}")));
        for resource in invented.chain([pods.resource]) {
            serving_index.admit_to_metrics(&resource, &metrics);
            metrics.response_bytes(Some(&resource)).inc();
        }
        let families = registry.gather();
        let bytes =
            families.iter().find(|family| family.name() == "kubewarm_read_response_bytes_total");
        let series = bytes.unwrap().get_metric().iter();
        let resource_of = |labels: &[prometheus::proto::LabelPair]| {
            labels.iter().find(|pair| pair.name() == "resource").map(|pair| pair.value().to_owned())
        };
        let mut resources: Vec<_> =
            series.filter_map(|series| resource_of(series.get_label())).collect();
        resources.sort();
        assert_eq!(resources, ["_other", "pods"]);
    }
}
