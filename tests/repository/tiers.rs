//! Tests that each test program is in exactly one tier of docs/testing.md.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The variables of the Makefile with the programs of each tier.
const TIERS: [&str; 3] = ["CHECK_PROGRAMS", "TEST_PROGRAMS", "SLOW_PROGRAMS"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn makefile() -> String {
    fs::read_to_string(root().join("Makefile")).expect("it is readable")
}

/// The value of a variable of the Makefile.
fn variable<'a>(makefile: &'a str, name: &str) -> &'a str {
    let start = format!("{name} := ");
    makefile.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default()
}

/// The recipe of a target of the Makefile.
fn recipe(makefile: &str, target: &str) -> String {
    let start = format!("{target}:");
    let lines = makefile.lines().skip_while(|line| !line.starts_with(&start));
    let recipe = lines.skip(1).take_while(|line| line.starts_with('\t'));
    recipe.collect::<Vec<_>>().join("\n")
}

/// The folders of the workspace's packages.
fn packages() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("it is readable");
    let crates = crates.map(|entry| entry.expect("it is readable").path());
    let others = [".", "tests/testbed", "benches/harness"].map(|package| root().join(package));
    crates.chain(others).collect()
}

/// The test programs that Cargo finds: files of a `tests` folder, and folders with a `main.rs`.
fn programs() -> Vec<String> {
    let folders: Vec<_> = packages().iter().map(|package| package.join("tests")).collect();
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = entries.map(|entry| entry.expect("it is readable").path());
    paths.filter_map(|path| program(&path)).collect()
}

fn program(path: &Path) -> Option<String> {
    let is_file = path.extension().is_some_and(|extension| extension == "rs");
    let is_program = is_file || path.join("main.rs").is_file();
    // Folders of Go modules and of packages of the workspace are no test programs.
    let is_other = [PathBuf::from("go.mod"), PathBuf::from("Cargo.toml")];
    let is_other = is_other.iter().any(|file| path.join(file).exists());
    let name = path.file_stem()?.to_string_lossy().into_owned();
    (is_program && !is_other).then_some(name)
}

#[test]
fn each_test_program_is_in_exactly_one_tier() {
    let makefile = makefile();
    let mut tiers: BTreeMap<String, Vec<&str>> =
        programs().into_iter().map(|name| (name, Vec::new())).collect();
    assert!(tiers.len() > 5, "the programs were not found: {tiers:?}");
    for tier in TIERS {
        for name in variable(&makefile, tier).split_whitespace() {
            tiers.entry(name.to_owned()).or_default().push(tier);
        }
    }
    tiers.retain(|_, tiers| tiers.len() != 1);
    assert!(tiers.is_empty(), "programs that are not in exactly one tier: {tiers:?}");
}

/// The Makefile splits the tests of `e2e` into two tiers by their path: tests in `slow` run only
/// with `make test-all`.
#[test]
fn the_end_to_end_tests_are_split_by_path() {
    let makefile = makefile();
    assert!(recipe(&makefile, "test").contains("--skip slow::"), "make test runs slow tests");
    assert!(recipe(&makefile, "slow").contains("--test e2e slow::"), "no target runs slow tests");
}

/// Some node tests need registries that `make test-all` does without.
#[test]
fn the_node_tests_are_split_by_path() {
    let makefile = makefile();
    assert!(recipe(&makefile, "slow").contains("--skip workloads::"), "make slow runs workloads");
    assert!(recipe(&makefile, "workloads").contains("--test node workloads::"), "none runs them");
}

#[test]
fn each_tier_contains_the_one_before() {
    let makefile = makefile();
    for (tier, before) in [("test", "check"), ("test-all", "test")] {
        let start = format!("{tier}: ");
        let line = makefile.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
        let needs = line.split("##").next().unwrap_or_default();
        assert!(needs.split_whitespace().any(|target| target == before), "{tier} lacks {before}");
    }
}
