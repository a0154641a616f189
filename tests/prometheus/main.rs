//! Tests the alert rules with promtool.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::{fs, path::Path, process::Command};

const RULES: &str = "charts/kubewarm/files/rules.yaml";
const TESTS: &str = "tests/rules";

/// Runs promtool in the repository's folder.
fn promtool(args: &[&str]) {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("promtool is installed: apt-get install prometheus");
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
}

#[test]
fn the_rules_pass_promtools_lint() {
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", RULES]);
}

#[test]
fn each_alert_fires_and_stays_quiet_as_its_tests_expect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(TESTS);
    let entries = fs::read_dir(folder).expect("the folder exists");
    let names = entries.map(|entry| entry.expect("it is readable").file_name());
    let files: Vec<_> = names.map(|name| format!("{TESTS}/{}", name.to_string_lossy())).collect();
    let mut args = vec!["test", "rules"];
    args.extend(files.iter().map(String::as_str));
    promtool(&args);
}
