//! The command line: what can be typed, and nothing of what it does.

mod plan;
mod rbac;

pub use self::{plan::PlanArgs, rbac::RbacArgs};

use crate::model::{is_dns_label, parse_bytes};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::{ffi::OsString, net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

/// The longest duration a flag takes. A longer one is a slip of the pen, and far below what clocks
/// can add.
const MAX_DURATION: Duration = Duration::from_hours(7 * 24);

/// Keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
#[derive(Debug, Parser)]
#[command(name = "kubewarm", version, disable_version_flag = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Run(RunArgs),
    /// Print the CRD that belongs to this binary.
    Crd,
    /// Print the Roles and bindings that profiles need, or who would gain and lose what by them.
    ///
    /// Of a file without asking any cluster; of a profile in a cluster by its spec, not its status.
    #[command(after_help = rbac::CODES)]
    Rbac(RbacArgs),
    /// Say what profiles would cost, and which permissions they lack, before anything is watched.
    ///
    /// Of a file without asking any cluster: cells, and the least number of requests. With --live it
    /// is counted and sampled with your own permissions, of which nothing is held: objects, memory,
    /// requests for lists, the time until all is warm, and by review what is missing. At most 512
    /// requests look at a profile, and as many ask for permissions.
    #[command(after_help = plan::CODES)]
    Plan(PlanArgs),
    /// Show how warm profiles are.
    ///
    /// A tree with progress bars on a terminal, one line a target elsewhere. Below a profile asked
    /// for by name stand the replicas of kubewarm, if there are several. When they were last seen is
    /// as of the last write of the status: long ago may only mean that nothing has changed.
    #[command(after_help = STATUS_CODES)]
    Status(StatusArgs),
    /// Wait until a profile is ready; for init containers and scripts.
    ///
    /// A profile that does not exist yet is waited for too.
    #[command(after_help = WAIT_CODES)]
    Wait(WaitArgs),
    /// Print the version.
    Version,
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

const STATUS_CODES: &str = "\
Exit codes:
  0  every profile shown is ready
  1  one is not ready, or there is none
  2  one can only be helped by an edit (Stalled), or the question failed";

const WAIT_CODES: &str = "\
Exit codes:
  0  ready
  1  not ready, with --timeout=0
  2  only an edit of the profile helps (Stalled), or the question failed
  3  timed out";

/// Arguments of `run`. Each can be set through the environment too.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Where the lease lives, and whose profiles may name other namespaces than their own
    /// [default: the namespace of the ServiceAccount, else kubewarm-system].
    #[arg(long, env = "KUBEWARM_OPERATOR_NAMESPACE", value_name = "NAMESPACE")]
    pub operator_namespace: Option<String>,

    /// The namespaces whose profiles are run, separated by commas: with them kubewarm needs no
    /// ClusterRole (`kubewarm rbac --operator`), and scopes beyond namespaces named one by one are
    /// refused [default: all].
    #[arg(
        long,
        env = "KUBEWARM_WATCH_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = namespace
    )]
    pub watch_namespaces: Vec<String>,

    /// Where /livez, /readyz, /metrics and /debug/cells are served.
    #[arg(long, env = "KUBEWARM_ADMIN_ADDR", default_value = "[::]:9090", value_name = "ADDRESS")]
    pub admin_addr: SocketAddr,

    /// How many first lists and relists may be under way at once, over all profiles.
    #[arg(long, env = "KUBEWARM_MAX_CONCURRENT_LISTS", default_value = "16", value_name = "COUNT")]
    pub max_concurrent_lists: NonZeroUsize,

    /// Percent that the profiles of one namespace may hold of those lists, of the probes (at least one
    /// of each), and of --memory-limit; 100 is no bound of their own. The operator's own namespace is not
    /// bound in memory.
    #[arg(
        long,
        env = "KUBEWARM_NAMESPACE_SHARE",
        default_value = "25",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    pub namespace_share: u8,

    /// Memory that all tables may take together, such as 512Mi; 0 is no limit. The default is 75 % of
    /// the cgroup's memory limit, or no limit where there is none. Beyond it the namespace that holds
    /// most has its largest profile's targets stopped, or cut down to metadata if that profile says so.
    /// The operator's own namespace comes last.
    #[arg(long, env = "KUBEWARM_MEMORY_LIMIT", value_name = "SIZE", value_parser = size)]
    pub memory_limit: Option<u64>,

    /// How long to serve on after SIGTERM, while /readyz already says no: seconds, or such as 500ms.
    #[arg(
        long,
        env = "KUBEWARM_SHUTDOWN_DELAY",
        default_value = "3s",
        value_name = "DURATION",
        value_parser = duration
    )]
    pub shutdown_delay: Duration,

    /// What to log.
    #[command(flatten)]
    pub log: LogArgs,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Which cluster is asked, as kubectl has it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// Path of a kubeconfig [default: the in-cluster files, else ~/.kube/config; KUBECONFIG counts
    /// before both].
    #[arg(long, env = "KUBEWARM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Which context of the kubeconfig [default: the current one].
    #[arg(long, env = "KUBEWARM_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

