//! The command `forwarded` names the kinds that clients read through kubewarm although no profile
//! declares them.

mod summary;

pub(super) use self::summary::ForwardedSummary;

use super::{
    CommandError,
    cache::{CacheServiceArgs, admin_kubeconfig, authority},
    cluster::ConnectionArgs,
    output::OutputArgs,
    port_forward::{AdminPortForward, open_admin_ports},
    print::{show, tell},
    report::CommandExitCode,
};
use clap::Args;
use jiff::Timestamp;
use kube::config::Kubeconfig;
use kubewarm_client::{ApiServerConnection, get};
use std::time::Duration;

/// Path of the list of forwarded reads at the admin port.
const PATH: &str = "/debug/forwarded";

const CODES: &str = "\
Exit codes:
  0  printed
  1  at least one replica could not be read
  2  an error";

#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct ForwardedArgs {
    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub service: CacheServiceArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Reads the forwarded reads of all ready pods, and prints their sums by kind and user.
///
/// The command sends no credentials to the pods. RBAC protects the list of forwarded reads, because
/// only users with the permission to create a port-forward reach the admin port.
///
/// # Errors
///
/// [`CommandError`] if the Service, its pods or the CA cannot be read. A pod that cannot be read is
/// a row of the output.
///
/// # Cost
///
/// Two requests to the API server, one for the CA, and two port-forwards for each pod.
pub async fn forwarded(
    args: &ForwardedArgs,
    now: impl Fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    let connection = args.connection.connect()?;
    let timeout = args.connection.request_timeout();
    let summary = fetch_user_reads(connection, &args.service, timeout).await?;
    show(&summary.report(now()), args.output.format)
}

/// Reads `/debug/forwarded` of all ready pods.
///
/// # Errors
///
/// [`CommandError`] as for [`forwarded`].
pub(super) async fn fetch_user_reads(
    connection: ApiServerConnection,
    service: &CacheServiceArgs,
    timeout: Option<Duration>,
) -> Result<ForwardedSummary, CommandError> {
    let namespace = service.operator_namespace.name();
    let ports = open_admin_ports(&connection, namespace, &service.cache_service).await?;
    let certificates = if ports.iter().any(|port| port.is_tls) {
        let (certificates, remark) = authority(service, || Ok(connection)).await?;
        if let Some(remark) = remark {
            tell(&remark);
        }
        Some(certificates)
    } else {
        None
    };
    let mut summary = ForwardedSummary::default();
    for port in ports {
        let pod = port.pod.clone();
        let certificates = certificates.clone().filter(|_| port.is_tls);
        let kubeconfig = admin_kubeconfig(service, certificates);
        match read(port, kubeconfig, timeout).await {
            Ok(body) => summary.add(&pod, &body),
            Err(error) => summary.add_unread(&pod, &error),
        }
    }
    Ok(summary)
}

/// Returns the body of a pod's response to a request for the list of forwarded reads.
async fn read(
    port: AdminPortForward,
    kubeconfig: Kubeconfig,
    timeout: Option<Duration>,
) -> Result<Vec<u8>, CommandError> {
    let pod = ApiServerConnection::from_kubeconfig(kubeconfig, timeout, Some(port.streams?))?;
    let failed = |fault| CommandError::caused(format!("{PATH} was not read"), fault);
    let answer = get(&pod.client(), PATH).await.map_err(failed)?;
    if answer.status.is_success() { Ok(answer.body.to_vec()) } else { Err(failed(answer.fault())) }
}
