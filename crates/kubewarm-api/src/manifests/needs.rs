//! What a profile must be allowed to do, and where.

use crate::model::{
    CellKey, Declared, DeclaredTarget, Extent, GroupResource, LabelSelector, ProfileRef, Subject,
    Target, TargetScope, ValidatedProfile, Watched,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Kinds to be listed and watched in one place.
pub(super) type Kinds = BTreeSet<GroupResource>;

/// The namespaces that selectors find, as far as somebody has asked. Bounded by the targets.
pub type FoundNamespaces = BTreeMap<LabelSelector, BTreeSet<Arc<str>>>;

/// Whether it is granted to ask for namespaces by name. Nothing but a ClusterRole grants that of one
/// that is gone, which is what it is for: a Role goes with its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// By a ClusterRole.
    Granted,
    /// Not at all.
    Left,
}

impl From<&Watched> for Lookup {
    fn from(watched: &Watched) -> Self {
        match watched {
            Watched::Everywhere => Self::Granted,
            Watched::Namespaces(_) => Self::Left,
        }
    }
}

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
    /// What the selector finds now; `None` offline, where nobody knows.
    pub(super) namespaces: Option<BTreeSet<Arc<str>>>,
    /// What is needed there.
    pub(super) kinds: Kinds,
}

impl Needs {
    fn none(profile: ProfileRef, account: Option<Arc<str>>) -> Self {
        Self {
            profile,
            account,
            named: BTreeMap::new(),
            selected: Vec::new(),
            everywhere: Kinds::new(),
            looked_up: BTreeSet::new(),
        }
    }

    /// From the declared cells. A target that is not accepted has none and needs nothing.
    pub(super) fn of_cells(declared: &Declared, lookup: Lookup) -> Self {
        let mut needs = Self::none(declared.profile.clone(), declared.service_account.clone());
        let mut groups = BTreeMap::<(&CellKey, BTreeSet<&str>), usize>::new();
        for target in &declared.targets {
            let Some(watch) = &target.namespaces else {
                target.cells.iter().for_each(|cell| needs.add_cell(cell));
                continue;
            };
            needs.watch_namespaces(watch);
            let namespaces: BTreeSet<_> =
                target.cells.iter().filter_map(|cell| cell.extent.namespace()).collect();
            if namespaces.is_empty() {
                continue;
            }
            let next = needs.selected.len();
            let at = *groups.entry((watch, namespaces)).or_insert(next);
            needs.select(at, target);
        }
        needs.limit(lookup);
        needs
    }

    /// From the spec: kinds as it writes them, and of each selector the namespaces that it finds,
    /// where those are known.
    pub(super) fn of_profile(
        profile: &ValidatedProfile,
        found: &FoundNamespaces,
        lookup: Lookup,
    ) -> Self {
        let mut needs = Self::none(profile.profile.clone(), profile.service_account.clone());
        let mut groups = BTreeMap::<&LabelSelector, usize>::new();
        for Target { name, of, scope, .. } in &profile.targets {
            match scope {
                TargetScope::OwnNamespace => {
                    needs.add_namespace(&profile.profile.namespace, of);
                }
                TargetScope::Namespaces(names) => {
                    for namespace in names {
                        needs.add_namespace(namespace, of);
                    }
                }
                TargetScope::AllNamespaces | TargetScope::Cluster => {
                    needs.everywhere.insert(of.clone());
                }
                TargetScope::NamespaceSelector(selector) => {
                    needs.everywhere.extend(namespaces());
                    let next = needs.selected.len();
                    let at = *groups.entry(selector).or_insert(next);
                    if at == next {
                        let target = Arc::clone(name);
                        let (namespaces, kinds) = (found.get(selector).cloned(), Kinds::new());
                        needs.selected.push(Selected { target, namespaces, kinds });
                    }
                    if let Some(group) = needs.selected.get_mut(at) {
                        group.kinds.insert(of.clone());
                    }
                }
            }
        }
        needs.selected.retain(|group| group.namespaces.as_ref().is_none_or(|all| !all.is_empty()));
        needs.limit(lookup);
        needs
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

    fn limit(&mut self, lookup: Lookup) {
        if lookup == Lookup::Left {
            self.looked_up.clear();
        }
    }

    fn add_cell(&mut self, cell: &CellKey) {
        let of = cell.resource.group_resource();
        match &cell.extent {
            Extent::Namespace(namespace) => self.add_namespace(namespace, of),
            Extent::AllNamespaces | Extent::Cluster => {
                self.everywhere.insert(of.clone());
            }
        }
    }

    fn add_namespace(&mut self, namespace: &Arc<str>, of: &GroupResource) {
        self.named.entry(Arc::clone(namespace)).or_default().insert(of.clone());
        if *namespace != self.profile.namespace {
            self.looked_up.insert(Arc::clone(namespace));
        }
    }

    fn watch_namespaces(&mut self, watch: &CellKey) {
        self.everywhere.insert(watch.resource.group_resource().clone());
    }

    fn select(&mut self, at: usize, target: &DeclaredTarget) {
        if at == self.selected.len() {
            let namespaces = target.cells.iter().filter_map(|cell| match &cell.extent {
                Extent::Namespace(namespace) => Some(Arc::clone(namespace)),
                Extent::AllNamespaces | Extent::Cluster => None,
            });
            self.selected.push(Selected {
                target: Arc::clone(&target.name),
                namespaces: Some(namespaces.collect()),
                kinds: Kinds::new(),
            });
        }
        if let Some(group) = self.selected.get_mut(at) {
            let of = |cell: &CellKey| cell.resource.group_resource().clone();
            group.kinds.extend(target.cells.iter().map(of));
        }
    }
}

/// The core group's `namespaces`.
pub(super) fn namespaces() -> Option<GroupResource> {
    GroupResource::new("", "namespaces").ok()
}
