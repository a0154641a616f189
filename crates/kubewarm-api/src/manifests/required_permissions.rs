//! The permissions that a profile needs, grouped by namespace.

use super::resource_set::ResourceSet;
use crate::model::{
    FieldSelector, GroupResource, InformerScope, LabelSelector, ProfileRef, ResolvedProfile,
    Subject, TargetScope, ValidatedProfile, WatchedNamespaces,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The namespaces that each namespace selector of a profile matches in the cluster. The map omits
/// selectors that kubewarm did not look up.
pub type NamespacesBySelector = BTreeMap<LabelSelector, BTreeSet<Arc<str>>>;

/// The minimal permissions that kubewarm needs to list and watch all targets of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequiredPermissions {
    pub(super) profile: ProfileRef,
    /// Name of the ServiceAccount, in the profile's namespace, with which kubewarm reads. `None`:
    /// kubewarm reads with the operator's identity.
    pub(super) account: Option<Arc<str>>,
    /// Resources by namespace. The namespaces are the profile's own namespace and those that the
    /// spec names.
    pub(super) named: BTreeMap<Arc<str>, ResourceSet>,
    pub(super) selected: Vec<SelectorPermissions>,
    /// Resources in all namespaces, and cluster-scoped resources.
    pub(super) everywhere: ResourceSet,
    /// Namespaces that kubewarm must be able to `get` by name. After an empty or rejected list,
    /// kubewarm gets the namespace to find out whether it exists.
    pub(super) looked_up: BTreeSet<Arc<str>>,
}

/// Resources that kubewarm lists and watches in every namespace that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectorPermissions {
    /// Name of the first target that declares the namespace selector `labels`. The name of the
    /// selector's ClusterRole contains the target's name.
    pub(super) target: Arc<str>,
    pub(super) labels: LabelSelector,
    /// Namespaces that match the namespace selector now. `None`: kubewarm did not look up the
    /// namespaces in a cluster.
    pub(super) namespaces: Option<BTreeSet<Arc<str>>>,
    pub(super) kinds: ResourceSet,
}

impl RequiredPermissions {
    fn none(profile: &ProfileRef, account: Option<&Arc<str>>) -> Self {
        Self {
            profile: profile.clone(),
            account: account.cloned(),
            named: BTreeMap::new(),
            selected: Vec::new(),
            everywhere: ResourceSet::default(),
            looked_up: BTreeSet::new(),
        }
    }

    /// Collects the permissions that the informers of the profile `declared` need. A target that
    /// kubewarm rejects has no informers, so the target needs no permissions.
    pub(super) fn for_informers(declared: &ResolvedProfile, watched: &WatchedNamespaces) -> Self {
        let mut needs = Self::none(&declared.profile, declared.service_account.as_ref());
        for target in &declared.targets {
            let informers = target.informers.iter().map(|informer| &informer.key);
            let Some(watch) = &target.namespaces else {
                for key in informers {
                    needs.add(key.resource.group_resource(), &key.fields, &key.scope);
                }
                continue;
            };
            needs.everywhere.insert(watch.key.resource.group_resource(), None);
            let namespaces = informers.clone().filter_map(|key| key.scope.namespace());
            let namespaces = Some(namespaces.map(Arc::from).collect());
            let mut kinds = ResourceSet::default();
            informers
                .for_each(|key| kinds.insert(key.resource.group_resource(), key.fields.name()));
            needs.select(&target.name, &watch.key.labels, namespaces, &kinds);
        }
        needs.limited(watched)
    }

    /// Collects the permissions that the targets in `profile` need, without a cluster. So the
    /// method does not check whether a cluster serves the resources, and
    /// `SelectorPermissions::namespaces` is `None` for each namespace selector that `matches` does
    /// not contain.
    pub(super) fn of_profile(
        profile: &ValidatedProfile,
        matches: &NamespacesBySelector,
        watched: &WatchedNamespaces,
    ) -> Self {
        let mut needs = Self::none(&profile.profile, profile.service_account.as_ref());
        for target in &profile.targets {
            if let TargetScope::NamespaceSelector(labels) = &target.scope {
                if let Some(namespaces) = namespaces() {
                    needs.everywhere.insert(&namespaces, None);
                }
                let mut kinds = ResourceSet::default();
                kinds.insert(&target.resource, target.fields.name());
                needs.select(&target.name, labels, matches.get(labels).cloned(), &kinds);
            }
            for scope in target.scope.informer_scopes(&profile.profile.namespace).iter().flatten() {
                needs.add(&target.resource, &target.fields, scope);
            }
        }
        needs.limited(watched)
    }

    /// Returns the subject that lists and watches: the profile's ServiceAccount, or `operator` if
    /// the profile has none.
    pub(super) fn reader(&self, operator: &Subject) -> Subject {
        match &self.account {
            None => operator.clone(),
            Some(name) => Subject::ServiceAccount {
                namespace: Arc::clone(&self.profile.namespace),
                name: Arc::clone(name),
            },
        }
    }

    /// Whether permissions in `namespace` (`None`: in the whole cluster) are for a ServiceAccount
    /// outside its own namespace. Anyone who can act as the ServiceAccount would gain access to
    /// other namespaces by such permissions.
    pub(super) fn is_outside_own_namespace(&self, namespace: Option<&str>) -> bool {
        self.account.is_some() && namespace != Some(&*self.profile.namespace)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.selected.is_empty() && self.everywhere.is_empty()
    }

    fn add(&mut self, resource: &GroupResource, fields: &FieldSelector, scope: &InformerScope) {
        let InformerScope::Namespace(namespace) = scope else {
            self.everywhere.insert(resource, fields.name());
            return;
        };
        self.named.entry(Arc::clone(namespace)).or_default().insert(resource, fields.name());
        if *namespace != self.profile.namespace {
            self.looked_up.insert(Arc::clone(namespace));
        }
    }

    /// Adds permissions for the namespaces that a namespace selector matches. Targets with equal
    /// selectors and equal matching namespaces share one role.
    fn select(
        &mut self,
        target: &Arc<str>,
        labels: &LabelSelector,
        namespaces: Option<BTreeSet<Arc<str>>>,
        kinds: &ResourceSet,
    ) {
        if namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
            return;
        }
        let is_same = |group: &&mut SelectorPermissions| {
            group.labels == *labels && group.namespaces == namespaces
        };
        if let Some(group) = self.selected.iter_mut().find(is_same) {
            group.kinds.extend(kinds);
        } else {
            let (target, labels, kinds) = (Arc::clone(target), labels.clone(), kinds.clone());
            self.selected.push(SelectorPermissions { target, labels, namespaces, kinds });
        }
    }

    /// Removes the permission to get namespaces (`looked_up`) if the operator runs without a
    /// ClusterRole, because this permission needs one. A Role in the namespace cannot grant it: the
    /// API server deletes the Role together with the namespace.
    fn limited(mut self, watched: &WatchedNamespaces) -> Self {
        if matches!(watched, WatchedNamespaces::Namespaces(_)) {
            self.looked_up.clear();
        }
        self
    }
}

pub(super) fn namespaces() -> Option<GroupResource> {
    GroupResource::new("", "namespaces").ok()
}
