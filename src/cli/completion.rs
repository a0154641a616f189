//! Completion: scripts for shells, and the answers to what they ask while somebody types.

use super::{Cli, ConnectionArgs, PLUGIN, file_stem};
use clap::{Command, CommandFactory as _, ValueEnum};
use clap_complete::{
    engine::{ArgValueCandidates, CompletionCandidate, complete},
    env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh},
};
use std::{env, ffi::OsString, io, path::PathBuf};

/// The variable by which a script asks; its value is the name of the shell.
const ASKS: &str = "KUBEWARM_COMPLETE";
/// What kubectl runs to complete `kubectl warm`: this program, or a link to it, by this name.
const KUBECTL_ASKS: &str = "kubectl_complete-warm";
/// Of kubectl's protocol, that of cobra: no file names, whatever else is offered.
const NO_FILES: &str = ":4\n";
/// Flags of ours that take no value; behind any other flag stands its own.
const SWITCHES: [&str; 13] = [
    "-A",
    "--all-namespaces",
    "-w",
    "--watch",
    "--diff",
    "--live",
    "--pre",
    "--operator",
    "--metrics-auth",
    "--read-api",
    "--compare",
    "--overwrite",
    "--",
];

/// A shell that scripts are printed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// `source <(kubewarm completion bash)`
    Bash,
    /// `eval (kubewarm completion elvish | slurp)`
    Elvish,
    /// `kubewarm completion fish | source`
    Fish,
    /// `kubewarm completion powershell | Out-String | Invoke-Expression`
    Powershell,
    /// `source <(kubewarm completion zsh)`
    Zsh,
}

