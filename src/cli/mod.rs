//! The command line: what can be typed, and nothing of what it does.

mod api;
mod lists;
mod run;

pub use self::{
    api::{ApiArgs, Auth},
    lists::ListArgs,
    run::{LogFormat, MetricsAuth, RunArgs},
};

use crate::commands::{
    CheckArgs, CrdArgs, GetArgs, KubeconfigArgs, PLUGIN, PlanArgs, RbacArgs, StatusArgs,
    VersionArgs, WaitArgs, is_plugin, variable,
};
use clap::{Arg, CommandFactory, FromArgMatches, Parser};
use clap_complete::Shell;
use std::ffi::OsString;

/// Keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
#[derive(Debug, Parser)]
#[command(name = "kubewarm", version, disable_version_flag = true, arg_required_else_help = true)]
pub enum Cli {
    /// Run the operator.
    #[command(mut_args = with_variable)]
    Run(RunArgs),
    /// Print the CRD that belongs to this binary.
    Crd(CrdArgs),
    /// Print the Roles and bindings that profiles need, or who would gain and lose what by them.
    ///
    /// Of a file without asking any cluster; of a profile in a cluster by its spec, not its status.
    Rbac(RbacArgs),
    /// Say what profiles would cost, and which permissions they lack, before anything is watched.
    ///
    /// Of a file without asking any cluster: cells, and the least number of requests. With --live it
    /// is counted and sampled with your own permissions, of which nothing is held: objects, memory,
    /// requests for lists, the time until all is warm, and by review what is missing. At most 512
    /// requests look at a profile, and as many ask for permissions.
    Plan(PlanArgs),
    /// Show how warm profiles are.
    ///
    /// A tree with progress bars on a terminal, one line a target elsewhere. With --target one target
    /// in detail: why it is not warm, the rule that is missing, and what to run next. With -o json or yaml
    /// the status as the API server has it.
    Status(StatusArgs),
    /// Wait until a condition of a profile has a status; for init containers and scripts.
    ///
    /// The default is Ready=True. The command also waits for a profile that does not exist yet.
    Wait(WaitArgs),
    /// Say whether all is well with kubewarm and its profiles, and what to do where not.
    ///
    /// With --pre whether a cluster is fit for it. A line for each check. What you may not read is printed
    /// as `not checked`, and fails nothing. `helm test` runs this command.
    Check(CheckArgs),
    /// Read objects through the cache; with --compare say whether the API server has the same.
    Get(GetArgs),
    /// Write a kubeconfig that points a client at the read API, as the user of the present context.
    ///
    /// The user is copied as it is, with its token, client certificate or exec plugin. Without --cache-server
    /// it is for programs in the cluster; behind `kubectl port-forward service/kubewarm 8443:443` it is
    /// `--cache-server https://localhost:8443`. The certificate is that of a Secret, which takes `get` on it (or on the
    /// `ConfigMap` beside it), or of a file. No flag skips verification.
    Kubeconfig(KubeconfigArgs),
    /// Print the version.
    Version(VersionArgs),
    /// Print a script by which a shell completes commands and flags.
    ///
    /// For bash: `source <(kubewarm completion bash)`.
    Completion {
        /// Shell that reads the script.
        shell: Shell,
    },
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

/// The script by which `shell` completes commands and flags, for the name that this program was called by.
#[must_use]
pub fn script(shell: Shell) -> String {
    let called = std::env::args_os().next();
    script_of(shell, if is_plugin(called.as_ref()) { PLUGIN } else { "kubewarm" })
}

fn script_of(shell: Shell, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn command_for(called: Option<&OsString>) -> clap::Command {
    let command = Cli::command();
    if is_plugin(called) {
        return command.name(PLUGIN).bin_name("kubectl warm");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

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
        ] {
            let error = parse(&format!("kubewarm {line}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn every_command_that_prints_takes_every_format() {
        for line in [
            "status",
            "status a --target b",
            "wait a",
            "check",
            "get pods",
            "get pods --compare",
            "rbac a",
            "rbac a --diff",
            "rbac --operator",
            "plan a",
            "kubeconfig",
            "crd",
            "version",
        ] {
            for format in ["json", "yaml", "wide", "name"] {
                let line = format!("kubewarm {line} -o {format}");
                assert!(parse(&line).is_ok(), "{line}");
            }
        }
        for line in ["run", "completion bash"] {
            assert!(parse(&format!("kubewarm {line} -o json")).is_err(), "{line}");
        }
    }

    #[test]
    fn commands_have_kubectls_connection_flags_and_their_own_flags_stand_elsewhere() {
        let flags = ["kubeconfig", "context", "cluster", "user", "as", "as-group", "request-timeout"];
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let of_cluster = command.get_arguments().filter(|it| it.get_help_heading() == Some("Cluster"));
            let found: Vec<_> = of_cluster.filter_map(Arg::get_long).collect();
            match name {
                "crd" | "version" | "completion" => assert!(found.is_empty(), "{name}: {found:?}"),
                "run" => assert_eq!(found, flags[..2]),
                _ => assert_eq!(found, flags, "{name}"),
            }
        }
        assert!(parse("kubewarm status --as jane --as-group a --as-group b").is_ok());
        assert!(parse("kubewarm status --request-timeout 30s --cluster a --user b").is_ok());
        for line in ["status --as-group a", "status --request-timeout soon", "run --as jane"] {
            assert!(parse(&format!("kubewarm {line}")).is_err(), "{line}");
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

    #[test]
    fn each_shell_has_a_script_with_the_commands_and_flags() {
        for &shell in Shell::value_variants() {
            for name in ["kubewarm", PLUGIN] {
                let script = script_of(shell, name);
                for word in [name, "status", "all-namespaces"] {
                    assert!(script.contains(word), "{shell:?}: no {word} in {script}");
                }
            }
        }
    }
}
