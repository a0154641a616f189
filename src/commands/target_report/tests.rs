use super::{
    super::{
        fixtures,
        report::{ReportFormat, TerminalLayout, render},
    },
    *,
};
use serde_json::json;

fn warming() -> CacheProfile {
    let mut profile = fixtures::warming();
    profile.spec = serde_json::from_value(json!({
        "serviceAccountName": "cache-reader",
        "targets": [
            {"name": "pods", "resource": "pods"},
            {
                "name": "deployments",
                "group": "apps", "resource": "deployments",
                "scope": {"type": "Namespaces", "namespaces": ["shop", "orders", "payments", "stock"]},
            },
        ],
    }))
    .unwrap();
    let access = profile.status.as_mut().unwrap().access.as_mut().unwrap();
    access.manifests = Some(
        "kind: Role\nmetadata: {name: 'kubewarm:shop:orders', namespace: shop}\nrules:\n\
         - {apiGroups: [apps], resources: [deployments], verbs: [list, watch]}\n"
            .to_owned(),
    );
    profile
}

fn printed(profile: &CacheProfile, name: &str, width: usize) -> String {
    let report = target(profile, name, "NAMESPACE", fixtures::now()).unwrap();
    render(&report, ReportFormat::Text(TerminalLayout { width, ..TerminalLayout::default() }))
        .unwrap()
}

#[test]
fn a_target_is_printed_with_its_problems_and_the_missing_rule() {
    let text = printed(&warming(), "deployments", 100);
    assert_eq!(text, include_str!("status.golden"), "printed:\n{text}");
}

#[test]
fn control_characters_in_problems_of_a_target_are_escaped() {
    let mut profile = warming();
    let targets = &mut profile.status.as_mut().unwrap().targets;
    let target = targets.iter_mut().find(|target| target.name == "deployments").unwrap();
    target.problems[0].message = Some("\u{1b}[2Jforbidden".to_owned());
    target.conditions[0].message = "\u{1b}]0;title\u{7}".to_owned();
    let text = printed(&profile, "deployments", 100);
    assert!(text.contains(r"\u{1b}[2Jforbidden"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
}

#[test]
fn a_profile_without_a_status_gets_the_check_command() {
    let text = printed(&fixtures::untouched(), "pods", 100);
    assert_eq!(
        text,
        "new -n shop --target pods  no status yet: is the operator running?\n    kubewarm check\n"
    );
}

#[test]
fn only_the_status_of_the_newest_generation_counts() {
    let mut profile = fixtures::ready();
    let verdict = |profile: &CacheProfile, name| {
        target(profile, name, "NAMESPACE", fixtures::now()).unwrap().verdict
    };
    assert_eq!(verdict(&profile, "pods"), CommandExitCode::Good);
    profile.metadata.generation = Some(3);
    assert_eq!(verdict(&profile, "pods"), CommandExitCode::Bad);
    assert_eq!(verdict(&warming(), "deployments"), CommandExitCode::Bad);
}

#[test]
fn a_missing_target_is_an_error_that_lists_the_others() {
    let error = target(&fixtures::ready(), "nodes", "NAMESPACE", fixtures::now()).unwrap_err();
    assert_eq!(error.to_string(), "CacheProfile checkout -n shop has no target nodes; it has pods");
}

#[test]
fn every_line_fits_except_commands_and_rules_to_copy() {
    let profile = warming();
    for width in 40..120 {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_text = |line: &&str| !(4..14).contains(&indent(line));
        for line in printed(&profile, "deployments", width).lines().filter(is_text) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
