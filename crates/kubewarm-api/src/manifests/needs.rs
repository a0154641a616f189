//! What a profile must be allowed to do, and where.

use crate::model::{
    Declared, Extent, GroupResource, LabelSelector, ProfileRef, Subject, TargetScope,
    ValidatedProfile, Watched,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Kinds to be listed and watched in one place.
pub(super) type Kinds = BTreeSet<GroupResource>;

/// The namespaces that selectors find, as far as somebody has asked. Bounded by the targets.
pub type FoundNamespaces = BTreeMap<LabelSelector, BTreeSet<Arc<str>>>;

/// The least that lets every cell of a profile be listed and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// Which profile.
    pub(super) profile: ProfileRef,
    /// The ServiceAccount of its namespace that reads; `None`: the operator.
    pub(super) account: Option<Arc<str>>,
    /// By namespace, of those that the spec names or implies.
    pub(super) named: BTreeMap<Arc<str>, Kinds>,
    /// Of namespaces that a selector finds.
    pub(super) selected: Vec<Selected>,
    /// Across all namespaces, and of kinds that live in none.
    pub(super) everywhere: Kinds,
    /// Namespaces that are asked for by name, to tell one that is absent from one that is closed.
    pub(super) looked_up: BTreeSet<Arc<str>>,
}

/// Kinds that are needed in every namespace that a selector finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    /// The first target with this selector; it gives the role its name.
    pub(super) target: Arc<str>,
    /// The selector.
    pub(super) labels: LabelSelector,
    /// What the selector finds now; `None` offline, where nobody knows.
    pub(super) namespaces: Option<BTreeSet<Arc<str>>>,
    /// What is needed there.
    pub(super) kinds: Kinds,
}

impl Needs {
    fn none(profile: &ProfileRef, account: Option<&Arc<str>>) -> Self {
        Self {
            profile: profile.clone(),
            account: account.cloned(),
            named: BTreeMap::new(),
            selected: Vec::new(),
            everywhere: Kinds::new(),
            looked_up: BTreeSet::new(),
        }
    }

    /// From the declared cells. A target that is not accepted has none and needs nothing.
    pub(super) fn of_cells(declared: &Declared, watched: &Watched) -> Self {
        let mut needs = Self::none(&declared.profile, declared.service_account.as_ref());
        for target in &declared.targets {
            let cells = target.cells.iter();
            let cells = cells.map(|cell| (cell.key.resource.group_resource(), &cell.key.extent));
            let Some(watch) = &target.namespaces else {
                cells.for_each(|(of, extent)| needs.add(of, extent));
                continue;
            };
            needs.everywhere.insert(watch.key.resource.group_resource().clone());
            let namespaces = cells.clone().filter_map(|(_, extent)| extent.namespace());
            let namespaces = Some(namespaces.map(Arc::from).collect());
            needs.select(&target.name, &watch.key.labels, namespaces, cells.map(|(of, _)| of));
        }
        needs.limited(watched)
    }

    /// From the spec: kinds as it writes them, and of each selector the namespaces that it finds,
    /// where those are known.
    pub(super) fn of_profile(
        profile: &ValidatedProfile,
        found: &FoundNamespaces,
        watched: &Watched,
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

    /// Who reads, if the operator is `operator`.
    pub(super) fn reader(&self, operator: &Subject) -> Subject {
        match &self.account {
            None => operator.clone(),
            Some(name) => Subject::ServiceAccount {
                namespace: Arc::clone(&self.profile.namespace),
                name: Arc::clone(name),
            },
        }
    }

    /// Whether what is granted in `namespace`, or everywhere, leaves the namespace of an account that
    /// the profile names: whoever may act there would gain what is elsewhere.
    pub(super) fn leaves_home(&self, namespace: Option<&str>) -> bool {
        self.account.is_some() && namespace != Some(&*self.profile.namespace)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.selected.is_empty() && self.everywhere.is_empty()
    }

    fn add(&mut self, of: &GroupResource, extent: &Extent) {
        let Extent::Namespace(namespace) = extent else {
            self.everywhere.insert(of.clone());
            return;
        };
        self.named.entry(Arc::clone(namespace)).or_default().insert(of.clone());
        if *namespace != self.profile.namespace {
            self.looked_up.insert(Arc::clone(namespace));
        }
    }

    /// Targets with the same selector that find the same namespaces share a role.
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
        let is_same = |it: &&mut Selected| it.labels == *labels && it.namespaces == namespaces;
        if let Some(group) = self.selected.iter_mut().find(is_same) {
            group.kinds.extend(kinds);
        } else {
            let (target, labels, kinds) = (Arc::clone(target), labels.clone(), kinds.collect());
            self.selected.push(Selected { target, labels, namespaces, kinds });
        }
    }

    /// Without what only a ClusterRole grants, where the operator has none: to ask for namespaces by name. A
    /// Role goes with its namespace.
    fn limited(mut self, watched: &Watched) -> Self {
        if matches!(watched, Watched::Namespaces(_)) {
            self.looked_up.clear();
        }
        self
    }
}

/// The core group's `namespaces`.
pub(super) fn namespaces() -> Option<GroupResource> {
    GroupResource::new("", "namespaces").ok()
}