/// What somebody has typed so far, and who wants to know how it could go on.
#[derive(Debug)]
pub struct Completion {
    words: Vec<OsString>,
    at: usize,
    asked_by: AskedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedBy {
    Shell(Shell),
    Kubectl,
}

/// What must be asked of a cluster before there is an answer.
#[derive(Clone, Debug)]
pub struct Sought {
    /// Which cluster.
    pub connection: ConnectionArgs,
    /// Where the profiles are; `None`: the namespace of the context.
    pub namespace: Option<String>,
    /// Whether their targets are wanted too, as `PROFILE/TARGET`.
    pub targets: bool,
}

/// The script by which `shell` asks this program, under the name that it was called by.
#[must_use]
pub fn script(shell: Shell) -> String {
    let called = env::args_os().next();
    script_of(shell, if super::is_plugin(called.as_ref()) { PLUGIN } else { "kubewarm" })
}

fn script_of(shell: Shell, name: &str) -> String {
    let mut script = Vec::new();
    // Nothing is written but to memory.
    let _infallible = shell.adapter().write_registration(ASKS, name, name, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

impl Shell {
    fn adapter(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Elvish => &Elvish,
            Self::Fish => &Fish,
            Self::Powershell => &Powershell,
            Self::Zsh => &Zsh,
        }
    }
}

impl Completion {
    /// Whether this process was started to complete what somebody types.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let arguments: Vec<OsString> = env::args_os().collect();
        if file_stem(arguments.first()).is_some_and(|stem| stem == KUBECTL_ASKS) {
            return Some(Self::of_kubectl(arguments));
        }
        let shell = env::var(ASKS).ok()?;
        let shell = Shell::from_str(&shell, true).ok()?;
        let at = env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
        Some(Self::of_shell(shell, arguments, at))
    }

    fn of_kubectl(mut words: Vec<OsString>) -> Self {
        if let Some(first) = words.first_mut() {
            *first = PLUGIN.into();
        }
        Self { at: words.len().saturating_sub(1).max(1), words, asked_by: AskedBy::Kubectl }
    }

    /// Behind `--` stands what was typed.
    fn of_shell(shell: Shell, arguments: Vec<OsString>, at: Option<usize>) -> Self {
        let words: Vec<_> = arguments.into_iter().skip_while(|word| word != "--").skip(1).collect();
        let at = at.unwrap_or_else(|| words.len().saturating_sub(1));
        Self { words, at, asked_by: AskedBy::Shell(shell) }
    }

    /// What to ask a cluster for; `None` if the answer does not depend on any.
    #[must_use]
    pub fn sought(&self) -> Option<Sought> {
        let words: Vec<&str> =
            self.words.iter().take(self.at).filter_map(|word| word.to_str()).collect();
        let current = self.words.get(self.at).and_then(|word| word.to_str()).unwrap_or_default();
        let (previous, typed) = words.split_last()?;
        let is_value =
            previous.starts_with('-') && !previous.contains('=') && !SWITCHES.contains(previous);
        if current.starts_with('-') || is_value || typed.is_empty() {
            return None;
        }
        let command = words.iter().skip(1).find(|word| !word.starts_with('-'))?;
        let targets = match *command {
            "status" | "wait" | "rbac" | "plan" | "check" => false,
            "explain" => true,
            _ => return None,
        };
        let value = |flags: &[&str]| {
            let mut found = None;
            for (at, word) in words.iter().enumerate() {
                if flags.contains(word) {
                    found = words.get(at + 1).map(|value| (*value).to_owned());
                }
                let joined = flags.iter().filter(|flag| flag.starts_with("--"));
                for flag in joined {
                    if let Some(value) = word.strip_prefix(flag).and_then(|it| it.strip_prefix('='))
                    {
                        found = Some(value.to_owned());
                    }
                }
            }
            found
        };
        let kubeconfig = value(&["--kubeconfig"]).map(PathBuf::from);
        Some(Sought {
            connection: ConnectionArgs {
                kubeconfig: kubeconfig
                    .or_else(|| env::var_os("KUBEWARM_KUBECONFIG").map(Into::into)),
                context: value(&["--context"]).or_else(|| env::var("KUBEWARM_CONTEXT").ok()),
            },
            namespace: value(&["-n", "--namespace"]),
            targets,
        })
    }

    /// What to print, where `names` are those of the profiles, or of their targets.
    ///
    /// # Errors
    ///
    /// If there is nothing to complete.
    pub fn answer(self, names: Vec<String>) -> io::Result<String> {
        let candidates =
            ArgValueCandidates::new(move || names.iter().map(CompletionCandidate::new).collect());
        let mut command = Cli::command();
        for (name, id) in [
            ("status", "name"),
            ("wait", "name"),
            ("rbac", "name"),
            ("plan", "name"),
            ("check", "name"),
            ("explain", "subject"),
        ] {
            let candidates = candidates.clone();
            command = command.mut_subcommand(name, move |command| {
                command.mut_arg(id, move |argument| argument.add(candidates))
            });
        }
        match self.asked_by {
            AskedBy::Shell(shell) => {
                let mut answer = Vec::new();
                let folder = env::current_dir().ok();
                let adapter = shell.adapter();
                adapter.write_complete(&mut command, self.words, folder.as_deref(), &mut answer)?;
                Ok(String::from_utf8_lossy(&answer).into_owned())
            }
            AskedBy::Kubectl => kubectl_answer(&mut command, self.words, self.at),
        }
    }
}

/// A candidate a line, with its help behind a tab.
fn kubectl_answer(command: &mut Command, words: Vec<OsString>, at: usize) -> io::Result<String> {
    let mut answer = String::new();
    for candidate in complete(command, words, at, None)? {
        answer.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            let help = help.to_string();
            answer.push('\t');
            answer.push_str(help.lines().next().unwrap_or_default());
        }
        answer.push('\n');
    }
    Ok(answer + NO_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubectl(line: &str) -> Completion {
        let words = format!("kubectl_complete-warm {line}");
        Completion::of_kubectl(words.split(' ').map(OsString::from).collect())
    }

    fn offered(line: &str, names: &[&str]) -> Vec<String> {
        let names = names.iter().map(ToString::to_string).collect();
        let answer = kubectl(line).answer(names).unwrap();
        let value = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        answer.lines().map(value).collect()
    }

    #[test]
    fn names_are_sought_where_a_profile_stands_and_nowhere_else() {
        for line in ["status ", "status -A ", "explain ch", "rbac --diff -n shop ", "wait c"] {
            assert!(kubectl(line).sought().is_some(), "{line:?}");
        }
        for line in ["", "st", "status -", "status -n ", "crd ", "wait x --timeout "] {
            assert!(kubectl(line).sought().is_none(), "{line:?}");
        }
        let sought = kubectl("explain -n shop --context=prod che").sought().unwrap();
        assert_eq!(sought.namespace.as_deref(), Some("shop"));
        assert_eq!(sought.connection.context.as_deref(), Some("prod"));
        assert!(sought.targets);
    }

    #[test]
    fn commands_flags_and_names_are_offered() {
        assert_eq!(offered("stat", &[]), ["status", ":4"]);
        assert_eq!(offered("status che", &["checkout", "orders"]), ["checkout", ":4"]);
        assert_eq!(offered("explain or", &["checkout/pods", "orders/pods"]), ["orders/pods", ":4"]);
        assert_eq!(offered("status -o ya", &[]), ["yaml", ":4"]);
        assert!(offered("status --all", &[]).contains(&"--all-namespaces".to_owned()));
    }

    #[test]
    fn each_shell_has_a_script_that_asks_this_program() {
        for &shell in Shell::value_variants() {
            for name in ["kubewarm", PLUGIN] {
                let script = script_of(shell, name);
                assert!(script.contains(ASKS) && script.contains(name), "{shell:?}: {script}");
            }
        }
    }

    #[test]
    fn what_a_shell_has_typed_stands_behind_two_dashes() {
        let arguments = ["kubewarm", "--", "kubewarm", "sta"].map(OsString::from).into();
        let completion = Completion::of_shell(Shell::Zsh, arguments, None);
        assert_eq!((completion.at, completion.words.len()), (1, 2));
    }
}
