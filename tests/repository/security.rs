//! Tests the promises of docs/security.md: each has tests, and answers a threat of the threat
//! model.

use crate::{
    generated::assert_committed,
    security_tests::{self, TestPath, TestedPromise},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether `text` contains a test of this name, with a test attribute in the line above.
fn has_test(text: &str, name: &str) -> bool {
    let mut above = "";
    for line in text.lines().map(str::trim) {
        let signature = line.strip_prefix("async ").unwrap_or(line);
        let is_it = signature
            .strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('));
        let attribute = above.split('(').next().unwrap_or_default().trim_end_matches(']');
        if is_it && ["#[test", "#[tokio::test", "#[actix_web::test"].contains(&attribute) {
            return true;
        }
        above = line;
    }
    false
}

#[test]
fn the_list_of_tests_is_up_to_date() {
    assert_committed("docs/security-tests.md", &security_tests::markdown());
}

#[test]
fn each_rule_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("it is readable");
    let tested = security_tests::tested_promises();
    let names: Vec<_> = tested.iter().map(|promise| promise.name).collect();
    assert_eq!(rules(&page), names, "left: rules of docs/security.md; right: rules with tests");
    assert!(names.len() > 10, "the table was not found");
    let mut missing = Vec::new();
    for TestedPromise { name: rule, tests } in tested {
        if !(1..=3).contains(&tests.len()) {
            missing.push(format!("{rule}: name one to three tests"));
        }
        for TestPath { file, name } in tests {
            let text = fs::read_to_string(root().join(file)).unwrap_or_default();
            if !has_test(&text, name) {
                missing.push(format!("{rule}: {file} has no test {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The beginning of each row of the table in docs/security.md.
const ROW: &str = "| **Promise ";

/// The names of the promises in docs/security.md, such as `Identity 1`.
fn rules(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix(ROW));
    let named = rows.filter_map(|row| row.split_once(".**"));
    named.map(|(name, _)| name).collect()
}

#[test]
fn each_promise_names_its_attackers_in_at_most_25_words() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("it is readable");
    let model = fs::read_to_string(root().join("THREAT_MODEL.md")).expect("it is readable");
    let trust = model.split_once("\n## Trust\n").expect("it has actors").1;
    let table = trust.split("\n## ").next().unwrap_or_default();
    let actor = |row: &str| {
        let actor = row.strip_prefix("| ")?.split([':', '|']).next()?;
        Some(actor.trim().to_owned())
    };
    let actors: BTreeSet<_> = table.lines().filter_map(actor).skip(1).collect();
    for row in page.lines().filter_map(|line| line.strip_prefix(ROW)) {
        let (name, rest) = row.trim_end_matches(" |").split_once(".** ").expect("it has a name");
        let columns: Vec<_> = rest.split(" | ").collect();
        let [promise, attackers, mechanism] = columns[..] else {
            panic!("{name}: a promise, its attackers and a mechanism are needed: {columns:?}")
        };
        let (label, attackers) = attackers.split_once(": ").expect("the attackers have a label");
        assert!(["Attacker", "Cause"].contains(&label), "{name}: {label:?}");
        for attacker in attackers.split(" or ") {
            let attacker = attacker.trim_start_matches("a ").trim_start_matches("an ");
            assert!(actors.contains(attacker), "{name}: {attacker:?} is no actor: {actors:?}");
        }
        let words = [promise, mechanism].into_iter().flat_map(str::split_whitespace);
        let count = words.filter(|word| word.contains(char::is_alphanumeric)).count();
        assert!(count <= 25, "{name}: {count} words: {rest}");
    }
}

#[test]
fn known_attacks_on_other_projects_are_covered_by_rules() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("it is readable");
    let known: BTreeSet<_> = rules(&page).into_iter().collect();
    let list = page.split_once("\n## Precedents\n").expect("a list").1;
    let items: Vec<_> = list.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(items.len() > 10, "{items:?}");
    for item in items {
        let named = item.rsplit_once(": ").expect("it names rules").1;
        for rule in named.split(", ") {
            assert!(known.contains(rule), "{rule:?} is no rule: {item}");
        }
    }
}

#[test]
fn each_threat_is_explained_and_has_rules_and_each_rule_has_a_threat() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("it is readable");
    let model = fs::read_to_string(root().join("THREAT_MODEL.md")).expect("it is readable");
    let rules = rules(&page);
    let known: BTreeSet<_> = rules.iter().copied().collect();
    assert_eq!(known.len(), rules.len(), "two rules have one name: {rules:?}");
    let threats = model.split_once("\n## Threats\n").expect("it has threats").1;
    let table = threats.split("\n## ").next().unwrap_or_default();
    let mut answered = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let columns = row.trim_start_matches("| ").trim_end_matches(" |").split_once(" | ");
        let (promise, controls) = columns.expect("it has two columns");
        let words = promise.split_whitespace().count();
        assert!((8..=25).contains(&words), "{words} words: {promise}");
        let (label, controls) = controls.split_once(' ').expect("the promises have a label");
        assert_eq!(label, if controls.contains(", ") { "Promises" } else { "Promise" }, "{row}");
        for control in controls.split(", ") {
            assert!(known.contains(control), "{control:?} is no rule: {row}");
            answered.insert(control);
        }
    }
    assert_eq!(answered, known, "left: rules that threats name; right: all rules");
}

/// A section of a TOML file with simple headers and entries, without its header.
fn section<'a>(text: &'a str, header: &str) -> &'a str {
    let from = text.split_once(&format!("\n{header}\n")).map_or("", |(_, rest)| rest);
    from.split("\n[").next().unwrap_or_default()
}

