//! The command `inject` lets the pods of a workload read from kubewarm, without changes of their
//! images.

mod account;
mod apply;
mod check;
mod egress;
mod installation;
mod live_workload;
mod manifest_stream;
mod plan;

use super::{
    CommandError, cache::CacheServiceArgs, cluster::ConnectionArgs, flag_values,
    inferred_profile::ProfileKindArgs, profile_source::OperatorArgs, report::CommandExitCode,
};
use clap::Args;
use jiff::Timestamp;
use kubewarm_inject::{InjectedAddress, WorkloadKind};
use std::{net::IpAddr, path::PathBuf, time::Duration};

const EXAMPLES: &str = "\
Examples:
  export KUBEWARM_OPERATOR_NAMESPACE=kubewarm-system
  kubectl warm inject deployment/shop -n shop            # print all objects
  kubectl warm inject deployment/shop -n shop --apply    # show them, ask, and apply them
  kubectl warm inject deployment/shop -n shop --undo --apply
  kustomize build . | kubectl warm inject -f - | kubectl apply -f -
  kubectl warm inject -f - --undo <injected.yaml >original.yaml

Exit codes:
  0  printed or applied
  1  the answer was no, or a check failed
  2  an error, or a workload cannot be injected
  3  the profile was not ready in time; the workload is unchanged";

/// Why the user must name the operator namespace.
const TRUSTED: &str =
    "injected pods send their tokens to the Service there, and the grants name its ServiceAccount";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct InjectArgs {
    /// Workload: deployment, statefulset, daemonset, cronjob, replicaset, job or pod. With -f, the
    /// only workload of the file to inject [default: all that can be injected].
    #[arg(value_name = "KIND/NAME", value_parser = workload, required_unless_present = "file")]
    pub workload: Option<WorkloadName>,

    /// Namespace of the workload, and with -f of objects without a namespace [default: the
    /// context's].
    #[arg(short, long, value_parser = flag_values::namespace)]
    pub namespace: Option<String>,

    /// YAML or JSON file with manifests; - is standard input. The command prints the file with the
    /// injected workloads. All else stays as it is, also comments.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Changes in the cluster after a confirmation: label of the namespace, profile, grants, and
    /// once the profile is ready, the workload.
    #[arg(long, conflicts_with = "file")]
    pub apply: bool,

    /// No confirmation, with --apply.
    #[arg(short = 'y', long, requires = "apply")]
    pub yes: bool,

    /// Removal of the injection. The profile, its grants and the label of the namespace stay.
    #[arg(long)]
    pub undo: bool,

    /// Check of an injected workload: its address, TLS with its CAs, network policies, and the
    /// kinds that it reads and no profile declares.
    #[arg(long, conflicts_with_all = ["file", "apply", "undo"])]
    pub check: bool,

    /// No requests, with -f. Needs --cluster-ip.
    #[arg(long, requires_all = ["file", "cluster_ip"])]
    pub offline: bool,

    /// Use of the API server by the pods while no replica of kubewarm is ready [default: true,
    /// except for `DaemonSet`s, whose pods could overload the API server].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub fail_open: Option<bool>,

    /// Cluster IP of the Service kubewarm-api-failopen, or of kubewarm-api without --fail-open;
    /// repeat the flag for a second address family [default: the Service's].
    #[arg(id = "cluster_ip", long = "cluster-ip", value_name = "IP")]
    pub cluster_ips: Vec<IpAddr>,

    /// DNS domain of the cluster.
    #[arg(
        long,
        value_name = "DOMAIN",
        default_value = "cluster.local",
        value_parser = flag_values::dns_name
    )]
    pub cluster_domain: String,

    /// Injection also of a workload whose ServiceAccount may read Secrets of all namespaces or
    /// grant itself any permission. kubewarm receives its tokens.
    #[arg(long)]
    pub allow_privileged: bool,

    /// Name of the profile [default: the name of the ServiceAccount].
    #[arg(long, value_name = "NAME", value_parser = flag_values::dns_name, conflicts_with = "file")]
    pub profile_name: Option<String>,

    #[command(flatten)]
    pub kinds: ProfileKindArgs,

    /// Timeout for the profile to become ready, with --apply.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag_values::duration)]
    pub timeout: Duration,

    /// Service of the read API, whose pods the command reads.
    #[arg(long, value_name = "NAME", default_value = "kubewarm")]
    pub cache_service: String,

    #[command(flatten)]
    pub operator: OperatorArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl InjectArgs {
    /// Whether pods of this kind may use the API server while kubewarm is away. A thousand agents
    /// that list at once would be an outage of their own.
    fn is_fail_open(&self, kind: WorkloadKind) -> bool {
        self.fail_open.unwrap_or(kind != WorkloadKind::DaemonSet)
    }

    /// The address from the flags. Empty without `--cluster-ip`.
    fn given_address(&self) -> InjectedAddress {
        InjectedAddress { ips: self.cluster_ips.clone(), domain: self.cluster_domain.clone() }
    }

    /// The read API's Service, and where its CA is by default.
    fn service(&self) -> CacheServiceArgs {
        CacheServiceArgs {
            cache_service: self.cache_service.clone(),
            cache_secret: None,
            cache_certificate_authority: None,
            operator_namespace: self.operator.operator_namespace.clone(),
        }
    }
}

