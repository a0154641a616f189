//! The rules and the dashboard: sound, tested, documented, and made of metrics that exist.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may panic and say why"
)]

mod dashboard;
mod names;
mod promql;
mod rules;

use std::{env, fs, io::ErrorKind, path::Path, process::Command};

/// A file of the repository.
fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs promtool in the repository; what it prints if it finds fault.
fn promtool(args: &[&str]) {
    let mut command = Command::new("promtool");
    let output = match command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let missing = "promtool is missing: apt-get install prometheus";
            assert!(env::var_os("CI").is_none(), "{missing}");
            eprintln!("not checked: {missing}");
            return;
        }
        output => output.expect("promtool starts"),
    };
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
