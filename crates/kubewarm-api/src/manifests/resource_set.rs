//! Resources to list and watch, and the RBAC rules for them.

use crate::model::GroupResource;
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Largest number of `resourceNames` in one rule. The CRD's schema has the same limit for the rules
/// in a profile's `status.access`.
pub(super) const MAX_NAMES: usize = 64;

/// Resources that kubewarm must be able to list and watch, in one namespace or in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceSet(BTreeMap<GroupResource, PermittedObjects>);

/// The objects of a resource that kubewarm must be able to list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PermittedObjects {
    All,
    /// Only objects with these names. The API server takes the name of a list or watch with the
    /// field selector `metadata.name=<name>` from the selector, so a rule with `resourceNames`
    /// permits it (`NewRequestInfo` in <https://github.com/kubernetes/apiserver>).
    Named(BTreeSet<Arc<str>>),
}

impl ResourceSet {
    /// Adds the object `name` of `resource`, or all objects if `name` is `None`.
    pub(super) fn insert(&mut self, resource: &GroupResource, name: Option<&str>) {
        let added = name.map_or(PermittedObjects::All, |name| {
            PermittedObjects::Named([Arc::from(name)].into())
        });
        self.add(resource, added);
    }

    fn add(&mut self, resource: &GroupResource, added: PermittedObjects) {
        let objects =
            self.0.entry(resource.clone()).or_insert_with(|| PermittedObjects::Named([].into()));
        match (objects, added) {
            (PermittedObjects::Named(names), PermittedObjects::Named(more)) => names.extend(more),
            (objects, added @ PermittedObjects::All) => *objects = added,
            (PermittedObjects::All, PermittedObjects::Named(_)) => {}
        }
    }

    /// Adds everything in `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        for (resource, objects) in &other.0 {
            self.add(resource, objects.clone());
        }
    }

    /// Returns the resources that satisfy `is_wanted`.
    pub(super) fn filtered(&self, is_wanted: impl Fn(&GroupResource) -> bool) -> Self {
        let wanted = self.0.iter().filter(|(resource, _)| is_wanted(resource));
        Self(wanted.map(|(resource, objects)| (resource.clone(), objects.clone())).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Builds the rules with the verbs `list` and `watch`: one for each API group, and for each
    /// resource with names one for every 64 names.
    pub(super) fn rules(&self) -> Vec<PolicyRule> {
        let mut by_group = BTreeMap::<&str, Vec<String>>::new();
        let mut by_name = Vec::new();
        for (resource, objects) in &self.0 {
            match objects {
                PermittedObjects::All => {
                    by_group
                        .entry(resource.group())
                        .or_default()
                        .push(resource.resource().to_owned());
                }
                PermittedObjects::Named(names) => {
                    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                    by_name.extend(names.chunks(MAX_NAMES).map(|names| PolicyRule {
                        resource_names: Some(names.to_vec()),
                        ..list_and_watch(resource.group(), vec![resource.resource().to_owned()])
                    }));
                }
            }
        }
        let of_group = |(group, resources)| list_and_watch(group, resources);
        by_group.into_iter().map(of_group).chain(by_name).collect()
    }
}

/// Builds a rule that permits `list` and `watch` of all objects of `resources`.
fn list_and_watch(group: &str, resources: Vec<String>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: ["list", "watch"].map(str::to_owned).into(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_enough_unless_another_target_needs_all_objects() {
        let core = |resource| GroupResource::new("", resource).unwrap();
        let mut set = ResourceSet::default();
        set.insert(&core("secrets"), Some("tls"));
        set.insert(&core("secrets"), Some("ca"));
        for (first, second) in [(None, Some("web")), (Some("web"), None)] {
            set.insert(&core("pods"), first);
            set.insert(&core("pods"), second);
        }
        let mut whole = ResourceSet::default();
        whole.insert(&core("configmaps"), Some("a"));
        whole.extend(&set);
        let rules = whole.rules().into_iter();
        let rules: Vec<_> =
            rules.map(|rule| (rule.resources.unwrap().join(","), rule.resource_names)).collect();
        let names_of = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let expected = [
            ("pods".to_owned(), None),
            ("configmaps".to_owned(), names_of(&["a"])),
            ("secrets".to_owned(), names_of(&["ca", "tls"])),
        ];
        assert_eq!(rules, expected);
    }
}
