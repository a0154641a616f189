//! Definition of the commands and flags. The `commands` and `app` modules run them.

mod api;
mod certificate;
mod lists;
mod run;

pub use self::{
    api::{CallerAuthMode, CallerAuthorizationMode, ReadApiArgs},
    certificate::CertificateArgs,
    lists::ListArgs,
    run::{LogFormat, MetricsAuth, RunArgs},
};

use crate::commands::{
    CheckArgs, CrdArgs, ForwardedArgs, GetArgs, InjectArgs, KubeconfigArgs, PLUGIN, PlanArgs,
    ProfileArgs, RbacArgs, RotateCaArgs, StatusArgs, VersionArgs, WaitArgs, is_plugin, variable,
};
use clap::{Arg, CommandFactory, FromArgMatches, Parser};
use clap_complete::Shell;
use std::ffi::OsString;

/// Keep Kubernetes resources in memory and serve reads from memory.
#[derive(Debug, Parser)]
#[command(name = "kubewarm", version, disable_version_flag = true, arg_required_else_help = true)]
pub enum Cli {
    /// Run the operator.
    #[command(mut_args = with_variable)]
    Run(RunArgs),
    /// Print the CRD of this version.
    Crd(CrdArgs),
    /// Print the RBAC manifests that profiles need, or with --diff the permissions that the
    /// manifests change.
    ///
    /// With -f alone the command needs no cluster. For a profile in a cluster the command reads the
    /// spec, not the status.
    Rbac(RbacArgs),
    /// Print a profile of the kinds that a ServiceAccount may list and watch.
    ///
    /// The command impersonates the ServiceAccount to review its rules, and lists RoleBindings to
    /// find its namespaces. The profile omits Leases and Events.
    Profile(ProfileArgs),
    /// Estimate what profiles cost and which permissions they lack.
    ///
    /// With -f alone the command needs no cluster: it prints informers and a lower bound of
    /// requests. A sample of the cluster, taken with your permissions, adds objects, memory, list
    /// requests, time to warm and missing permissions. Each profile takes at most 512 requests and
    /// 512 access reviews.
    Plan(PlanArgs),
    /// Show whether profiles are warm and fresh.
    ///
    /// A terminal gets a tree with progress bars, other outputs get one line per target. With
    /// --target the command explains one target: conditions, problems, the missing RBAC rule and
    /// the next command. Without --target, -o json and yaml print the status from the API server.
    Status(StatusArgs),
    /// Wait for a condition of a profile, in init containers and scripts.
    ///
    /// The profile does not have to exist yet.
    Wait(WaitArgs),
    /// Check kubewarm and its profiles, and print the next step for each problem.
    ///
    /// Checks that you have no permission for do not fail. `helm test` runs this command.
    Check(CheckArgs),
    /// Print the kinds that kubewarm forwards because no profile declares the requested objects.
    ///
    /// Only `run --forward` forwards such reads. The command prints the sums of all ready replicas
    /// since their starts, by kind and user. A replica keeps at most 256 pairs of a kind and a
    /// user. The first rows cost the API server the most lists and watches: declare their kinds in
    /// a profile. The command opens a port-forward to each ready pod.
    Forwarded(ForwardedArgs),
    /// Let the pods of a workload read from kubewarm instead of the API server.
    ///
    /// The pods need no other image or configuration: they get an alias of the API server's host
    /// name, and kubewarm's CA. kubewarm answers reads of declared kinds, and forwards all other
    /// requests. Without --apply the command prints the label of the namespace, the profile, its
    /// grants and the workload, and changes nothing. kubewarm must run with `--inject` and
    /// `--forward`.
    Inject(InjectArgs),
    /// Replace the CA that signs kubewarm's certificate, at once.
    ///
    /// Only with `run --certificate-secret`. kubewarm uses the next CA, or creates one. Clients
    /// without this CA fail until they read the `ConfigMap` again. The command needs `patch` on the
    /// Secret and `get` on the `ConfigMap`, and to name pods also `list` on namespaces and pods.
    /// The `ConfigMap` contains at most 8 CAs, and old CAs stay until they expire.
    RotateCa(RotateCaArgs),
    /// Read objects from the cache, or with --compare compare them with the API server.
    Get(GetArgs),
    /// Write a kubeconfig for the read API, with the user of the current context.
    ///
    /// The command copies the user's token, client certificate or exec plugin. Clients always
    /// verify the certificate of the read API.
    Kubeconfig(KubeconfigArgs),
    /// Print the versions of this program, of the operator and of Kubernetes.
    Version(VersionArgs),
    /// Print a completion script for a shell.
    ///
    /// For bash: `source <(kubewarm completion bash)`.
    Completion {
        /// Shell of the script.
        shell: Shell,
    },
}

