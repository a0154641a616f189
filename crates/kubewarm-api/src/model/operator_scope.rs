//! The operator namespace, and the namespaces whose profiles the operator runs. Both decide which
//! targets kubewarm rejects.

use super::{Refusal, RefusalReason, TargetScope, ValidatedProfile, ValidatedTarget};
use std::{collections::BTreeSet, sync::Arc};

/// The operator namespace, and the namespaces whose profiles the operator runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorScope {
    /// The operator namespace. Profiles in this namespace can read other namespaces.
    pub namespace: Arc<str>,
    /// Namespaces whose profiles the operator runs.
    pub watched: WatchedNamespaces,
}

/// Namespaces whose profiles the operator runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WatchedNamespaces {
    /// All namespaces. The operator has a ClusterRole that permits it to list the profiles in all
    /// namespaces.
    #[default]
    Everywhere,
    /// Only these namespaces. The operator has a Role in each of these namespaces, and no
    /// ClusterRole.
    Namespaces(BTreeSet<Arc<str>>),
}

impl OperatorScope {
    /// Returns a [`Refusal`] if the target would read namespaces other than the profile's own with
    /// the operator's permissions. Returns `None` if the profile is in the operator namespace or
    /// names a ServiceAccount.
    pub fn scope_refusal(
        &self,
        profile: &ValidatedProfile,
        target: &ValidatedTarget,
    ) -> Option<Refusal> {
        let (namespace, operator) = (&profile.profile.namespace, &self.namespace);
        let is_own_namespace = match &target.scope {
            TargetScope::OwnNamespace => true,
            TargetScope::Namespaces(names) => names.iter().all(|name| name == namespace),
            TargetScope::NamespaceSelector(_)
            | TargetScope::AllNamespaces
            | TargetScope::Cluster => false,
        };
        if is_own_namespace || namespace == operator || profile.service_account.is_some() {
            return None;
        }
        let message = format!(
            "targets[{}].scope: a profile in namespace {namespace:?} may only name that namespace; use \
             type OwnNamespace, have a ServiceAccount read by spec.serviceAccountName, or move the \
             profile to namespace {operator:?}",
            target.name
        );
        Some(Refusal::new(RefusalReason::CrossNamespaceNotAllowed, message))
    }
}

impl WatchedNamespaces {
    /// Creates the set of watched namespaces from `names`. If `names` is empty, the set contains
    /// all namespaces.
    pub fn of(names: &[String]) -> Self {
        if names.is_empty() {
            return Self::Everywhere;
        }
        Self::Namespaces(names.iter().map(|name| name.as_str().into()).collect())
    }

    /// Whether the operator runs the profiles of this namespace.
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Namespaces(names) => names.contains(namespace),
        }
    }

    /// Returns a [`Refusal`] if the target's scope needs a ClusterRole, but the operator has only
    /// Roles. Returns `None` if the profile names a ServiceAccount, which can have a ClusterRole,
    /// because kubewarm then reads with its permissions.
    pub fn refusal(&self, profile: &ValidatedProfile, target: &ValidatedTarget) -> Option<Refusal> {
        let scope = match (self, &target.scope) {
            (Self::Everywhere, _)
            | (Self::Namespaces(_), TargetScope::OwnNamespace | TargetScope::Namespaces(_)) => {
                return None;
            }
            (Self::Namespaces(_), TargetScope::NamespaceSelector(_)) => "NamespaceSelector",
            (Self::Namespaces(_), TargetScope::AllNamespaces) => "AllNamespaces",
            (Self::Namespaces(_), TargetScope::Cluster) => "Cluster",
        };
        if profile.service_account.is_some() {
            return None;
        }
        let message = format!(
            "targets[{}].scope.type: {scope} needs a ClusterRole, and kubewarm has none with \
             --watch-namespaces; use type Namespaces, name a ServiceAccount with a ClusterRole \
             in spec.serviceAccountName, or run kubewarm for all namespaces",
            target.name
        );
        Some(Refusal::new(RefusalReason::ScopeNotAvailable, message))
    }
}
