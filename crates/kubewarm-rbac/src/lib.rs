//! Decides requests by RBAC rules, exactly as the API server's RBAC authorizer does. The crate has
//! no I/O and reads no clock.
//!
//! [`RbacRules`] receives Roles, ClusterRoles and their bindings one at a time, and keeps them in a
//! compiled form:
//!
//! ```text
//!  RoleBinding, ClusterRoleBinding             Role, ClusterRole
//!               │                                      │
//!               ▼                                      ▼
//!     grants, a sorted set                     roles, a hash map
//!  (scope, user or group, role)  ── role ──►  name ──► its rules  ──►  Allow or NoOpinion
//! ```
//!
//! - A *scope* is one namespace for a RoleBinding, and the cluster for a ClusterRoleBinding.
//! - A subject that is a ServiceAccount becomes the user `system:serviceaccount:NAMESPACE:NAME`.
//! - Each text of a rule or binding has a number. So rules compare numbers, and a text is in memory
//!   only once.
//! - A grant contains its role's name, not the role's rules. So a changed role compiles only its
//!   own rules, and a changed binding only its own grants.
//!
//! # Cost of a decision
//!
//! A decision visits one range of the sorted set for the user and for each group, in the cluster
//! and in the request's namespace. Then it compares the rules of the roles in these ranges, until a
//! rule allows the request. So the cost depends on the caller's own roles, not on the number of
//! bindings, and several bindings of one grantee to the same role cost as much as one.
//!
//! `tests/rbac_cost.rs` measured, with 10,000 bindings and a user in 6 groups with 4 roles of 20
//! rules: 0.2 µs if the first role allows the request, and 0.8 µs if no rule does. Each further
//! role adds 25 ns, and each further rule 2 ns. 10,000 bindings take about 8 MB.

mod grants;
mod request;
mod resource;
mod role;
mod rules;
mod symbols;
#[cfg(test)]
mod tests;

pub use self::{
    resource::{RbacKind, RbacResource},
    rules::{RbacDecision, RbacRules},
};
