//! The permissions that a profile needs: as rules for its status, and as YAML to apply.

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use super::{
    Unwritable,
    needs::{FoundNamespaces, Needs, Selected},
    rbac::{Tier, documents, roles},
};
use crate::{
    model::{CellKey, Declared, Identity, Subject, ValidatedProfile, Watched},
    v1alpha1::{AccessStatus, NamespaceRules},
};

/// The most bytes of manifests in a status: every client that lists profiles reads them.
const MAX_MANIFESTS: usize = 64 << 10;

/// Head of the manifests that grant access to secrets.
const ELEVATED: &str = "\
# Elevated: access to secrets. A role cannot grant their metadata alone, so this grants all of them
# where it applies. Whoever may run pods as the subject, or mint tokens for it, gains them directly.
";

/// The same for an account that the profile names.
const ELEVATED_ACCOUNT: &str = "\
# Elevated: access to secrets, or outside the profile's namespace, for the ServiceAccount there that
# the profile names. Whoever may run pods or mint tokens in that namespace gains all of it directly.
# A role cannot grant the metadata of secrets alone.
";

/// Where an offline manifest cannot be complete.
const UNBOUND: &str = "\
# Which namespaces a selector finds only the cluster knows. Each needs a RoleBinding to the
# ClusterRole named :target: below; status.access of the applied profile holds them.
";

/// Least-privilege access of one profile: `list` and `watch` on what its cells name, nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who needs it.
    pub subject: Subject,
    /// By namespace, sorted; the empty one is the whole cluster. Unbounded.
    pub roles: Vec<NamespaceRules>,
    /// YAML that grants everything else. Unbounded.
    pub manifests: Option<String>,
    /// YAML that grants access to secrets, and what lies outside the profile's namespace to an
    /// account that the profile names. Unbounded.
    pub manifests_elevated: Option<String>,
}

/// Whether the grant for a cell belongs to `manifestsElevated`. Of a selector, that of the account's
/// own namespace is there too.
#[must_use]
pub fn is_elevated(cell: &CellKey) -> bool {
    let away = match &cell.identity {
        Identity::Operator => false,
        Identity::ServiceAccount { namespace, .. } => cell.extent.namespace() != Some(namespace),
    };
    away || cell.resource.group_resource().is_secrets()
}

impl Access {
    /// What the declared cells need, where the operator is `operator` and runs the profiles of `watched`. Of a
    /// selector's namespaces, those that it finds now.
    ///
    /// # Errors
    ///
    /// [`Unwritable::NameTooLong`] where namespace and name of the profile are too long together.
    pub fn of_cells(
        declared: &Declared,
        operator: &Subject,
        watched: &Watched,
    ) -> Result<Self, Unwritable> {
        Self::of(&Needs::of_cells(declared, watched), operator)
    }

    /// What the spec needs, with no cluster at hand: kinds are taken as it writes them, and the
    /// namespaces of selectors that are not in `found` are left open. For a profile every kind of
    /// which is served, and whose selectors were all asked for, the result is that of
    /// [`Access::of_cells`], byte for byte.
    ///
    /// # Errors
    ///
    /// As for [`Access::of_cells`].
    pub fn of_profile(
        profile: &ValidatedProfile,
        found: &FoundNamespaces,
        operator: &Subject,
        watched: &Watched,
    ) -> Result<Self, Unwritable> {
        Self::of(&Needs::of_profile(profile, found, watched), operator)
    }

    fn of(needs: &Needs, operator: &Subject) -> Result<Self, Unwritable> {
        let manifests = text(needs, operator, Tier::Plain)?;
        let manifests_elevated = text(needs, operator, Tier::Elevated)?;
        Ok(Self {
            subject: needs.reader(operator),
            roles: roles(needs),
            manifests,
            manifests_elevated,
        })
    }

    /// Everything as one text, as `kubewarm rbac` prints it.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let texts = [self.manifests.as_deref(), self.manifests_elevated.as_deref()];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// `status.access`. Manifests of more than 64 KiB together are absent, because one of the two texts looks
    /// like all grants; `kubewarm rbac` prints them.
    #[must_use]
    pub fn status(&self) -> AccessStatus {
        let texts = [&self.manifests, &self.manifests_elevated];
        let fits = texts.into_iter().flatten().map(String::len).sum::<usize>() <= MAX_MANIFESTS;
        let fitting = |text: &Option<String>| text.clone().filter(|_| fits);
        AccessStatus {
            // A user name is free text; the field takes 512 characters.
            subject: Some(self.subject.to_string().chars().take(512).collect()),
            manifests: fitting(&self.manifests),
            manifests_elevated: fitting(&self.manifests_elevated),
            ..AccessStatus::default()
        }
    }
}

fn text(needs: &Needs, operator: &Subject, tier: Tier) -> Result<Option<String>, Unwritable> {
    let all = documents(needs, operator, tier)?;
    if all.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    if tier == Tier::Elevated {
        text.push_str(if needs.account.is_some() { ELEVATED_ACCOUNT } else { ELEVATED });
    }
    let unbound = |group: &Selected| {
        group.namespaces.is_none() && !tier.of(&group.kinds, needs.leaves_home(None)).is_empty()
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
