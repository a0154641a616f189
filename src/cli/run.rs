//! Flags of `run`, which starts the operator.

use super::{CallerAuthMode, CertificateArgs, ListArgs, ReadApiArgs};
use crate::commands::{self, ClusterArgs};
use clap::{Args, ValueEnum};
use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

/// Flags of `run`. Each flag also has an environment variable, such as `KUBEWARM_ADMIN_ADDR` for
/// `--admin-addr`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Namespace that contains the operator's Lease, and whose profiles can read other namespaces
    /// [default: the namespace of the ServiceAccount, else kubewarm-system].
    #[arg(long, value_name = "NAMESPACE", value_parser = commands::namespace)]
    pub operator_namespace: Option<String>,

    /// Namespaces whose profiles the operator runs, separated by commas. The operator then needs no
    /// ClusterRole, but rejects cluster-wide scopes and namespace selectors [default: all].
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = commands::namespace)]
    pub watch_namespaces: Vec<String>,

    /// Address of /livez, /readyz, /metrics and /debug.
    #[arg(long, default_value = "[::]:9090", value_name = "ADDRESS")]
    pub admin_addr: SocketAddr,

    /// Serve --admin-addr over TLS, so that probes need `scheme: HTTPS`. Without
    /// --admin-tls-cert-file the certificate is self-signed.
    #[arg(long)]
    pub admin_tls: bool,

    /// PEM certificate chain of --admin-addr, reloaded after changes. This flag implies
    /// --admin-tls.
    #[arg(long, value_name = "FILE", requires = "admin_tls_private_key_file")]
    pub admin_tls_cert_file: Option<PathBuf>,

    /// PEM private key of --admin-tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert_file")]
    pub admin_tls_private_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub certificate: CertificateArgs,

    /// Clients that can read /metrics. `--metrics-auth` alone means `delegated`, which needs
    /// cluster-wide permissions
    /// (`kubewarm rbac --operator --operator-namespace NAMESPACE --metrics-auth`) and excludes
    /// --watch-namespaces.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "loopback",
        default_missing_value = "delegated",
        num_args = 0..=1,
        require_equals = true
    )]
    pub metrics_auth: MetricsAuth,

    /// Maximum number of concurrent first lists and relists, over all profiles.
    #[arg(long, default_value = "16", value_name = "COUNT")]
    pub max_concurrent_lists: NonZeroUsize,

    /// Limit of the profiles in one namespace, in percent of concurrent lists, freshness checks and
    /// consistency checks, and of memory for stores. The memory limit does not apply to the
    /// operator namespace.
    #[arg(
        long,
        default_value = "25",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    pub namespace_quota: u8,

    /// Memory limit of kubewarm, such as 512Mi; 0 means no limit. Stores and informers (64Ki per
    /// informer) get 75 %, clients of the read API get 15 %. kubewarm stops targets if the stores
    /// exceed their limit, and targets of the operator namespace last [default: the cgroup's
    /// limit].
    #[arg(long, value_name = "SIZE", value_parser = commands::size)]
    pub memory_limit: Option<u64>,

    /// Maximum number of informers of all profiles. kubewarm rejects a target whose informers would
    /// exceed this number.
    #[arg(long, default_value = "10000", value_name = "COUNT")]
    pub max_informers: NonZeroUsize,

    /// Maximum number of informers of the profiles in one namespace, except the operator namespace.
    #[arg(long, default_value = "1000", value_name = "COUNT")]
    pub namespace_informers: NonZeroUsize,

    /// Time for which kubewarm still serves after SIGTERM while /readyz fails. Seconds, or a
    /// duration such as 500ms.
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = commands::duration)]
    pub shutdown_delay: Duration,

    #[command(flatten)]
    pub lists: ListArgs,

    #[command(flatten)]
    pub api: ReadApiArgs,

    /// Log filter, in the syntax of `tracing` directives.
    // The default names kube's crates, because directives match by prefix: `kube=warn` would also
    // silence kubewarm.
    #[arg(
        long,
        help_heading = "Logs",
        default_value = "info,kube_client=warn,kube_runtime=warn",
        value_name = "FILTER"
    )]
    pub log: String,

    /// Log format.
    #[arg(long, help_heading = "Logs", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,

    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAuth {
    /// Clients on this host, such as a port-forward.
    Loopback,
    /// Clients whose bearer token permits `get` on the nonResourceURL /metrics. /debug and the
    /// names in /readyz?verbose need `get` on their paths.
    Delegated,
    /// All clients.
    None,
}