impl Cli {
    /// Parses the arguments of this process. For `--help` and for usage errors it prints a text and
    /// ends the process.
    ///
    /// If the program file is `kubectl-warm`, the printed texts name the command `kubectl warm`.
    pub fn from_env() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let mut command = command_for(arguments.first());
        let parsed = command.try_get_matches_from_mut(&arguments);
        parsed
            .and_then(|mut matches| Self::from_arg_matches_mut(&mut matches))
            .unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// Adds an environment variable, such as `KUBEWARM_ADMIN_ADDR`, to a flag of `run`.
fn with_variable(flag: Arg) -> Arg {
    match flag.get_long().map(variable) {
        Some(name) => flag.env(name),
        None => flag,
    }
}

/// Returns the environment variables of this process that begin with `KUBEWARM_` but belong to no
/// flag, such as the variable of a flag that was renamed.
pub fn unknown_variables() -> Vec<String> {
    unknown_among(std::env::vars_os().map(|(name, _)| name))
}

fn unknown_among(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let cli = Cli::command();
    let flags = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    let known: Vec<_> = flags.filter_map(Arg::get_env).collect();
    let is_unknown = |name: &OsString| !known.contains(&name.as_os_str());
    let unknown = names.filter(is_unknown).filter_map(|name| name.into_string().ok());
    unknown.filter(|name| name.starts_with("KUBEWARM_")).collect()
}

/// Returns the completion script of `shell`. The script completes the command with the name of the
/// program file, `kubewarm` or `kubectl-warm`.
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
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn conflicting_flags_are_usage_errors() {
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
    fn every_printing_command_accepts_every_output_format() {
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
    fn commands_have_kubectls_connection_flags_under_one_heading() {
        let flags =
            ["kubeconfig", "context", "cluster", "user", "as", "as-group", "request-timeout"];
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let of_cluster = command
                .get_arguments()
                .filter(|argument| argument.get_help_heading() == Some("Cluster"));
            let long_flags: Vec<_> = of_cluster.filter_map(Arg::get_long).collect();
            match name {
                "crd" | "completion" => assert!(long_flags.is_empty(), "{name}: {long_flags:?}"),
                "run" => assert_eq!(long_flags, flags[..2]),
                _ => assert_eq!(long_flags, flags, "{name}"),
            }
        }
        assert!(parse("kubewarm status --as jane --as-group a --as-group b").is_ok());
        assert!(parse("kubewarm status --request-timeout 30s --cluster a --user b").is_ok());
        for line in [
            "status --as-group a",
            "status --as=",
            "status --request-timeout soon",
            "run --as jane",
        ] {
            assert!(parse(&format!("kubewarm {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn every_command_rejects_an_invalid_operator_namespace() {
        for line in ["run", "plan a", "rbac a", "check"] {
            let line = |name| format!("kubewarm {line} --operator-namespace {name}");
            assert!(parse(&line("ops")).is_ok(), "{}", line("ops"));
            let error = parse(&line("Ops")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{}", line("Ops"));
        }
    }

    #[test]
    fn only_variables_without_a_flag_are_unknown() {
        let names = [
            "KUBEWARM_NAMESPACE_SHARE",
            "KUBEWARM_NAMESPACE_QUOTA",
            "KUBEWARM_CACHE_SERVER",
            "HOME",
        ];
        let unknown = unknown_among(names.into_iter().map(OsString::from));
        assert_eq!(unknown, ["KUBEWARM_NAMESPACE_SHARE"]);
    }

    #[test]
    fn texts_of_the_plugin_name_the_command_kubectl_warm() {
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
    fn completion_scripts_contain_commands_and_flags() {
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
