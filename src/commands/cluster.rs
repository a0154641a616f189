//! Flags that select the API server and the user, and discovery of the resources that an API server
//! serves.

use super::{CommandError, flag_values};
use clap::{Args, builder::NonEmptyStringValueParser};
use kube::Client;
use kubewarm_api::model::{FaultReason, RequestFault};
use kubewarm_client::{
    ApiServerConnection, ConnectError, ConnectionOptions, Discovery, ServedResources,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Timeout of the whole discovery. Discovery reads one document for each API group version.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Heading of the connection flags in help texts. Each flag names the heading, because clap would
/// also apply a heading of the struct to all later flags.
const HEADING: &str = "Cluster";

/// Flags that select a kubeconfig, also for `run`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArgs {
    /// Kubeconfig file [default: KUBECONFIG, else the in-cluster files, else ~/.kube/config].
    #[arg(long, env = "KUBEWARM_KUBECONFIG", value_name = "FILE", help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context].
    #[arg(long, env = "KUBEWARM_CONTEXT", value_name = "NAME", help_heading = HEADING)]
    pub context: Option<String>,
}

/// Connection flags, with kubectl's names.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    #[command(flatten)]
    pub source: ClusterArgs,

    /// Cluster of the kubeconfig [default: the context's].
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub cluster: Option<String>,

    /// User of the kubeconfig [default: the context's].
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub user: Option<String>,

    /// User to impersonate at the API server, such as system:serviceaccount:shop:reader. Not with
    /// `get` and `kubeconfig`.
    #[arg(
        id = "as",
        long = "as",
        value_name = "USER",
        value_parser = NonEmptyStringValueParser::new(),
        help_heading = HEADING
    )]
    pub impersonated_user: Option<String>,

    /// Group to impersonate; repeat the flag for more groups.
    #[arg(
        id = "as-group",
        long = "as-group",
        value_name = "GROUP",
        requires = "as",
        help_heading = HEADING
    )]
    pub impersonated_groups: Vec<String>,

    /// Timeout of each request except watches, in seconds or such as 500ms or 1m; 0 sets none.
    /// kubewarm's own timeouts of at most 1m still apply.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = flag_values::duration,
        default_value = "0",
        help_heading = HEADING
    )]
    pub request_timeout: Duration,
}

impl ClusterArgs {
    /// Loads the kubeconfig or the in-cluster configuration. It sends no request.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if there is no configuration, or if it is invalid.
    pub fn connect(&self) -> Result<ApiServerConnection, ConnectError> {
        ApiServerConnection::load(&self.options())
    }

    fn options(&self) -> ConnectionOptions {
        let Self { kubeconfig, context } = self.clone();
        ConnectionOptions { kubeconfig, context, ..ConnectionOptions::default() }
    }
}

impl ConnectionArgs {
    /// Loads the kubeconfig or the in-cluster configuration. It sends no request.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if there is no configuration, or if it is invalid.
    pub fn connect(&self) -> Result<ApiServerConnection, ConnectError> {
        ApiServerConnection::load(&self.options())
    }

    pub(super) fn options(&self) -> ConnectionOptions {
        ConnectionOptions {
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            impersonated_user: self.impersonated_user.clone(),
            impersonated_groups: self.impersonated_groups.clone(),
            request_timeout: self.request_timeout(),
            ..self.source.options()
        }
    }

    /// Returns the value of `--request-timeout`, or `None` for 0, which sets no timeout.
    pub(super) fn request_timeout(&self) -> Option<Duration> {
        Some(self.request_timeout).filter(|limit| !limit.is_zero())
    }

    /// Rejects `--as` for `get` and `kubeconfig`, because these commands send or copy the user's
    /// own credentials.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if `--as` is set.
    pub(super) fn refuse_impersonation(&self) -> Result<(), CommandError> {
        match &self.impersonated_user {
            Some(_) => Err(CommandError::new(
                "the read API does not take --as; use the credentials of that user: --user, \
                 --context, or --token-file of `kubewarm kubeconfig`",
            )),
            None => Ok(()),
        }
    }
}

/// Discovers the resources that the server of `client` serves.
///
/// # Errors
///
/// The fault of the first failed request, or `TimedOut` after 15 s.
pub(super) async fn served(client: Client) -> Result<Arc<ServedResources>, RequestFault> {
    let discovery = Discovery::new(client);
    let (mut served, mut fault) = (discovery.served(), discovery.fault());
    let first = async {
        tokio::select! {
            // This branch never completes: `run` ends only when its token is cancelled, and nothing
            // cancels this token.
            () = discovery.run(CancellationToken::new()) => None,
            Ok(resources) = served.wait_for(Option::is_some) => resources.clone().map(Ok),
            Ok(fault) = fault.wait_for(Option::is_some) => fault.clone().map(Err),
        }
    };
    let late = || RequestFault::new(FaultReason::TimedOut, "no answer within 15 s");
    timeout(DISCOVERY_TIMEOUT, first).await.ok().flatten().unwrap_or_else(|| Err(late()))
}
