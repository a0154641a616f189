//! The command line: what can be typed, and nothing of what it does.

mod api;
mod cache;
mod check;
mod completion;
mod get;
mod kubeconfig;
mod plan;
mod rbac;
mod run;
mod spec;
mod status;
mod value;
mod wait;

pub use self::{
    api::{ApiArgs, Auth},
    cache::CacheArgs,
    check::CheckArgs,
    completion::script,
    get::{Form, GetArgs},
    kubeconfig::KubeconfigArgs,
    plan::PlanArgs,
    rbac::RbacArgs,
    run::{LogArgs, LogFormat, MetricsAuth, RunArgs},
    spec::{OperatorArgs, SpecArgs},
    status::{Output, StatusArgs},
    wait::WaitArgs,
};

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The name of the program as kubectl's plugin.
const PLUGIN: &str = "kubectl-warm";

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
    #[command(mut_args = with_variable)]
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
    /// A tree with progress bars on a terminal, one line a target elsewhere. With --target one target
    /// in detail: why it is not warm, the rule that is missing, and what to run next.
    #[command(after_help = status::CODES)]
    Status(StatusArgs),
    /// Wait until a profile is ready; for init containers and scripts.
    ///
    /// A profile that does not exist yet is waited for too.
    #[command(after_help = wait::CODES)]
    Wait(WaitArgs),
    /// Say whether all is well with kubewarm and its profiles, and what to do where not.
    ///
    /// With --pre whether a cluster is fit for it. A line for each check. What you may not read is printed
    /// as `not checked`, and fails nothing. `helm test` runs this command.
    #[command(after_help = check::CODES)]
    Check(CheckArgs),
    /// Read objects through the cache; with --compare say whether the API server has the same.
    #[command(after_help = get::CODES)]
    Get(GetArgs),
    /// Write a kubeconfig that points a client at the read API, as the user of the present context.
    ///
    /// The user is copied as it is, with its token, client certificate or exec plugin. Without --server it
    /// is for programs in the cluster; behind `kubectl port-forward service/kubewarm 8443:443` it is
    /// `--server https://localhost:8443`. The certificate is that of a Secret, which takes `get` on it (or on the
    /// `ConfigMap` beside it), or of a file. No flag skips verification.
    Kubeconfig(KubeconfigArgs),
    /// Print the version.
    Version,
    /// Print a script by which a shell completes commands and flags.
    ///
    /// For bash: `source <(kubewarm completion bash)`.
    Completion {
        /// Shell that reads the script.
        shell: clap_complete::Shell,
    },
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

/// Where the operator is, for commands that cannot know it.
#[derive(Clone, Debug, Args)]
pub struct HomeArgs {
    /// The namespace of the operator: profiles there may name other namespaces than their own.
    #[arg(
        long,
        env = "KUBEWARM_OPERATOR_NAMESPACE",
        default_value = "kubewarm-system",
        value_name = "NAMESPACE",
        value_parser = value::namespace
    )]
    pub operator_namespace: String,
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

/// Gives a flag of `run` its environment variable.
fn with_variable(flag: Arg) -> Arg {
    match flag.get_long().map(variable) {
        Some(name) => flag.env(name),
        None => flag,
    }
}

/// The environment variable of a flag of `run`: `KUBEWARM_ADMIN_ADDR` of `admin-addr`.
pub(crate) fn variable(flag: &str) -> String {
    format!("KUBEWARM_{}", flag.to_uppercase().replace('-', "_"))
}

/// What whoever called this process types for it: `kubewarm`, or `kubectl warm`.
#[must_use]
pub fn program() -> &'static str {
    let called = std::env::args_os().next();
    if is_plugin(called.as_ref()) { "kubectl warm" } else { "kubewarm" }
}

/// `text`, where commands between backticks are written as whoever called this process types them.
#[must_use]
pub fn as_called(text: &str) -> String {
    text.replace("`kubewarm ", &format!("`{} ", program()))
}

/// What `line` asks for, for tests of those who are asked.
#[cfg(test)]
pub(crate) fn parsed(line: &str) -> Command {
    Cli::parse_from(line.split_whitespace()).command
}

fn command_for(called: Option<&OsString>) -> clap::Command {
    let command = Cli::command();
    if is_plugin(called) {
        return command.name(PLUGIN).bin_name("kubectl warm");
    }
    command
}

fn is_plugin(called: Option<&OsString>) -> bool {
    let stem = called.and_then(|path| Path::new(path).file_stem());
    stem.is_some_and(|stem| stem == PLUGIN || stem == "kubectl_warm")
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
    fn contradictions_are_usage_errors() {
        for line in [
            "status -A -n shop",
            "status checkout -A",
            "status -w -o json",
            "rbac",
            "plan",
            "plan checkout -f a.yaml",
            "check checkout --pre",
            "status --target pods",
            "status checkout --target pods -w",
            "status checkout --target pods -o json",
        ] {
            let error = parse(&format!("kubewarm {line}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn every_command_refuses_what_cannot_be_the_operators_namespace() {
        for line in ["run", "plan a", "rbac a", "check"] {
            let line = |name| format!("kubewarm {line} --operator-namespace {name}");
            assert!(parse(&line("ops")).is_ok(), "{}", line("ops"));
            let error = parse(&line("Ops")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{}", line("Ops"));
        }
    }

    #[test]
    fn called_as_a_plugin_the_texts_say_kubectl_warm() {
        for called in ["kubectl-warm", "/usr/local/bin/kubectl-warm", "kubectl_warm.exe"] {
            let mut command = command_for(Some(&called.into()));
            assert!(command.render_usage().to_string().contains("kubectl warm"), "{called}");
        }
        let mut command = command_for(Some(&PLUGIN.into()));
        let error = command.try_get_matches_from_mut([PLUGIN, "wait"]).unwrap_err().to_string();
        assert!(error.contains("Usage: kubectl warm wait"), "{error}");
        let mut command = command_for(Some(&"/bin/kubewarm".into()));
        assert!(command.render_usage().to_string().contains("kubewarm"));
    }
}
