//! All roles and bindings of a cluster.

use crate::{
    RbacKind, RbacResource,
    grants::{BindingGrants, GrantTable, Grantee, ScopedName},
    request::RequestSymbols,
    role::RoleRules,
    symbols::{Symbol, SymbolTable, map_bytes},
};
use k8s_openapi::{
    api::{
        authorization::v1::SelfSubjectAccessReviewSpec,
        rbac::v1::{PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::{collections::HashMap, iter};

/// What RBAC rules decide about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RbacDecision {
    /// A rule allows the request.
    Allow,
    /// No rule allows the request. Another authorizer of the API server can still allow it: for
    /// example, members of `system:masters` need no rule.
    NoOpinion,
}

/// The RBAC rules of a cluster, compiled for decisions. See the crate's documentation.
///
/// The objects of the API server limit the memory, and tenants can create some of them. So the
/// caller compares [`Self::memory_bytes`] with a limit.
#[derive(Debug, Default)]
pub struct RbacRules {
    symbols: SymbolTable,
    /// Roles and ClusterRoles.
    roles: HashMap<ScopedName, ListEntry<RoleRules>>,
    /// The bindings of both kinds that grant something.
    bindings: HashMap<ScopedName, ListEntry<BindingGrants>>,
    grants: GrantTable,
    /// The memory that the values of both maps point to.
    heap_bytes: usize,
}

/// The compiled part of an object, and whether the current list contains the object.
/// [`RbacRules::finish_list`] removes the objects that the list did not contain.
#[derive(Debug)]
struct ListEntry<T> {
    value: T,
    /// False from [`RbacRules::start_list`] until the object is listed or changes.
    is_listed: bool,
}

impl RbacRules {
    /// Adds an object, or replaces the object of the same kind, namespace and name.
    ///
    /// # Cost
    ///
    /// Linear in the size of this object. No other object is compiled again.
    pub fn upsert<'a>(&mut self, object: impl Into<RbacResource<'a>>) {
        match object.into() {
            RbacResource::Role(role) => {
                self.upsert_role(RbacKind::Role, &role.metadata, role.rules.as_deref());
            }
            RbacResource::ClusterRole(role) => {
                self.upsert_role(RbacKind::ClusterRole, &role.metadata, role.rules.as_deref());
            }
            RbacResource::RoleBinding(binding) => self.upsert_binding(
                RbacKind::RoleBinding,
                &binding.metadata,
                &binding.role_ref,
                binding.subjects.as_deref(),
            ),
            RbacResource::ClusterRoleBinding(binding) => self.upsert_binding(
                RbacKind::ClusterRoleBinding,
                &binding.metadata,
                &binding.role_ref,
                binding.subjects.as_deref(),
            ),
        }
    }

    /// Removes the object with this name, if it exists. A cluster-scoped kind ignores `namespace`.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        let name = ScopedName::new(kind, namespace, name, |text| self.symbols.find(text));
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => self.remove_role(name),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => self.remove_binding(name),
        }
    }

    /// Starts a list of all objects of this kind. Until [`Self::finish_list`], all earlier objects
    /// stay in effect, so that no permission is missing during the list. A further call starts the
    /// list again.
    ///
    /// # Cost
    ///
    /// Visits all objects of the kind.
    pub fn start_list(&mut self, kind: RbacKind) {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => unlist(&mut self.roles, kind),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                unlist(&mut self.bindings, kind);
            }
        }
    }

    /// Ends a list of this kind: removes the objects that [`Self::upsert`] has not received since
    /// [`Self::start_list`].
    ///
    /// # Cost
    ///
    /// Visits all objects of the kind.
    pub fn finish_list(&mut self, kind: RbacKind) {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                for name in unlisted(&self.roles, kind) {
                    self.remove_role(name);
                }
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                for name in unlisted(&self.bindings, kind) {
                    self.remove_binding(name);
                }
            }
        }
    }

    /// Decides whether the rules allow `access` for the user with this name and these groups, which
    /// must include groups such as `system:authenticated`.
    ///
    /// An absent attribute means the same as an empty one. Like the API server's RBAC authorizer,
    /// this compares the attribute `name` with `resourceNames`, and does not evaluate selectors. So
    /// for a list or watch with the field selector `metadata.name=NAME`, the attribute must contain
    /// this name, as in the API server.
    ///
    /// # Cost
    ///
    /// See the crate's documentation.
    pub fn decide(
        &self,
        user: &str,
        groups: &[String],
        access: &SelfSubjectAccessReviewSpec,
    ) -> RbacDecision {
        let Some(request) = RequestSymbols::find(access, &self.symbols) else {
            return RbacDecision::NoOpinion;
        };
        let user = Grantee::User(self.symbols.find(user));
        let groups = groups.iter().map(|group| Grantee::Group(self.symbols.find(group)));
        let is_allowed = iter::once(user).chain(groups).any(|grantee| {
            request.scopes().any(|scope| {
                self.grants.roles(scope, grantee).any(|role| {
                    // A grant can name a role that does not exist, which then allows nothing.
                    self.roles.get(&role).is_some_and(|role| role.value.allow(&request))
                })
            })
        });
        if is_allowed { RbacDecision::Allow } else { RbacDecision::NoOpinion }
    }

    /// An estimate of the memory of these rules, in bytes. Takes constant time.
    pub fn memory_bytes(&self) -> usize {
        let maps = map_bytes(&self.roles) + map_bytes(&self.bindings);
        self.symbols.memory_bytes() + maps + self.grants.memory_bytes() + self.heap_bytes
    }

    fn upsert_role(&mut self, kind: RbacKind, metadata: &ObjectMeta, rules: Option<&[PolicyRule]>) {
        let name = self.intern_name(kind, metadata);
        let value = RoleRules::parse(rules.unwrap_or_default(), &mut self.symbols);
        self.remove_role(name);
        self.heap_bytes += value.heap_bytes();
        self.roles.insert(name, ListEntry { value, is_listed: true });
    }

    fn upsert_binding(
        &mut self,
        kind: RbacKind,
        metadata: &ObjectMeta,
        role: &RoleRef,
        subjects: Option<&[Subject]>,
    ) {
        let name = self.intern_name(kind, metadata);
        let namespace = metadata.namespace.as_deref().filter(|_| kind.is_namespaced());
        let namespace = namespace.unwrap_or_default();
        let subjects = subjects.unwrap_or_default();
        let value = BindingGrants::parse(name.scope, namespace, role, subjects, &mut self.symbols);
        self.remove_binding(name);
        let Some(value) = value else {
            self.release(name.symbols());
            return;
        };
        self.heap_bytes += value.heap_bytes();
        self.grants.add(name.scope, &value);
        self.bindings.insert(name, ListEntry { value, is_listed: true });
    }

    fn remove_role(&mut self, name: ScopedName) {
        let Some(ListEntry { value, .. }) = self.roles.remove(&name) else { return };
        self.heap_bytes -= value.heap_bytes();
        self.release(name.symbols().chain(value.symbols()));
    }

    fn remove_binding(&mut self, name: ScopedName) {
        let Some(ListEntry { value, .. }) = self.bindings.remove(&name) else { return };
        self.heap_bytes -= value.heap_bytes();
        self.grants.remove(name.scope, &value);
        self.release(name.symbols().chain(value.symbols()));
    }

    /// Returns the name of an object, and counts one use of the name's texts until the object is
    /// removed.
    fn intern_name(&mut self, kind: RbacKind, metadata: &ObjectMeta) -> ScopedName {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        ScopedName::new(kind, namespace, name, |text| self.symbols.intern(text))
    }

    fn release(&mut self, symbols: impl Iterator<Item = Symbol>) {
        symbols.for_each(|symbol| self.symbols.release(symbol));
    }

    #[cfg(test)]
    pub(crate) fn symbol_count(&self) -> usize {
        self.symbols.len()
    }
}

/// Marks all objects of a kind as unlisted, until the list contains them again.
fn unlist<T>(map: &mut HashMap<ScopedName, ListEntry<T>>, kind: RbacKind) {
    let of_kind = map.iter_mut().filter(|(name, _)| name.is_of(kind));
    of_kind.for_each(|(_, entry)| entry.is_listed = false);
}

/// The objects of a kind that a list did not contain.
fn unlisted<T>(map: &HashMap<ScopedName, ListEntry<T>>, kind: RbacKind) -> Vec<ScopedName> {
    let unlisted = map.iter().filter(|(name, entry)| !entry.is_listed && name.is_of(kind));
    unlisted.map(|(name, _)| *name).collect()
}
