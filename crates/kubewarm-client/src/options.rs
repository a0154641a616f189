//! Options of a connection to an API server.

use std::{path::PathBuf, time::Duration};

/// The options that select the kubeconfig, the identity and the request time limit of a connection
/// to an API server. If an option is not set, the connection uses the value of the kubeconfig or of
/// the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Path of the kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the kubeconfig's context, instead of the current context.
    pub context: Option<String>,
    /// Name of the kubeconfig's cluster, instead of the context's cluster.
    pub cluster: Option<String>,
    /// Name of the kubeconfig's user, instead of the context's user.
    pub user: Option<String>,
    /// Name of the user to impersonate.
    pub impersonated_user: Option<String>,
    /// Names of the groups to impersonate. The API server rejects impersonated groups without an
    /// impersonated user.
    pub impersonated_groups: Vec<String>,
    /// Time limit of a request from its start to the end of its response; `None` for no limit.
    /// Watches never have a limit.
    pub request_timeout: Option<Duration>,
}

impl ConnectionOptions {
    /// Returns options that select the current context of the kubeconfig at `path`.
    pub fn of_file(path: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: Some(path.into()), ..Self::default() }
    }
}
