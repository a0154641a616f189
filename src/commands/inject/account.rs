//! The permissions of a workload's ServiceAccount that prevent its injection.

use super::super::{CommandError, inferred_profile::ServiceAccountName};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::ServiceAccount};
use kube::{Api, Client};
use kubewarm_api::{
    model::RequestFault,
    v1alpha1::{CacheProfile, ManagedFieldsPolicy},
};
use kubewarm_client::{ConnectionOptions, is_allowed};
use std::collections::BTreeSet;

/// Actions with which a user can get any permission, or read all credentials: verb, group and
/// resource. kubewarm holds the tokens of injected pods while it forwards their requests.
const PRIVILEGES: [(&str, &str, &str); 11] = [
    ("*", "*", "*"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("impersonate", "", "users"),
    ("impersonate", "", "serviceaccounts"),
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("watch", "", "secrets"),
    ("escalate", "rbac.authorization.k8s.io", "roles"),
    ("bind", "rbac.authorization.k8s.io", "roles"),
    ("create", "", "serviceaccounts/token"),
];

/// A ServiceAccount, with a client that impersonates it.
pub(super) struct AccountReviewer {
    account: ServiceAccountName,
    client: Client,
}

impl AccountReviewer {
    /// The user connects with `options`, and must be permitted to impersonate the ServiceAccount.
    pub(super) fn new(
        account: &ServiceAccountName,
        options: ConnectionOptions,
    ) -> Result<Self, CommandError> {
        let client = account.impersonate(options)?;
        Ok(Self { account: account.clone(), client })
    }

    /// Whether the ServiceAccount may do this in the namespace, or without one in all namespaces.
    async fn may(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<bool, CommandError> {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let attributes = ResourceAttributes {
            namespace: namespace.map(str::to_owned),
            subresource,
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let failed = |fault: RequestFault| {
            CommandError::caused(
                format!(
                    "cannot review the permissions of ServiceAccount {}, as which you need permission to \
                     impersonate",
                    self.account
                ),
                fault,
            )
        };
        is_allowed(&self.client, attributes).await.map_err(failed)
    }

    /// The reason why a ServiceAccount with dangerous permissions is not injected.
    pub(super) async fn privilege(&self) -> Result<Option<String>, CommandError> {
        for (verb, group, resource) in PRIVILEGES {
            if self.may(verb, group, resource, None).await? {
                let what = match (verb, group) {
                    ("*", _) => "do anything in all namespaces".to_owned(),
                    (_, "") => format!("{verb} {resource} of all namespaces"),
                    (_, group) => format!("{verb} {resource}.{group}"),
                };
                return Ok(Some(format!(
                    "ServiceAccount {} may {what}, and kubewarm would receive its tokens; pass --allow-privileged if \
                     you trust kubewarm with that",
                    self.account
                )));
            }
        }
        Ok(None)
    }

    /// The reason why profiles without managedFields and a client that patches exclude each other:
    /// with server-side apply after a read, such a client would remove its own fields.
    pub(super) async fn dropped_fields(
        &self,
        profiles: &[CacheProfile],
    ) -> Result<Option<String>, CommandError> {
        let dropping = profiles.iter().flat_map(|profile| {
            let targets = profile.spec.targets.iter();
            let targets = targets
                .filter(|target| target.projection.managed_fields == ManagedFieldsPolicy::Drop);
            targets.map(move |target| (profile, target.group.as_str(), target.resource.as_str()))
        });
        let mut reviewed = BTreeSet::new();
        for (profile, group, resource) in dropping {
            // A controller's Role in its own namespace counts too.
            let own = Some(self.account.namespace.as_str());
            if reviewed.insert((group, resource)) && self.may("patch", group, resource, own).await?
            {
                let metadata = &profile.metadata;
                return Ok(Some(format!(
                    "CacheProfile {}/{} drops managedFields of {resource}, which ServiceAccount {} may patch: a \
                     server-side apply after a read would remove fields; set managedFields: Keep there",
                    metadata.namespace.as_deref().unwrap_or_default(),
                    metadata.name.as_deref().unwrap_or_default(),
                    self.account
                )));
            }
        }
        Ok(None)
    }
}

/// The reason why pods of this ServiceAccount have no token, unless their spec asks for one.
/// `None` also for a ServiceAccount that does not exist yet.
pub(super) async fn without_token(
    client: &Client,
    account: &ServiceAccountName,
) -> Result<Option<String>, CommandError> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &account.namespace);
    let found = accounts.get_opt(&account.name).await;
    let found = found
        .map_err(|error| CommandError::of_request(format!("ServiceAccount {account}"), error))?;
    let is_off = found.is_some_and(|found| found.automount_service_account_token == Some(false));
    Ok(is_off.then(|| {
        format!(
            "automountServiceAccountToken of ServiceAccount {account} is false, so its programs have no token for \
             the API server; set automountServiceAccountToken: true in the pod template if they need one"
        )
    }))
}
