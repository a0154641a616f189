//! What can be typed after `self-test`.

use super::{ConnectionArgs, HomeArgs, TrustArgs, value};
use clap::Args;
use std::{path::PathBuf, time::Duration};

pub(super) const CODES: &str = "\
Marks:
  ✔  as it must be
  ✗  not so
  !  works, and there is something to know
  ?  could not be looked at, and why

Exit codes:
  0  nothing is wrong
  1  something is
  2  there is no cluster to ask, or a file cannot be read";

/// Arguments of `self-test`.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = true, args = ["profile", "replicas", "operators", "rights"])]
pub struct SelfTestArgs {
    /// Wait until this profile is ready.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// Where it is [default: the namespace of the context].
    #[arg(short, long, requires = "profile")]
    pub namespace: Option<String>,

    /// Read that profile through the cache at this address of the read API, such as
    /// <https://kubewarm.kubewarm-system.svc>, and say whether it is what the API server has.
    #[arg(long, value_name = "URL", requires_all = ["profile", "reads_token_file"])]
    pub reads: Option<String>,

    /// The bearer token with which it is read.
    #[arg(long, value_name = "FILE", requires = "reads")]
    pub reads_token_file: Option<PathBuf>,

    /// Read the metrics of the operator's pods with these labels, and say whether they are as
    /// docs/metrics.md has it: format, names, labels, and how many series.
    #[arg(long, value_name = "SELECTOR")]
    pub replicas: Option<String>,

    /// The same of a replica at this admin address, such as <http://localhost:9090>.
    #[arg(long = "operator", value_name = "URL")]
    pub operators: Vec<String>,

    /// Ask the pods for their metrics over TLS.
    #[arg(long, requires = "replicas")]
    pub metrics_tls: bool,

    /// The certificate of either address.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// The metrics want a token, which is in this file; without one they must be refused.
    #[arg(long, value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,

    /// Say whether you may do all that this file grants, and nothing else: entries with `namespace`,
    /// empty for the whole cluster, and `rules` as a Role has them.
    #[arg(long, value_name = "FILE")]
    pub rights: Option<PathBuf>,

    /// How long to wait: seconds, or such as 90s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = value::duration)]
    pub timeout: Duration,

    /// Where the operator is.
    #[command(flatten)]
    pub home: HomeArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::Parser as _;

    #[test]
    fn a_self_test_is_of_something() {
        for line in ["--profile a", "--replicas a=b", "--operator http://a", "--rights a.yaml"] {
            let line = format!("kubewarm self-test {line}");
            assert!(Cli::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
        for line in ["", "--timeout 5s", "-n shop --rights a.yaml"] {
            let line = format!("kubewarm self-test {line}");
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }
}
