//! Scripts by which shells complete commands and flags.

use super::{Cli, PLUGIN};
use clap::CommandFactory as _;
use clap_complete::Shell;

/// The script of `shell`, for the name that this program was called by.
#[must_use]
pub fn script(shell: Shell) -> String {
    let called = std::env::args_os().next();
    script_of(shell, if super::is_plugin(called.as_ref()) { PLUGIN } else { "kubewarm" })
}

fn script_of(shell: Shell, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

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