#[test]
fn every_build_script_was_reviewed() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("it is readable");
    let rules = read("deny.toml");
    assert!(section(&rules, "[sources]").contains("unknown-registry = \"deny\""));
    assert!(section(&rules, "[sources]").contains("unknown-git = \"deny\""));
    assert!(section(&rules, "[bans]").contains("\"openssl-sys\""));
    assert!(rules.contains("[licenses]"));
    let makefile = read("Makefile");
    let recipes = makefile.lines().filter(|line| line.starts_with('\t'));
    let checks: Vec<_> = recipes
        .filter(|line| {
            ["cargo clippy", "cargo doc", "tests/deny.sh"]
                .iter()
                .any(|command| line.contains(command))
        })
        .collect();
    assert!(checks.contains(&"\ttests/deny.sh"), "no check uses deny.toml: {checks:?}");
    for command in checks.iter().filter(|line| line.contains("cargo ")) {
        assert!(command.contains("--locked"), "{command}");
    }
    assert!(
        section(&read("Cargo.toml"), "[workspace.lints.rust]").contains("unsafe_code = \"forbid\"")
    );
    for manifest in ["Cargo.toml", "tests/testbed/Cargo.toml", "benches/harness/Cargo.toml"] {
        assert!(section(&read(manifest), "[lints]").contains("workspace = true"), "{manifest}");
    }
    for package in read("Cargo.lock").split("[[package]]").skip(1) {
        let Some(source) = package.lines().find_map(|line| line.strip_prefix("source = ")) else {
            continue;
        };
        let from = source.trim_matches('"');
        assert_eq!(from, "registry+https://github.com/rust-lang/crates.io-index", "{package}");
        assert!(package.contains("\nchecksum = "), "{package}");
    }
}

#[test]
fn only_functions_with_a_test_attribute_are_tests() {
    let text = "#[test]\nfn one() {}\n    #[tokio::test(start_paused = true)]\n    \
                async fn two() {}\nfn three() {}\n// fn four()\n#[test]\nfn five_and_more() {}\n";
    for (name, is_one) in [("one", true), ("two", true), ("three", false), ("five", false)] {
        assert_eq!(has_test(text, name), is_one, "{name}");
    }
}

#[test]
fn only_the_operator_may_write_statuses() {
    let mut files = Vec::new();
    let mut folders = vec![root().join("deploy"), root().join("charts")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is readable") {
            let path: PathBuf = entry.expect("it is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| grants_status(&text)) {
                let path = path.strip_prefix(root()).expect("found below");
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    let expected = [
        "charts/kubewarm/files/operator.yaml",
        "deploy/operator-rbac-namespaces.yaml",
        "deploy/operator-rbac.yaml",
        "deploy/operator.yaml",
    ];
    assert_eq!(files, expected);
}

/// Whether a manifest grants access to the statuses of profiles, by name or with a wildcard.
fn grants_status(text: &str) -> bool {
    // A FlowSchema names resources too, but grants no access.
    if text.contains("kind: FlowSchema") {
        return false;
    }
    let rules = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    rules.filter(|line| !line.contains("apiVersions")).any(|line| {
        line.contains("cacheprofiles/status") || line.contains("'*'") || line.contains("\"*\"")
    })
}
