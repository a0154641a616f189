//! Permissions of a profile, as rules for its status and as YAML to apply.

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use super::{
    ManifestError,
    rbac::{ManifestTier, documents, roles},
    required_permissions::{NamespacesBySelector, RequiredPermissions, SelectorPermissions},
};
use crate::{
    model::{DeclaredProfile, Identity, InformerKey, Subject, ValidatedProfile, WatchedNamespaces},
    v1alpha1::{AccessStatus, NamespaceRules},
};

/// Largest length of the manifests in a status, in bytes. Every client that lists profiles reads them.
const MAX_MANIFESTS: usize = 64 << 10;

/// Comment at the top of `manifestsElevated`, if the operator reads.
const ELEVATED: &str = "\
# Elevated: access to secrets. A role cannot grant only their metadata, so this role grants the
# complete secrets. Anyone who may run pods as the subject, or mint tokens for it, can read them too.
";

/// Comment at the top of `manifestsElevated`, if the profile's ServiceAccount reads.
const ELEVATED_ACCOUNT: &str = "\
# Elevated: access to secrets, or to other namespaces, for the ServiceAccount that the profile names.
# Anyone who may run pods or mint tokens in the profile's namespace gains this access too.
# A role cannot grant only the metadata of secrets.
";

/// Comment for manifests that are incomplete, because no cluster was available.
const UNBOUND: &str = "\
# Only the cluster knows which namespaces a selector matches. Each needs a RoleBinding to the
# ClusterRole named :target: below; `kubewarm rbac NAME` prints it for the profile in the cluster.
";

/// Minimal permissions of one profile: `list` and `watch` for its informers, and `get` for named
/// namespaces. For a ServiceAccount, also the operator's right to mint its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePermissions {
    /// Subject that reads.
    pub subject: Subject,
    /// Rules by namespace, sorted; the empty namespace stands for the cluster. The length is
    /// unlimited.
    pub roles: Vec<NamespaceRules>,
    /// YAML of all grants that are not elevated. The length is unlimited.
    pub manifests: Option<String>,
    /// YAML of the grants for secrets, and of the grants for a ServiceAccount outside the profile's
    /// namespace. The length is unlimited.
    pub manifests_elevated: Option<String>,
}

/// Whether the grant for an informer belongs to `manifestsElevated`. With a ServiceAccount, the
/// grant of a namespace selector always does, but the key does not contain that selector.
#[must_use]
pub fn is_elevated(informer: &InformerKey) -> bool {
    let away = match &informer.identity {
        Identity::Operator => false,
        Identity::ServiceAccount { namespace, .. } => {
            informer.extent.namespace() != Some(namespace)
        }
    };
    away || informer.resource.group_resource().is_secrets()
}

impl ProfilePermissions {
    /// Collects the permissions for the declared informers. `operator` is the operator's account,
    /// `watched` the namespaces of its profiles. Namespace selectors include the namespaces that
    /// they match now.
    ///
    /// # Errors
    ///
    /// [`ManifestError::NameTooLong`] if namespace and name of the profile are too long together.
    pub fn for_informers(
        declared: &DeclaredProfile,
        operator: &Subject,
        watched: &WatchedNamespaces,
    ) -> Result<Self, ManifestError> {
        Self::of(&RequiredPermissions::for_informers(declared, watched), operator)
    }

    /// Collects the permissions from the spec, without a cluster. Resources are taken as written.
    /// Namespaces of selectors that `found` does not contain stay open.
    ///
    /// If the cluster serves all resources and `found` contains all selectors, the result equals
    /// [`ProfilePermissions::for_informers`] byte for byte.
    ///
    /// # Errors
    ///
    /// As for [`ProfilePermissions::for_informers`].
    pub fn of_profile(
        profile: &ValidatedProfile,
        found: &NamespacesBySelector,
        operator: &Subject,
        watched: &WatchedNamespaces,
    ) -> Result<Self, ManifestError> {
        Self::of(&RequiredPermissions::of_profile(profile, found, watched), operator)
    }

    fn of(needs: &RequiredPermissions, operator: &Subject) -> Result<Self, ManifestError> {
        let manifests = text(needs, operator, ManifestTier::Plain)?;
        let manifests_elevated = text(needs, operator, ManifestTier::Elevated)?;
        Ok(Self {
            subject: needs.reader(operator),
            roles: roles(needs),
            manifests,
            manifests_elevated,
        })
    }

    /// Joins both manifests, as `kubewarm rbac` prints them.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let texts = [self.manifests.as_deref(), self.manifests_elevated.as_deref()];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// Returns `status.access`. The roles are absent for more than 128 namespaces, or more than 32
    /// rules in one. A text is absent above 256 KiB. `kubewarm rbac` always prints everything.
    #[must_use]
    pub fn status(&self) -> AccessStatus {
        let texts = [&self.manifests, &self.manifests_elevated];
        let fits = texts.into_iter().flatten().map(String::len).sum::<usize>() <= MAX_MANIFESTS;
        let fitting = |text: &Option<String>| text.clone().filter(|_| fits);
        AccessStatus {
            // User names have any length; the field accepts 512 characters.
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
    tier: ManifestTier,
) -> Result<Option<String>, ManifestError> {
    let all = documents(needs, operator, tier)?;
    if all.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    if tier == ManifestTier::Elevated {
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
