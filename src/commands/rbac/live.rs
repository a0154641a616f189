//! Reads the roles and bindings of a profile from the cluster, with the user's permissions.

use super::super::{CommandError, profiles::pages};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use kubewarm_api::{
    manifests::{NamespacesBySelector, RbacObject, role_name},
    model::{ProfileRef, TargetScope, ValidatedProfile},
};
use std::{collections::BTreeSet, sync::Arc};

/// Maximum number of objects per page.
const PAGE: u32 = 500;

/// Returns the namespaces that match each namespace selector of `profile`. It omits namespaces in
/// deletion, because no role can be created in them.
pub(in crate::commands) async fn namespaces(
    client: &Client,
    profile: &ValidatedProfile,
) -> Result<NamespacesBySelector, CommandError> {
    let mut namespaces = NamespacesBySelector::new();
    for target in &profile.targets {
        let TargetScope::NamespaceSelector(selector) = &target.scope else { continue };
        if namespaces.contains_key(selector) {
            continue;
        }
        let query = ListParams::default().limit(PAGE).labels(&selector.to_string());
        let mut names = BTreeSet::new();
        let all = Api::<Namespace>::all(client.clone());
        pages(&all, query, |Namespace { metadata, .. }| {
            let name = metadata.name.filter(|_| metadata.deletion_timestamp.is_none());
            names.extend(name.map(Arc::from));
        })
        .await
        .map_err(|error| CommandError::of_request("namespaces", error))?;
        namespaces.insert(selector.clone(), names);
    }
    Ok(namespaces)
}

/// Lists roles and bindings. Returns the profile's own roles and bindings, whose names begin with
/// `kubewarm:NAMESPACE:PROFILE`, and all other bindings to these roles.
///
/// This function lists in all namespaces, to find roles of an older spec and bindings by other
/// users. Without that permission it lists in the namespaces of `wanted` and in the namespace of
/// the profile.
///
/// # Errors
///
/// [`CommandError`] if a request fails. With [`DeniedList::Fail`], also if the user cannot list in
/// these namespaces either.
pub(super) async fn read(
    client: &Client,
    profile: &ProfileRef,
    wanted: &[RbacObject],
    on_denied: DeniedList,
) -> Result<LiveRbac, CommandError> {
    let mut namespaces: BTreeSet<_> = wanted.iter().map(RbacObject::namespace).collect();
    namespaces.remove("");
    namespaces.insert(&profile.namespace);
    let is_cluster_wide = wanted.iter().any(|document| document.namespace().is_empty());
    let live = LiveRbac::default();
    let mut reader = RbacReader { client, profile, namespaces, is_cluster_wide, on_denied, live };
    reader.namespaced(&ApiResource::erase::<Role>(&())).await?;
    reader.namespaced(&ApiResource::erase::<RoleBinding>(&())).await?;
    reader.cluster_wide(&ApiResource::erase::<ClusterRole>(&())).await?;
    reader.cluster_wide(&ApiResource::erase::<ClusterRoleBinding>(&())).await?;
    Ok(reader.live)
}

/// What to do if the user may not list resources on which the manifests depend: fail, or continue
/// and name the resources in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeniedList {
    Fail,
    Name,
}

/// The roles of a profile and all bindings to them, as far as the user may list.
#[derive(Debug, Default)]
pub(super) struct LiveRbac {
    pub(super) documents: Vec<RbacObject>,
    /// Resources that the user cannot list, and on which the manifests depend only if they once
    /// had a wider scope.
    pub(super) unseen: Vec<String>,
    /// Resources that the user cannot list, although the manifests depend on them. Empty with
    /// [`DeniedList::Fail`].
    pub(super) denied: Vec<String>,
}

struct RbacReader<'a> {
    client: &'a Client,
    profile: &'a ProfileRef,
    namespaces: BTreeSet<&'a str>,
    is_cluster_wide: bool,
    on_denied: DeniedList,
    live: LiveRbac,
}