/// What is logged, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Filter, in the syntax of `tracing` directives.
    // Directives match by prefix: `kube=warn` would silence kubewarm itself.
    #[arg(
        long = "log",
        env = "KUBEWARM_LOG",
        default_value = "info,kube_client=warn,kube_runtime=warn",
        value_name = "FILTER"
    )]
    pub filter: String,

    /// How a line looks.
    #[arg(
        long = "log-format",
        env = "KUBEWARM_LOG_FORMAT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub format: LogFormat,
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

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// One profile [default: all of the namespace].
    #[arg(conflicts_with = "all_namespaces")]
    pub name: Option<String>,

    /// Where to look [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Profiles of every namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Stay, and show every change.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,

    /// Print the status as the API server has it.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// A machine's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The profile.
    pub name: String,

    /// Where it is [default: the namespace of the context].
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// What to wait for.
    #[arg(long = "for", value_name = "STATE", default_value = "ready")]
    pub until: Until,

    /// How long: seconds, or such as 90s or 5m. 0 looks once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,

    /// Which cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What `wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The condition Ready is True for the newest generation.
    Ready,
}

impl Cli {
    /// Parses the arguments of this process; prints help and errors, and ends it, by itself.
    ///
    /// Called as `kubectl-warm`, texts say `kubectl warm`.
    #[must_use]
    pub fn from_env() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let mut command = command_for(arguments.first());
        let parsed = command.try_get_matches_from_mut(&arguments);
        parsed
            .and_then(|mut matches| Self::from_arg_matches_mut(&mut matches))
            .unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// The completion script of `shell`, for the name that this process was called by.
#[must_use]
pub fn completion(shell: Shell) -> String {
    let called = std::env::args_os().next();
    let name = if is_plugin(called.as_ref()) { "kubectl-warm" } else { "kubewarm" };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn command_for(called: Option<&OsString>) -> clap::Command {
    let command = Cli::command();
    if is_plugin(called) {
        return command.name("kubectl-warm").bin_name("kubectl warm");
    }
    command
}

fn is_plugin(called: Option<&OsString>) -> bool {
    called
        .and_then(|path| std::path::Path::new(path).file_stem())
        .is_some_and(|stem| stem == "kubectl-warm" || stem == "kubectl_warm")
}

/// The name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("expected the name of a namespace: lower-case letters, digits and '-'".to_owned())
}

/// A whole number of bytes, with a unit or without.
fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| {
        "expected a whole number of bytes, or one with Ki, Mi, Gi, k, M or G such as 512Mi"
            .to_owned()
    })
}

/// Whole seconds (`90`), or a number with units (`500ms`, `5m`, `1h30m`).
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => text.parse::<jiff::SignedDuration>().ok().and_then(|d| d.try_into().ok()),
    };
    match parsed {
        None => {
            Err("expected seconds, or a number with a unit such as 500ms, 90s or 5m".to_owned())
        }
        Some(length) if length > MAX_DURATION => Err("expected at most 7 days (168h)".to_owned()),
        Some(length) => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_seconds_or_carry_units() {
        for (text, millis) in [("0", 0), ("90", 90_000), ("500ms", 500), ("1h30m", 5_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "-5s", "soon", "5 parsecs", "169h", "1e3"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_carry_units() {
        assert_eq!(["0", "512Mi", "1G"].map(size), [0, 512 << 20, 1_000_000_000].map(Ok));
        for text in ["", "-1", "1.5Gi", "much", "1Ti"] {
            assert!(size(text).is_err(), "{text}");
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

    #[test]
    fn wait_has_defaults_and_refuses_what_it_cannot_wait_for() {
        let Command::Wait(wait) = parse("kubewarm wait checkout -n shop").unwrap().command else {
            panic!("not wait");
        };
        assert_eq!((wait.until, wait.timeout), (Until::Ready, Duration::from_mins(5)));
        assert!(parse("kubewarm wait checkout --for=rv=5").is_err());
        assert!(parse("kubewarm wait").is_err());
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for line in [
            "status -A -n shop",
            "status checkout -A",
            "status -w -o json",
            "rbac",
            "plan",
            "plan checkout -f a.yaml",
        ] {
            let error = parse(&format!("kubewarm {line}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn called_as_a_plugin_the_texts_say_kubectl_warm() {
        for called in ["kubectl-warm", "/usr/local/bin/kubectl-warm", "kubectl_warm.exe"] {
            let mut command = command_for(Some(&called.into()));
            assert!(command.render_usage().to_string().contains("kubectl warm"), "{called}");
        }
        let mut command = command_for(Some(&"/bin/kubewarm".into()));
        assert!(command.render_usage().to_string().contains("kubewarm"));
    }
}