/// Kind and name of a workload, as kubectl writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    kind: WorkloadKind,
    name: String,
}

fn workload(text: &str) -> Result<WorkloadName, String> {
    let parsed = text.split_once('/').and_then(|(kind, name)| {
        Some(WorkloadName {
            kind: WorkloadKind::of_word(kind)?,
            name: flag_values::dns_name(name).ok()?,
        })
    });
    parsed.ok_or_else(|| {
        "expected KIND/NAME with a KIND of deployment, statefulset, daemonset, cronjob, replicaset, job or pod"
            .to_owned()
    })
}

impl WorkloadName {
    /// Such as `deployment/shop`.
    fn title(&self) -> String {
        format!("{}/{}", self.kind.name().to_lowercase(), self.name)
    }
}

/// Prints or applies the injection of a workload, or prints a file with injected workloads.
///
/// # Errors
///
/// [`CommandError`] with all reasons if a workload cannot be injected, or if a request fails. A
/// workload changes only after everything that it needs works.
///
/// # Cost
///
/// About 20 requests, discovery, and a review for each namespace with a binding of the workload's
/// ServiceAccount. With `-f`, about 15 requests for each ServiceAccount.
pub async fn inject(
    args: &InjectArgs,
    clock: fn() -> Timestamp,
) -> Result<CommandExitCode, CommandError> {
    match (&args.file, &args.workload) {
        (Some(file), _) => manifest_stream::inject(args, file).await,
        (None, Some(workload)) => Box::pin(live_workload::inject(args, workload, clock)).await,
        (None, None) => Err(CommandError::new("pass KIND/NAME or -f FILE")),
    }
}

/// The error for a workload that cannot be injected, with all reasons.
fn refused(title: &str, reasons: &[String]) -> CommandError {
    CommandError::new(format!("{title} cannot be injected: {}", reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};

    #[test]
    fn a_workload_is_a_kind_and_a_name() {
        let parsed = |line: &str| parse::<InjectArgs>(line).map(|args| args.workload);
        let shop = WorkloadName { kind: WorkloadKind::Deployment, name: "shop".to_owned() };
        assert_eq!(shop.title(), "deployment/shop");
        for word in ["deploy", "deployments", "Deployment"] {
            assert_eq!(parsed(&format!("{word}/shop")).unwrap(), Some(shop.clone()));
        }
        assert_eq!(parsed("-f a.yaml").unwrap(), None);
        for line in ["", "shop", "service/shop", "deploy/", "deploy/Shop", "deploy/a/b"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn flags_that_need_others_are_refused_without_them() {
        for line in [
            "-f a --apply",
            "-f a --check",
            "deploy/a --check --undo",
            "deploy/a --yes",
            "deploy/a --offline --cluster-ip 10.0.0.1",
            "-f a --offline",
            "-f a --profile-name b",
            "deploy/a --cluster-ip ten",
        ] {
            assert!(parse::<InjectArgs>(line).is_err(), "{line}");
        }
        let line = "-f - deploy/a --offline --cluster-ip 10.0.0.1 --cluster-ip fd00::1";
        assert_eq!(parse::<InjectArgs>(line).unwrap().cluster_ips.len(), 2);
    }
}
