//! The control plane of a run.

use crate::{call, usage::Usage};
use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};
use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use testbed::ControlPlane;

/// etcd and an API server. They end when this value is dropped.
pub struct Cluster {
    control_plane: ControlPlane,
    kubeconfig: PathBuf,
    client: Client,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("control_plane", &self.control_plane)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Builds the control plane if it has not been built yet, and starts it.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started.
    ///
    /// # Cost
    ///
    /// About 4 s; the first build minutes.
    pub async fn start() -> Result<Self> {
        let control_plane =
            tokio::task::spawn_blocking(|| ControlPlane::builder().start()).await??;
        let kubeconfig = control_plane.kubeconfig().to_owned();
        let client = call::connect(&kubeconfig).await?;
        Ok(Self { control_plane, kubeconfig, client })
    }

    /// A client with the rights of cluster-admin.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A kubeconfig with the rights of cluster-admin.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's address and the path of its CA certificate.
    ///
    /// # Errors
    ///
    /// If the URL contains no address.
    pub fn apiserver(&self) -> Result<(SocketAddr, PathBuf)> {
        let url = self.control_plane.server_url();
        let address = url.strip_prefix("https://").unwrap_or(&url).parse();
        Ok((
            address.with_context(|| format!("not an address: {url}"))?,
            self.control_plane.authority(),
        ))
    }

    /// The API server's memory and processor time.
    ///
    /// # Errors
    ///
    /// If the API server has ended.
    pub fn apiserver_usage(&self) -> Result<Usage> {
        Usage::of(self.apiserver_pid()?)
    }

    /// The API server's process. It changes with each restart.
    ///
    /// # Errors
    ///
    /// If the API server has ended.
    pub fn apiserver_pid(&self) -> Result<u32> {
        self.control_plane.apiserver().id().context("the API server has ended")
    }

    /// Applies manifests with kubectl.
    ///
    /// # Errors
    ///
    /// If the API server rejects a manifest.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.control_plane.apply(manifests)?;
        Ok(())
    }

    /// A new token of a ServiceAccount, valid for 24 hours.
    ///
    /// # Errors
    ///
    /// If the account does not exist.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        self.request_token(namespace, account, &json!({"expirationSeconds": 86_400})).await
    }

    /// As [`token`](Self::token), bound to a pod, as a pod finds it in its volume.
    ///
    /// # Errors
    ///
    /// If the account or the pod does not exist, or the pod has another account.
    pub async fn pod_token(&self, namespace: &str, account: &str, pod: &str) -> Result<String> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": pod});
        let spec = json!({"expirationSeconds": 86_400, "boundObjectRef": pod});
        self.request_token(namespace, account, &spec).await
    }

    /// As [`token`](Self::token), for other replicas of kubewarm.
    ///
    /// # Errors
    ///
    /// If the account does not exist.
    pub(crate) async fn peer_token(&self, namespace: &str, account: &str) -> Result<String> {
        let audiences = [kubewarm_wire::PEER_AUDIENCE];
        let spec = json!({"expirationSeconds": 86_400, "audiences": audiences});
        self.request_token(namespace, account, &spec).await
    }

    async fn request_token(&self, namespace: &str, account: &str, spec: &Value) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": spec});
        let made = call::create(&self.client, &path, &request).await?;
        let token = made["status"]["token"].as_str().context("a token without a token")?;
        Ok(token.to_owned())
    }

    /// Kills the API server and starts it again. Its watch cache is then empty, so it answers a
    /// watch from an older version with 410.
    ///
    /// # Errors
    ///
    /// If it does not start again.
    pub fn restart_apiserver(&self) -> Result<()> {
        self.control_plane.apiserver().kill()?;
        Ok(self.control_plane.apiserver().start()?)
    }
}
