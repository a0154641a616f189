//! Permissions that a profile needs, as RBAC rules for the profile's status and as YAML for
//! `kubectl apply`.

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

use super::{
    ManifestError,
    rbac::{PrivilegeLevel, documents, roles},
    required_permissions::{NamespacesBySelector, RequiredPermissions, SelectorPermissions},
};
use crate::{
    model::{Identity, InformerKey, ResolvedProfile, Subject, ValidatedProfile, WatchedNamespaces},
    v1alpha1::{AccessStatus, NamespaceRules},
};

/// Largest total length, in bytes, of the RBAC manifests in a profile's status. Every client that
/// lists profiles receives these manifests.
const MAX_MANIFESTS: usize = 64 << 10;

/// YAML comment at the top of `manifestsElevated`, if kubewarm reads with the operator's identity.
const ELEVATED: &str = "\
# Elevated: access to secrets. A role cannot grant only their metadata, so this role grants the
# complete secrets. Anyone who may run pods as the subject, or mint tokens for it, can read them too.
";

/// YAML comment at the top of `manifestsElevated`, if kubewarm reads with the profile's
/// ServiceAccount.
const ELEVATED_ACCOUNT: &str = "\
# Elevated: access to secrets, or to other namespaces, for the ServiceAccount that the profile names.
# Anyone who may run pods or mint tokens in the profile's namespace gains this access too.
# A role cannot grant only the metadata of secrets.
";

/// YAML comment at the top of manifests for a namespace selector, if kubewarm did not look up the
/// matching namespaces.
const UNBOUND: &str = "\
# Only the cluster knows which namespaces a selector matches. Each needs a RoleBinding to the
# ClusterRole named :target: below; `kubewarm rbac NAME` prints it for the profile in the cluster.
";

/// Minimal permissions of one profile: `list` and `watch` for its informers, and `get` for the
/// namespaces in its spec. If the profile has a ServiceAccount, the operator also gets the
/// permission to create tokens of that ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePermissions {
    /// The subject that lists and watches: the operator or the profile's ServiceAccount.
    pub subject: Subject,
    /// RBAC rules for each namespace, sorted by namespace. The empty namespace is the whole
    /// cluster. The number of rules has no limit.
    pub roles: Vec<NamespaceRules>,
    /// YAML that grants all permissions that are not in `manifests_elevated`. Its length has no
    /// limit. `None`: there are no such permissions.
    pub manifests: Option<String>,
    /// YAML that grants access to secrets, and a ServiceAccount's access outside the profile's
    /// namespace. Its length has no limit. `None`: the profile needs no such access.
    pub manifests_elevated: Option<String>,
}

/// Whether the permissions of an informer belong to the manifest `manifestsElevated`, because they
/// need a closer look before you grant them. These are permissions for secrets, and permissions of
/// a ServiceAccount outside its own namespace.
pub fn is_elevated(informer: &InformerKey) -> bool {
    let away = match &informer.identity {
        Identity::Operator => false,
        Identity::ServiceAccount { namespace, .. } => informer.scope.namespace() != Some(namespace),
    };
    away || informer.resource.group_resource().is_secrets()
}

impl ProfilePermissions {
    /// Collects the permissions that the informers of the profile `declared` need. `operator` is
    /// the operator's identity. `watched` contains the namespaces whose profiles the operator runs,
    /// which decides whether kubewarm looks up namespaces. For a namespace selector, the manifests
    /// contain one RoleBinding in each namespace that matches the selector now.
    ///
    /// # Errors
    ///
    /// [`ManifestError::NameTooLong`] if the name of a role would exceed 253 bytes.
    pub fn for_informers(
        declared: &ResolvedProfile,
        operator: &Subject,
        watched: &WatchedNamespaces,
    ) -> Result<Self, ManifestError> {
        Self::of(&RequiredPermissions::for_informers(declared, watched), operator)
    }

    /// Collects the permissions that the targets in `profile` need, without access to a cluster.
    /// Does not check whether a cluster serves the targets' resources. If `matches` does not
    /// contain a namespace selector, the manifests have no RoleBindings for this selector.
    ///
    /// If the cluster serves all resources and `matches` contains all namespace selectors, the
    /// result is equal to the result of [`ProfilePermissions::for_informers`].
    ///
    /// # Errors
    ///
    /// [`ManifestError::NameTooLong`] if the name of a role would exceed 253 bytes.
    pub fn of_profile(
        profile: &ValidatedProfile,
        matches: &NamespacesBySelector,
        operator: &Subject,
        watched: &WatchedNamespaces,
    ) -> Result<Self, ManifestError> {
        Self::of(&RequiredPermissions::of_profile(profile, matches, watched), operator)
    }

    fn of(needs: &RequiredPermissions, operator: &Subject) -> Result<Self, ManifestError> {
        let manifests = text(needs, operator, PrivilegeLevel::Plain)?;
        let manifests_elevated = text(needs, operator, PrivilegeLevel::Elevated)?;
        Ok(Self {
            subject: needs.reader(operator),
            roles: roles(needs),
            manifests,
            manifests_elevated,
        })
    }

    /// Joins `manifests` and `manifests_elevated` to one YAML text, as `kubewarm rbac` prints it.
    pub fn to_yaml(&self) -> String {
        let texts = [self.manifests.as_deref(), self.manifests_elevated.as_deref()];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// Returns the fields `subject`, `manifests` and `manifestsElevated` of a profile's
    /// `status.access`. Both manifests are absent if their total length exceeds 64 KiB, the maximum
    /// for a status.
    pub fn status(&self) -> AccessStatus {
        let texts = [&self.manifests, &self.manifests_elevated];
        let fits = texts.into_iter().flatten().map(String::len).sum::<usize>() <= MAX_MANIFESTS;
        let fitting = |text: &Option<String>| text.clone().filter(|_| fits);
        AccessStatus {
            // A user name can have any length, but the CRD permits 512 characters.
            subject: Some(self.subject.to_string().chars().take(512).collect()),
            manifests: fitting(&self.manifests),
            manifests_elevated: fitting(&self.manifests_elevated),
            ..AccessStatus::default()
        }
    }
}

fn text(
    needs: &RequiredPermissions,
    operator: &Subject,
    tier: PrivilegeLevel,
) -> Result<Option<String>, ManifestError> {
    let all = documents(needs, operator, tier)?;
    if all.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    if tier == PrivilegeLevel::Elevated {
        text.push_str(if needs.account.is_some() { ELEVATED_ACCOUNT } else { ELEVATED });
    }
    let unbound = |group: &SelectorPermissions| {
        group.namespaces.is_none()
            && !tier.of(&group.kinds, needs.is_outside_own_namespace(None)).is_empty()
    };
    if needs.selected.iter().any(unbound) {
        text.push_str(UNBOUND);
    }
    for document in &all {
        text.push_str("---\n");
        text.push_str(&document.yaml()?);
    }
    Ok(Some(text))
}