impl RunArgs {
    /// Returns the value of `--auth`. Without the flag it returns `Delegated`, or with
    /// `--watch-namespaces` `CallerToken`, which needs no ClusterRole.
    pub fn auth(&self) -> CallerAuthMode {
        let default = if self.watch_namespaces.is_empty() {
            CallerAuthMode::Delegated
        } else {
            CallerAuthMode::CallerToken
        };
        self.api.auth.unwrap_or(default)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::{CallerAuthMode, RunArgs};
    use crate::cli::Cli;
    use clap::{CommandFactory as _, Parser};
    use kubewarm_serve::callers::ReaderLimits;
    use std::num::NonZeroUsize;

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn an_empty_address_disables_the_read_api_and_auth_has_a_default() {
        let address = |more: &[&str]| {
            Run::try_parse_from([&["run"], more].concat()).map(|run| run.args.api.api_addr)
        };
        assert_eq!(address(&[]).unwrap(), Some("[::]:8443".parse().unwrap()));
        assert_eq!(address(&["--api-addr="]).unwrap(), None);
        assert_eq!(address(&["--api-addr", ""]).unwrap(), None);
        let auth =
            |more: &[&str]| Run::try_parse_from([&["run"], more].concat()).unwrap().args.auth();
        assert_eq!(auth(&[]), CallerAuthMode::Delegated);
        assert_eq!(auth(&["--watch-namespaces=a"]), CallerAuthMode::CallerToken);
        assert_eq!(auth(&["--watch-namespaces=a", "--auth=delegated"]), CallerAuthMode::Delegated);
        let error = address(&["--api-addr=8443"]).unwrap_err().to_string();
        assert!(error.contains("such as [::]:8443, or '' for nowhere"), "{error}");
    }

    #[test]
    fn reader_limits_are_flags_that_reject_zero() {
        let parse = |more: &[&str]| Run::try_parse_from([&["run"], more].concat());
        let limits = |more: &[&str]| {
            let limits = parse(more).unwrap().args.api.limits(ReaderLimits::default());
            let counts = [limits.watches, limits.connections, limits.address_connections];
            (counts.map(NonZeroUsize::get), limits.requests.get(), limits.user_quota)
        };
        assert_eq!(limits(&[]), ([4_096, 1_024, 128], 400, 25));
        let flags = ["--max-requests-inflight=8", "--user-quota=50", "--max-connections=7"];
        assert_eq!(limits(&flags), ([4_096, 7, 1], 8, 50));
        let flags = ["--max-watches=9", "--address-connections=6"];
        assert_eq!(limits(&flags), ([9, 1_024, 6], 400, 25));
        for flag in [
            "max-requests-inflight",
            "max-watches",
            "max-connections",
            "address-connections",
            "user-quota",
        ] {
            assert!(parse(&[&format!("--{flag}=0")]).is_err(), "{flag}");
        }
        assert!(parse(&["--user-quota=101"]).is_err());
    }

    #[test]
    fn agents_are_entries_without_duplicates_and_errors_name_the_flag_and_the_entry() {
        let parse = |more: &[&str]| Run::try_parse_from([&["run"], more].concat());
        let run = parse(&["--agents=shop/b,shop/a", "--agents", "shop/b"]).unwrap();
        let agents = run.args.api.agent_accounts();
        let agents: Vec<_> = agents.iter().map(ToString::to_string).collect();
        assert_eq!(agents, ["shop/a", "shop/b"]);
        let error = parse(&["--agents=shop/a,agent"]).unwrap_err().to_string();
        for text in ["'agent'", "--agents <NAMESPACE/NAME>", "such as monitoring/node-agent"] {
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn every_flag_of_run_has_an_environment_variable_with_the_prefix() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        for flag in run.get_arguments().filter(|a| a.get_id() != "help") {
            let env = flag.get_env().and_then(|e| e.to_str()).unwrap_or_default();
            let long = flag.get_long().unwrap().to_uppercase().replace('-', "_");
            assert_eq!(env, format!("KUBEWARM_{long}"));
        }
    }
}
