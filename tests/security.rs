//! The rules of docs/security.md: each names its tests, and they exist.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether `text` has a test of this name: an attribute right above it says that it is one.
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
fn each_rule_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("it is readable");
    let rules: Vec<_> = page.lines().filter(|line| line.starts_with("| **")).collect();
    assert!(rules.len() > 10, "the table was not found");
    let mut missing = Vec::new();
    for rule in rules {
        let (rule, tests) =
            rule.trim_end_matches(" |").rsplit_once(" | ").expect("it has two columns");
        let tests: Vec<_> = tests.split('`').filter(|part| !part.trim().is_empty()).collect();
        if tests.is_empty() {
            missing.push(format!("no test: {rule}"));
        }
        for test in tests {
            let (path, name) = test.split_once(' ').expect("a file and a test");
            let text = fs::read_to_string(root().join(path)).unwrap_or_default();
            if !has_test(&text, name) {
                missing.push(format!("{path} has no test {name}: {rule}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_test_is_known_by_its_attribute() {
    let text = "#[test]\nfn one() {}\n    #[tokio::test(start_paused = true)]\n    \
                async fn two() {}\nfn three() {}\n// fn four()\n#[test]\nfn five_and_more() {}\n";
    for (name, is_one) in [("one", true), ("two", true), ("three", false), ("five", false)] {
        assert_eq!(has_test(text, name), is_one, "{name}");
    }
}

#[test]
fn only_the_operator_may_write_statuses() {
    let mut found = Vec::new();
    let mut folders = vec![root().join("deploy"), root().join("charts")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is readable") {
            let path: PathBuf = entry.expect("it is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| grants_status(&text)) {
                let path = path.strip_prefix(root()).expect("found below");
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    let expected = [
        "charts/kubewarm/files/operator.yaml",
        "deploy/operator-rbac-namespaces.yaml",
        "deploy/operator-rbac.yaml",
        "deploy/operator.yaml",
    ];
    assert_eq!(found, expected);
}

/// Whether a manifest has a rule about statuses, by name or by a wildcard.
fn grants_status(text: &str) -> bool {
    // That one says at whose cost a request is, and allows nothing.
    if text.contains("kind: FlowSchema") {
        return false;
    }
    let rules = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    rules.filter(|line| !line.contains("apiVersions")).any(|line| {
        line.contains("cacheprofiles/status") || line.contains("'*'") || line.contains("\"*\"")
    })
}
