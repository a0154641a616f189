//! Who has which role in which scope.

use crate::{
    RbacKind,
    symbols::{Symbol, SymbolTable},
};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use std::collections::BTreeMap;

/// Where an object is, or where a binding grants its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RbacScope {
    /// A cluster-scoped object. For a binding: requests in every namespace, and requests without a
    /// namespace.
    Cluster,
    /// An object or requests in this namespace.
    Namespace(Symbol),
}

/// The name of an object with its scope, which tells a Role from a ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ScopedName {
    pub(crate) scope: RbacScope,
    pub(crate) name: Symbol,
}

/// The users that have a binding's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grantee {
    /// The user with this name. A ServiceAccount is a user, too.
    User(Symbol),
    /// The users in this group.
    Group(Symbol),
}

/// A binding's role and the grantees of this role. The scope is the binding's own scope.
#[derive(Debug)]
pub(crate) struct BindingGrants {
    role: ScopedName,
    grantees: Box<[Grantee]>,
}

/// All grants, sorted, each with the number of subjects in bindings that grant it. So a grant ends
/// only when its last binding is removed. The bindings limit the number of grants.
#[derive(Debug, Default)]
pub(crate) struct GrantTable(BTreeMap<GrantKey, usize>);

/// The order of the fields puts all roles of a grantee in one scope next to each other, so that a
/// decision reads one range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GrantKey {
    scope: RbacScope,
    grantee: Grantee,
    role: ScopedName,
}

impl ScopedName {
    /// No name sorts before this one. So a range that starts with it contains all roles of a
    /// grantee.
    const LOWEST: Self = Self { scope: RbacScope::Cluster, name: Symbol::LOWEST };

    /// The name of an object of this kind. `number` returns the number of a text. A cluster-scoped
    /// kind ignores the namespace.
    pub(crate) fn new(
        kind: RbacKind,
        namespace: &str,
        name: &str,
        mut number: impl FnMut(&str) -> Symbol,
    ) -> Self {
        let scope = if kind.is_namespaced() {
            RbacScope::Namespace(number(namespace))
        } else {
            RbacScope::Cluster
        };
        Self { scope, name: number(name) }
    }

    /// Whether this can be the name of an object of this kind. Tells Roles from ClusterRoles, and
    /// the two kinds of bindings from each other.
    pub(crate) fn is_of(self, kind: RbacKind) -> bool {
        kind.is_namespaced() == matches!(self.scope, RbacScope::Namespace(_))
    }

    /// The numbers of the texts in this name.
    pub(crate) fn symbols(self) -> impl Iterator<Item = Symbol> {
        let namespace = match self.scope {
            RbacScope::Cluster => None,
            RbacScope::Namespace(namespace) => Some(namespace),
        };
        namespace.into_iter().chain([self.name])
    }
}

impl BindingGrants {
    /// Parses the role and the subjects of a binding with this scope. `namespace` is empty for a
    /// ClusterRoleBinding.
    ///
    /// Like the API server's authorizer, this ignores the API groups of the role and the subjects.
    /// `None` if the binding grants nothing: its role or all of its subjects have an unknown kind,
    /// it has no subjects, or it is a ClusterRoleBinding to a Role.
    pub(crate) fn parse(
        scope: RbacScope,
        namespace: &str,
        role: &RoleRef,
        subjects: &[Subject],
        symbols: &mut SymbolTable,
    ) -> Option<Self> {
        let role_scope = match (&*role.kind, scope) {
            ("ClusterRole", _) => RbacScope::Cluster,
            ("Role", RbacScope::Namespace(_)) => scope,
            _ => return None,
        };
        let grantees = subjects.iter().filter_map(|subject| grantee(subject, namespace, symbols));
        let grantees: Box<[_]> = grantees.collect();
        if grantees.is_empty() {
            return None;
        }
        let role = ScopedName { scope: role_scope, name: symbols.intern(&role.name) };
        Some(Self { role, grantees })
    }

    /// The numbers of the texts that [`Self::parse`] has interned, which the caller releases when
    /// the binding is removed.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = Symbol> {
        let grantees = self.grantees.iter().map(|grantee| match grantee {
            Grantee::User(name) | Grantee::Group(name) => *name,
        });
        grantees.chain([self.role.name])
    }

    /// The memory in bytes that this value points to.
    pub(crate) fn heap_bytes(&self) -> usize {
        boxed_bytes(&self.grantees)
    }

    fn keys(&self, scope: RbacScope) -> impl Iterator<Item = GrantKey> {
        let role = self.role;
        self.grantees.iter().map(move |&grantee| GrantKey { scope, grantee, role })
    }
}

/// `None` if the subject matches no user: its kind is unknown, or it is a ServiceAccount without a
/// namespace in a ClusterRoleBinding.
fn grantee(subject: &Subject, namespace: &str, symbols: &mut SymbolTable) -> Option<Grantee> {
    match &*subject.kind {
        "User" => Some(Grantee::User(symbols.intern(&subject.name))),
        "Group" => Some(Grantee::Group(symbols.intern(&subject.name))),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
            let namespace = own.unwrap_or(namespace);
            let user = format!("system:serviceaccount:{namespace}:{}", subject.name);
            (!namespace.is_empty()).then(|| Grantee::User(symbols.intern(&user)))
        }
        _ => None,
    }
}

impl GrantTable {
    /// Adds the grants of a binding with this scope.
    pub(crate) fn add(&mut self, scope: RbacScope, binding: &BindingGrants) {
        for key in binding.keys(scope) {
            *self.0.entry(key).or_default() += 1;
        }
    }

    /// Removes the grants that [`Self::add`] has added. Grants of other bindings stay.
    pub(crate) fn remove(&mut self, scope: RbacScope, binding: &BindingGrants) {
        for key in binding.keys(scope) {
            let Some(count) = self.0.get_mut(&key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// The roles that `grantee` has in exactly this scope, each once.
    pub(crate) fn roles(
        &self,
        scope: RbacScope,
        grantee: Grantee,
    ) -> impl Iterator<Item = ScopedName> {
        let first = GrantKey { scope, grantee, role: ScopedName::LOWEST };
        let from_first = self.0.range(first..);
        let own =
            from_first.take_while(move |(key, _)| (key.scope, key.grantee) == (scope, grantee));
        own.map(|(key, _)| key.role)
    }

    /// An estimate of the table's memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The nodes of a B-tree are about two thirds full.
        self.0.len() * size_of::<(GrantKey, usize)>() * 3 / 2
    }
}

/// The memory of a boxed slice in bytes, without what its elements point to.
pub(crate) fn boxed_bytes<T>(slice: &[T]) -> usize {
    // The allocator adds about 16 bytes. An empty slice has no memory.
    if slice.is_empty() { 0 } else { size_of_val(slice) + 16 }
}
