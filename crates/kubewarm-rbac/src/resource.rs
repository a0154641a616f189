//! The kinds of objects that define RBAC rules.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

/// A kind of `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RbacKind {
    /// `Role`
    Role,
    /// `RoleBinding`
    RoleBinding,
    /// `ClusterRole`
    ClusterRole,
    /// `ClusterRoleBinding`
    ClusterRoleBinding,
}

/// An object of one of the four kinds, as the API server sent it.
#[derive(Clone, Copy, Debug)]
pub enum RbacResource<'a> {
    /// A Role.
    Role(&'a Role),
    /// A RoleBinding.
    RoleBinding(&'a RoleBinding),
    /// A ClusterRole.
    ClusterRole(&'a ClusterRole),
    /// A ClusterRoleBinding.
    ClusterRoleBinding(&'a ClusterRoleBinding),
}

impl RbacKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::Role, Self::RoleBinding, Self::ClusterRole, Self::ClusterRoleBinding];

    /// The name of the kind's resource.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Whether objects of this kind are in a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Role | Self::RoleBinding => true,
            Self::ClusterRole | Self::ClusterRoleBinding => false,
        }
    }
}

impl<'a> From<&'a Role> for RbacResource<'a> {
    fn from(role: &'a Role) -> Self {
        Self::Role(role)
    }
}

impl<'a> From<&'a RoleBinding> for RbacResource<'a> {
    fn from(binding: &'a RoleBinding) -> Self {
        Self::RoleBinding(binding)
    }
}

impl<'a> From<&'a ClusterRole> for RbacResource<'a> {
    fn from(role: &'a ClusterRole) -> Self {
        Self::ClusterRole(role)
    }
}

impl<'a> From<&'a ClusterRoleBinding> for RbacResource<'a> {
    fn from(binding: &'a ClusterRoleBinding) -> Self {
        Self::ClusterRoleBinding(binding)
    }
}
