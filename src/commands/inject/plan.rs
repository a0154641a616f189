//! What the injection of one workload needs, and what prevents it.

use super::{
    super::{CommandError, inferred_profile::ServiceAccountName, profiles::ProfileSelection},
    InjectArgs,
    account::{AccountReviewer, without_token},
    installation::InjectedInstallation,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client, api::ListParams};
use kubewarm_api::v1alpha1::CacheProfile;
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use kubewarm_inject::{WorkloadKind, WorkloadOrigin, pod_labels, refusals, service_account};
use serde_json::Value;
use std::collections::BTreeMap;

/// The cluster's part in the refusals of workloads.
pub(super) struct InjectionReviewer {
    pub(super) installation: InjectedInstallation,
    connection: ApiServerConnection,
    client: Client,
    options: ConnectionOptions,
    allows_privileges: bool,
    /// All profiles of the cluster; `None` before the first workload.
    profiles: Option<Vec<CacheProfile>>,
    /// The reasons of each reviewed ServiceAccount. Many workloads of a file can have the same one.
    accounts: BTreeMap<ServiceAccountName, Vec<String>>,
}

impl InjectionReviewer {
    /// Reads the installation of kubewarm.
    ///
    /// # Errors
    ///
    /// [`CommandError`] as for [`InjectedInstallation::discover`].
    pub(super) async fn discover(
        args: &InjectArgs,
        connection: &ApiServerConnection,
    ) -> Result<Self, CommandError> {
        let client = connection.client();
        Ok(Self {
            installation: InjectedInstallation::discover(&client, args).await?,
            connection: connection.clone(),
            client,
            options: args.connection.options(),
            allows_privileges: args.allow_privileged,
            profiles: None,
            accounts: BTreeMap::new(),
        })
    }

    /// All reasons why the workload in `namespace` cannot be injected. Empty if it can.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if a request fails.
    pub(super) async fn reasons(
        &mut self,
        object: &Value,
        kind: WorkloadKind,
        namespace: &str,
        origin: WorkloadOrigin,
    ) -> Result<Vec<String>, CommandError> {
        let mut reasons = refusals(object, kind, origin);
        reasons.extend(self.installation.reasons.iter().cloned());
        let account = account_of(object, kind, namespace);
        if !asks_for_token(object, kind) {
            reasons.extend(without_token(&self.client, &account).await?);
        }
        reasons.extend(self.account_reasons(&account).await?);
        if let Some(peer) = &self.installation.peer {
            let policies = Api::<NetworkPolicy>::namespaced(self.client.clone(), namespace);
            let listed = policies.list(&ListParams::default()).await.map_err(|error| {
                CommandError::of_request(format!("networkpolicies in namespace {namespace}"), error)
            })?;
            let labels = pod_labels(object, kind);
            reasons.extend(peer.refusal(&listed.items, namespace, &labels));
        }
        Ok(reasons)
    }

    /// The reasons that hold for all workloads of the ServiceAccount.
    async fn account_reasons(
        &mut self,
        account: &ServiceAccountName,
    ) -> Result<Vec<String>, CommandError> {
        if let Some(reasons) = self.accounts.get(account) {
            return Ok(reasons.clone());
        }
        let reviewer = AccountReviewer::new(account, self.options.clone())?;
        let mut reasons = Vec::new();
        if !self.allows_privileges {
            reasons.extend(reviewer.privilege().await?);
        }
        let profiles = match self.profiles.take() {
            Some(profiles) => profiles,
            None => ProfileSelection::everywhere(&self.connection).fetch().await?,
        };
        reasons.extend(reviewer.dropped_fields(&profiles).await?);
        self.profiles = Some(profiles);
        self.accounts.insert(account.clone(), reasons.clone());
        Ok(reasons)
    }
}

/// The ServiceAccount of the workload's pods.
pub(super) fn account_of(
    object: &Value,
    kind: WorkloadKind,
    namespace: &str,
) -> ServiceAccountName {
    ServiceAccountName {
        namespace: namespace.to_owned(),
        name: service_account(object, kind).to_owned(),
    }
}

/// Whether the pod template asks for a token, so that the ServiceAccount's setting does not matter.
fn asks_for_token(object: &Value, kind: WorkloadKind) -> bool {
    kubewarm_inject::pod_spec(object, kind).get("automountServiceAccountToken")
        == Some(&Value::Bool(true))
}
