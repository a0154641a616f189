//! What can be typed after `run`.

use super::{ApiArgs, Auth, ListArgs};
use crate::commands::{self, ClusterArgs};
use clap::{Args, ValueEnum};
use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

/// Arguments of `run`. Each flag can be set through the environment too: `--admin-addr` by `KUBEWARM_ADMIN_ADDR`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Where the lease lives, and whose profiles may name other namespaces than their own
    /// [default: the namespace of the ServiceAccount, else kubewarm-system].
    #[arg(long, value_name = "NAMESPACE", value_parser = commands::namespace)]
    pub operator_namespace: Option<String>,

    /// The namespaces whose profiles are run, separated by commas: with them kubewarm needs no
    /// ClusterRole (`kubewarm rbac --operator`), and scopes beyond namespaces named one by one are
    /// refused [default: all].
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = commands::namespace)]
    pub watch_namespaces: Vec<String>,

    /// Where /livez, /readyz, /metrics and /debug/cells are served.
    #[arg(long, default_value = "[::]:9090", value_name = "ADDRESS")]
    pub admin_addr: SocketAddr,

    /// Serve all of that address over TLS: probes want `scheme: HTTPS`. Without --admin-tls-cert-file this
    /// process makes the certificate, which no CA vouches for.
    #[arg(long)]
    pub admin_tls: bool,

    /// The certificate of that address, with its chain, as PEM; read again when it changes. It implies
    /// --admin-tls.
    #[arg(long, value_name = "FILE", requires = "admin_tls_private_key_file")]
    pub admin_tls_cert_file: Option<PathBuf>,

    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert_file")]
    pub admin_tls_private_key_file: Option<PathBuf>,

    /// Who reads /metrics. `--metrics-auth` alone is `delegated`, which takes more permissions (`kubewarm
    /// rbac --operator --metrics-auth`); they are of the cluster: not with --watch-namespaces.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "loopback",
        default_missing_value = "delegated",
        num_args = 0..=1,
        require_equals = true
    )]
    pub metrics_auth: MetricsAuth,

    /// How many first lists and relists may be under way at once, over all profiles.
    #[arg(long, default_value = "16", value_name = "COUNT")]
    pub max_concurrent_lists: NonZeroUsize,

    /// Percent that the profiles of one namespace may hold of those lists, of the probes (at least one
    /// of each), and of the memory for stores; 100 is no bound of their own. The operator's own namespace is
    /// not bound in memory.
    #[arg(
        long,
        default_value = "25",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    pub namespace_share: u8,

    /// Memory that kubewarm may take, such as 512Mi; 0 is no limit. The default is the cgroup's memory limit,
    /// or no limit where there is none. 75 % is for stores with their informers, 64Ki each, 15 % for readers.
    /// A target that crosses the limit of the stores stops; the operator's own namespace comes last.
    #[arg(long, value_name = "SIZE", value_parser = commands::size)]
    pub memory_limit: Option<u64>,

    /// How many informers all profiles together may have. A target that needs more is refused.
    #[arg(long, default_value = "10000", value_name = "COUNT")]
    pub max_informers: NonZeroUsize,

    /// How many informers the profiles of one namespace may have. The operator's own namespace is not bound.
    #[arg(long, default_value = "1000", value_name = "COUNT")]
    pub namespace_informers: NonZeroUsize,

    /// How long to serve on after SIGTERM, while /readyz already says no: seconds, or such as 500ms.
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = commands::duration)]
    pub shutdown_delay: Duration,

    /// How the objects of profiles are listed.
    #[command(flatten)]
    pub lists: ListArgs,

    /// Who reads what is warm.
    #[command(flatten)]
    pub api: ApiArgs,

    /// Filter, in the syntax of `tracing` directives.
    // Directives match by prefix: `kube=warn` would silence kubewarm itself.
    #[arg(
        long,
        help_heading = "Logs",
        default_value = "info,kube_client=warn,kube_runtime=warn",
        value_name = "FILTER"
    )]
    pub log: String,

    /// How a line looks.
    #[arg(long, help_heading = "Logs", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Who reads the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAuth {
    /// A peer on this host, such as a port-forward.
    Loopback,
    /// Whoever has a bearer token that the API server knows, and may `get` the nonResourceURL /metrics;
    /// they may ask for /debug and the names of /readyz?verbose from elsewhere too, by those paths.
    Delegated,
    /// Whoever reaches the address.
    None,
}

impl RunArgs {
    /// How callers of the read API are told apart: as asked, and else in the way that takes no ClusterRole
    /// where there is none.
    #[must_use]
    pub fn auth(&self) -> Auth {
        let unasked =
            if self.watch_namespaces.is_empty() { Auth::Delegated } else { Auth::CallerToken };
        self.api.auth.unwrap_or(unasked)
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::{Auth, RunArgs};
    use crate::cli::Cli;
    use clap::{CommandFactory as _, Parser};

    #[derive(Debug, Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn reads_are_served_unless_the_address_is_empty() {
        let of = |more: &[&str]| {
            Run::try_parse_from([&["run"], more].concat()).map(|run| run.args.api.api_addr)
        };
        assert_eq!(of(&[]).unwrap(), Some("[::]:8443".parse().unwrap()));
        assert_eq!(of(&["--api-addr="]).unwrap(), None);
        assert_eq!(of(&["--api-addr", ""]).unwrap(), None);
        let auth =
            |more: &[&str]| Run::try_parse_from([&["run"], more].concat()).unwrap().args.auth();
        assert_eq!(auth(&[]), Auth::Delegated);
        assert_eq!(auth(&["--watch-namespaces=a"]), Auth::CallerToken);
        assert_eq!(auth(&["--watch-namespaces=a", "--auth=delegated"]), Auth::Delegated);
        let error = of(&["--api-addr=8443"]).unwrap_err().to_string();
        assert!(error.contains("such as [::]:8443, or '' for nowhere"), "{error}");
    }

    #[test]
    fn the_limits_of_readers_are_flags_none_of_which_is_nothing() {
        let of = |more: &[&str]| Run::try_parse_from([&["run"], more].concat());
        let limits =
            of(&["--max-requests-inflight=8", "--user-share=50"]).unwrap().args.api.limits();
        assert_eq!((limits.requests.get(), limits.user_share), (8, 50));
        for flag in [
            "max-requests-inflight",
            "max-watches",
            "max-connections",
            "address-connections",
            "user-share",
        ] {
            assert!(of(&[&format!("--{flag}=0")]).is_err(), "{flag}");
        }
        assert!(of(&["--user-share=101"]).is_err());
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
