//! Permissions that a profile needs, by namespace.

use crate::model::{
    DeclaredProfile, GroupResource, InformerScope, LabelSelector, ProfileRef, Subject, TargetScope,
    ValidatedProfile, WatchedNamespaces,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Resources to list and watch in one namespace or in the cluster.
pub(super) type ResourceSet = BTreeSet<GroupResource>;

/// Namespaces by selector, for selectors that were looked up in the cluster. It has at most one
/// entry for each target.
pub type NamespacesBySelector = BTreeMap<LabelSelector, BTreeSet<Arc<str>>>;

/// The minimal permissions that permit kubewarm to list and watch all targets of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequiredPermissions {
    /// Namespace and name of the profile.
    pub(super) profile: ProfileRef,
    /// ServiceAccount of the profile's namespace that reads. `None`: the operator reads.
    pub(super) account: Option<Arc<str>>,
    /// Resources by namespace, for namespaces that the spec names or implies.
    pub(super) named: BTreeMap<Arc<str>, ResourceSet>,
    /// Resources in the namespaces that selectors match.
    pub(super) selected: Vec<SelectorPermissions>,
    /// Resources in all namespaces, and cluster-scoped resources.
    pub(super) everywhere: ResourceSet,
    /// Namespaces to `get` by name, which shows whether a namespace does not exist or RBAC does not
    /// permit access.
    pub(super) looked_up: BTreeSet<Arc<str>>,
}

/// Resources that are necessary in every namespace of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectorPermissions {
    /// The first target with this selector, whose name is part of the role's name.
    pub(super) target: Arc<str>,
    /// The namespace selector.
    pub(super) labels: LabelSelector,
    /// Namespaces that the selector matches now; `None` without a cluster.
    pub(super) namespaces: Option<BTreeSet<Arc<str>>>,
    /// Resources to list and watch in these namespaces.
    pub(super) kinds: ResourceSet,
}

impl RequiredPermissions {
    fn none(profile: &ProfileRef, account: Option<&Arc<str>>) -> Self {
        Self {
            profile: profile.clone(),
            account: account.cloned(),
            named: BTreeMap::new(),
            selected: Vec::new(),
            everywhere: ResourceSet::new(),
            looked_up: BTreeSet::new(),
        }
    }

    /// Collects the permissions for the declared informers. A rejected target has no informers and
    /// needs no permissions.
    pub(super) fn for_informers(declared: &DeclaredProfile, watched: &WatchedNamespaces) -> Self {
        let mut needs = Self::none(&declared.profile, declared.service_account.as_ref());
        for target in &declared.targets {
            let informers = target.informers.iter();
            let informers = informers
                .map(|informer| (informer.key.resource.group_resource(), &informer.key.extent));
            let Some(watch) = &target.namespaces else {
                informers.for_each(|(of, extent)| needs.add(of, extent));
                continue;
            };
            needs.everywhere.insert(watch.key.resource.group_resource().clone());
            let namespaces = informers.clone().filter_map(|(_, extent)| extent.namespace());
            let namespaces = Some(namespaces.map(Arc::from).collect());
            needs.select(&target.name, &watch.key.labels, namespaces, informers.map(|(of, _)| of));
        }
        needs.limited(watched)
    }

    /// Collects the permissions from the spec. Resources are taken as written. Namespaces of a
    /// selector come from `found`, and stay `None` if the selector is absent there.
    pub(super) fn of_profile(
        profile: &ValidatedProfile,
        found: &NamespacesBySelector,
        watched: &WatchedNamespaces,
    ) -> Self {
        let mut needs = Self::none(&profile.profile, profile.service_account.as_ref());
        for target in &profile.targets {
            if let TargetScope::NamespaceSelector(labels) = &target.scope {
                needs.everywhere.extend(namespaces());
                needs.select(&target.name, labels, found.get(labels).cloned(), [&target.of]);
            }
            for extent in target.scope.extents(&profile.profile.namespace).iter().flatten() {
                needs.add(&target.of, extent);
            }
        }
        needs.limited(watched)
    }

    /// Returns the subject that reads: the profile's ServiceAccount, or `operator`.
    pub(super) fn reader(&self, operator: &Subject) -> Subject {
        match &self.account {
            None => operator.clone(),
            Some(name) => Subject::ServiceAccount {
                namespace: Arc::clone(&self.profile.namespace),
                name: Arc::clone(name),
            },
        }
    }

    /// Whether a grant in `namespace`, or in the cluster if it is `None`, is outside the namespace
    /// of the profile's ServiceAccount. Anyone who can act as the account would then gain access to
    /// other namespaces.
    pub(super) fn is_outside_own_namespace(&self, namespace: Option<&str>) -> bool {
        self.account.is_some() && namespace != Some(&*self.profile.namespace)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.selected.is_empty() && self.everywhere.is_empty()
    }

    fn add(&mut self, of: &GroupResource, extent: &InformerScope) {
        let InformerScope::Namespace(namespace) = extent else {
            self.everywhere.insert(of.clone());
            return;
        };
        self.named.entry(Arc::clone(namespace)).or_default().insert(of.clone());
        if *namespace != self.profile.namespace {
            self.looked_up.insert(Arc::clone(namespace));
        }
    }

    /// Adds permissions for a selector. Targets with equal selectors and equal namespaces share a
    /// role.
    fn select<'a>(
        &mut self,
        target: &Arc<str>,
        labels: &LabelSelector,
        namespaces: Option<BTreeSet<Arc<str>>>,
        kinds: impl IntoIterator<Item = &'a GroupResource>,
    ) {
        if namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
            return;
        }
        let kinds = kinds.into_iter().cloned();
        let is_same =
            |it: &&mut SelectorPermissions| it.labels == *labels && it.namespaces == namespaces;
        if let Some(group) = self.selected.iter_mut().find(is_same) {
            group.kinds.extend(kinds);
        } else {
            let (target, labels, kinds) = (Arc::clone(target), labels.clone(), kinds.collect());
            self.selected.push(SelectorPermissions { target, labels, namespaces, kinds });
        }
    }

    /// Removes `looked_up` if the operator has no ClusterRole. A Role cannot replace it, because
    /// the API server deletes a Role with its namespace.
    fn limited(mut self, watched: &WatchedNamespaces) -> Self {
        if matches!(watched, WatchedNamespaces::Namespaces(_)) {
            self.looked_up.clear();
        }
        self
    }
}

/// The resource `namespaces` of the core group.
pub(super) fn namespaces() -> Option<GroupResource> {
    GroupResource::new("", "namespaces").ok()
}
