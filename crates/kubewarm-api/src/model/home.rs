//! Where the operator lives, whose profiles it runs, and what cannot work without a ClusterRole.

use super::{Refusal, RefusalReason, Target, TargetScope, ValidatedProfile};
use std::{collections::BTreeSet, sync::Arc};

/// Where the operator lives, and whose profiles it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The operator's namespace: profiles there may name other namespaces than their own.
    pub namespace: Arc<str>,
    /// Whose profiles are run.
    pub watched: Watched,
}

/// The namespaces whose profiles are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Watched {
    /// All of them: a ClusterRole lets the operator list profiles everywhere.
    #[default]
    Everywhere,
    /// These: every permission of the operator is a Role.
    Namespaces(BTreeSet<Arc<str>>),
}

impl Home {
    /// Refuses a target that looks beyond the namespace of its profile. Without a ServiceAccount of its own, a
    /// profile reads with the operator's permissions: outside the operator's namespace it may only name its own.
    #[must_use]
    pub fn scope_refusal(&self, profile: &ValidatedProfile, target: &Target) -> Option<Refusal> {
        let (own, operator) = (&profile.profile.namespace, &self.namespace);
        let stays_home = match &target.scope {
            TargetScope::OwnNamespace => true,
            TargetScope::Namespaces(names) => names.iter().all(|name| name == own),
            TargetScope::NamespaceSelector(_)
            | TargetScope::AllNamespaces
            | TargetScope::Cluster => false,
        };
        if stays_home || own == operator || profile.service_account.is_some() {
            return None;
        }
        let message = format!(
            "targets[{}].scope: a profile in namespace {own:?} may only name that namespace; use \
             type OwnNamespace, have a ServiceAccount read by spec.serviceAccountName, or move the \
             profile to namespace {operator:?}",
            target.name
        );
        Some(Refusal::new(RefusalReason::CrossNamespaceNotAllowed, message))
    }
}

impl Watched {
    /// Those with these names; without any, all.
    #[must_use]
    pub fn of(names: &[String]) -> Self {
        if names.is_empty() {
            return Self::Everywhere;
        }
        Self::Namespaces(names.iter().map(|name| name.as_str().into()).collect())
    }

    /// Whether the profiles of this namespace are run.
    #[must_use]
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Namespaces(names) => names.contains(namespace),
        }
    }

    /// Refuses a target whose scope only a ClusterRole of the operator could allow. Of a profile that
    /// names a ServiceAccount, that account's permissions count instead.
    #[must_use]
    pub fn refusal(&self, profile: &ValidatedProfile, target: &Target) -> Option<Refusal> {
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
            "targets[{}].scope.type: {scope} needs a ClusterRole, and this kubewarm runs with \
             --watch-namespaces, which does without; use type Namespaces, name a ServiceAccount \
             in spec.serviceAccountName that has one, or run kubewarm for all namespaces",
            target.name
        );
        Some(Refusal::new(RefusalReason::ScopeNotAvailable, message))
    }
}
