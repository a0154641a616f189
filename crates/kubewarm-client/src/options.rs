//! Options of a connection.

use std::{path::PathBuf, time::Duration};

/// Source, identity and limits of a connection. Each option that is unset comes from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Path of a kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// Cluster of the kubeconfig, instead of the context's.
    pub cluster: Option<String>,
    /// User of the kubeconfig, instead of the context's.
    pub user: Option<String>,
    /// User to impersonate.
    pub impersonated_user: Option<String>,
    /// Groups to impersonate. The API server requires a user with them.
    pub impersonated_groups: Vec<String>,
    /// Time limit of a request from its start to the end of its response. Watches have no limit.
    pub request_timeout: Option<Duration>,
}

impl ConnectionOptions {
    /// The current context of the kubeconfig at `path`.
    pub fn of_file(path: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: Some(path.into()), ..Self::default() }
    }
}