impl RbacReader<'_> {
    async fn namespaced(&mut self, resource: &ApiResource) -> Result<(), CommandError> {
        let plural = resource.plural.as_str();
        let everywhere = Api::all_with(self.client.clone(), resource);
        match self.keep(&everywhere, &resource.kind).await {
            Err(error) if is_forbidden(&error) => {}
            listed => {
                return listed
                    .map_err(|error| CommandError::of_request(title(plural, None), error));
            }
        }
        for namespace in self.namespaces.clone() {
            let there = Api::namespaced_with(self.client.clone(), namespace, resource);
            let listed = self.keep(&there, &resource.kind).await;
            self.allow(listed, title(plural, Some(namespace)))?;
        }
        let others = format!("{plural} of other namespaces");
        let can_bind = self.is_cluster_wide && resource.kind == "RoleBinding";
        if can_bind && self.on_denied == DeniedList::Name {
            // A RoleBinding in any namespace can bind the ClusterRole of the manifests. So the
            // manifests depend on the RoleBindings that the user cannot list.
            self.live.denied.push(others);
        } else {
            self.live.unseen.push(others);
        }
        Ok(())
    }

    /// Returns the error of `listed`. If the API server denied the list and `on_denied` is
    /// [`DeniedList::Name`], notes `title` as denied instead.
    fn allow(
        &mut self,
        listed: Result<(), kube::Error>,
        title: String,
    ) -> Result<(), CommandError> {
        match listed {
            Err(error) if is_forbidden(&error) && self.on_denied == DeniedList::Name => {
                self.live.denied.push(title);
                Ok(())
            }
            listed => listed.map_err(|error| CommandError::of_request(title, error)),
        }
    }

    async fn cluster_wide(&mut self, resource: &ApiResource) -> Result<(), CommandError> {
        let all = Api::all_with(self.client.clone(), resource);
        match self.keep(&all, &resource.kind).await {
            Err(error) if is_forbidden(&error) && !self.is_cluster_wide => {
                self.live.unseen.push(resource.plural.clone());
                Ok(())
            }
            listed => self.allow(listed, title(&resource.plural, None)),
        }
    }

    async fn keep(&mut self, api: &Api<DynamicObject>, kind: &str) -> Result<(), kube::Error> {
        let mut malformed = None;
        pages(api, ListParams::default().limit(PAGE), |object| {
            match RbacObject::from_list_item(kind, object) {
                Ok(document) if is_ours(&document, self.profile) => {
                    self.live.documents.push(document);
                }
                Ok(_) => {}
                Err(error) => malformed = Some(error),
            }
        })
        .await?;
        malformed.map_or(Ok(()), |error| Err(kube::Error::SerdeError(error)))
    }
}

/// Whether `document` is a role of the profile or a binding to such a role. Names of namespaces,
/// profiles and targets contain no `:`, so a prefix with `:` is unambiguous.
fn is_ours(document: &RbacObject, profile: &ProfileRef) -> bool {
    let prefix = role_name(profile);
    let is_own = |name: &str| {
        name.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    is_own(document.name()) || document.bound_role().is_some_and(|role| is_own(&role.name))
}

fn title(plural: &str, namespace: Option<&str>) -> String {
    let whole = format!("{plural}.rbac.authorization.k8s.io");
    match namespace {
        Some(namespace) => format!("{whole} in namespace {namespace}"),
        None => whole,
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_another_profile_are_not_ours() {
        let profile = ProfileRef { namespace: "shop".into(), name: "web".into() };
        let role = |name: &str| {
            let meta = format!("metadata: {{name: '{name}'}}\n");
            RbacObject::parse(&format!("kind: ClusterRole\n{meta}")).unwrap().remove(0)
        };
        for name in
            ["kubewarm:shop:web", "kubewarm:shop:web:elevated", "kubewarm:shop:web:target:a"]
        {
            assert!(is_ours(&role(name), &profile), "{name}");
        }
        for name in ["kubewarm:shop:web2", "kubewarm:shop:we", "kubewarm:shop2:web", "web"] {
            assert!(!is_ours(&role(name), &profile), "{name}");
        }
        let binding = "kind: RoleBinding\nmetadata: {name: mine, namespace: shop}\n\
                       roleRef: {apiGroup: a, kind: Role, name: 'kubewarm:shop:web'}\n";
        assert!(is_ours(&RbacObject::parse(binding).unwrap()[0], &profile));
    }
}
