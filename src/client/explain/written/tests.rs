use super::{
    super::super::{cells::LastError, paint::Colour, sample},
    *,
};
use serde_json::json;

/// The target `deployments` of a profile that lacks a watch in one of four namespaces.
fn warming() -> CacheProfile {
    let mut profile = sample::warming();
    profile.spec = serde_json::from_value(json!({
        "serviceAccountName": "cache-reader",
        "targets": [
            {"name": "pods", "resource": {"resource": "pods"}},
            {
                "name": "deployments",
                "resource": {"group": "apps", "resource": "deployments"},
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

fn told(story: &Story<'_>, target: &str) -> String {
    story.of(target).iter().map(|line| line.paint(0, Colour::Off)).collect()
}

fn story<'a>(profile: &'a CacheProfile, cells: Option<&'a [Cell]>) -> Story<'a> {
    Story { profile, cells, width: 100, now: sample::now(), program: "kubewarm" }
}

fn cell(namespace: &str, error: Option<LastError>) -> Cell {
    Cell {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        scope: "Namespace".to_owned(),
        namespace: Some(namespace.to_owned()),
        service_account: Some("shop/cache-reader".to_owned()),
        state: if error.is_some() { "Failing" } else { "Watching" }.to_owned(),
        since: Some("2026-03-01T11:58:55Z".parse().unwrap()),
        next_retry: error.as_ref().map(|_| "2026-03-01T12:00:12Z".parse().unwrap()),
        objects: if error.is_some() { 0 } else { 300 },
        last_error: error,
        ..Cell::default()
    }
}

#[test]
fn a_target_is_told_with_its_problems_and_the_missing_rule() {
    let profile = warming();
    let told = told(&story(&profile, None), "deployments");
    assert_eq!(told, include_str!("status.golden"), "told:\n{told}");
}

#[test]
fn a_replica_adds_attempts_and_the_next_try_of_each_cell() {
    let profile = warming();
    let error = LastError {
        reason: "Forbidden".to_owned(),
        verb: "watch".to_owned(),
        message: "deployments.apps is \u{1b}[2Jforbidden".to_owned(),
        since: Some("2026-03-01T11:59:00Z".parse().unwrap()),
        attempts: 5,
    };
    let slow = LastError {
        reason: "TimedOut".to_owned(),
        verb: "list".to_owned(),
        message: "no answer within 10 s".to_owned(),
        ..error.clone()
    };
    let refused = cell("shop", Some(LastError { attempts: 1, ..error }));
    let refused = Cell { state: "Fenced".to_owned(), next_retry: None, ..refused };
    let cells = [cell("orders", None), refused, cell("stock", Some(slow)), cell("elsewhere", None)];
    let told = told(&story(&profile, Some(&cells)), "deployments");
    let cells: Vec<_> = told.lines().skip_while(|line| !line.contains("  cell  ")).collect();
    let cells = cells.join("\n") + "\n";
    assert_eq!(cells, include_str!("cells.golden"), "told:\n{cells}");
}

#[test]
fn what_nobody_has_looked_at_is_not_explained() {
    let profile = sample::untouched();
    let told = told(&story(&profile, None), "pods");
    assert_eq!(
        told,
        "shop/new/pods  no status yet: is the operator running?\n    kubewarm check\n"
    );
}

#[test]
fn every_line_but_what_is_to_be_copied_fits() {
    let profile = warming();
    for width in 40..120 {
        let story = Story { width, ..story(&profile, None) };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_told = |line: &&str| !(4..LABEL).contains(&indent(line));
        for line in told(&story, "deployments").lines().filter(is_told) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
