//! The profiles people copy are valid, and the invalid ones are refused with the words they expect.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::CustomResourceExt as _;
use kubewarm::{
    api::CacheProfile,
    manifests::{Access, Lookup},
    model::{Subject, ValidatedProfile},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn read(relative: &str) -> String {
    fs::read_to_string(path(relative)).expect("the file is there")
}

/// The documents of kind `kind` in a file.
fn of_kind<T: DeserializeOwned>(text: &str, kind: &str) -> Vec<T> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("the file is YAML");
    let matching = all.into_iter().filter(|document| document["kind"] == kind);
    matching.map(|document| serde_json::from_value(document).expect("the kind's shape")).collect()
}

fn profiles(text: &str) -> Vec<CacheProfile> {
    of_kind(text, "CacheProfile")
}

/// A case of `tests/data/invalid`: what the server says, what kubewarm says, and the text.
struct Case {
    file: String,
    server: String,
    offline: String,
    text: String,
}

fn cases() -> Vec<Case> {
    let files = fs::read_dir(path("tests/data/invalid")).expect("the folder is there");
    let files = files.map(|entry| entry.expect("the folder can be read").path());
    let yaml = files.filter(|file| file.extension().is_some_and(|name| name == "yaml"));
    let case = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("the file can be read");
        let line = |at: usize, head: &str| {
            let line = text.lines().nth(at).and_then(|line| line.strip_prefix(head));
            line.unwrap_or_else(|| panic!("{} lacks {head}", file.display())).to_owned()
        };
        Case {
            file: file.display().to_string(),
            server: line(0, "# server: "),
            offline: line(1, "# offline: "),
            text,
        }
    };
    yaml.map(case).collect()
}

#[test]
fn every_invalid_profile_is_refused_in_the_words_expected() {
    let cases = cases();
    assert!(cases.len() >= 44, "only {} cases", cases.len());
    for Case { file, offline, text, .. } in &cases {
        let profiles = profiles(text);
        let (last, before) = profiles.split_last().expect("a profile");
        for profile in before {
            ValidatedProfile::parse(profile).expect("what is updated is valid");
        }
        let answer = match ValidatedProfile::parse(last) {
            Ok(_) => "accepted".to_owned(),
            Err(invalid) => invalid.to_string(),
        };
        assert_eq!(&answer, offline, "{file}");
    }
}

#[test]
fn every_rule_of_the_schema_has_a_case() {
    fn messages(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                let message = |rule: &Value| rule["message"].as_str().map(str::to_owned);
                found.extend(rules.into_iter().flatten().filter_map(message));
                fields.values().for_each(|schema| messages(schema, found));
            }
            Value::Array(schemas) => schemas.iter().for_each(|schema| messages(schema, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    messages(&serde_json::to_value(CacheProfile::crd()).expect("JSON"), &mut found);
    assert_eq!(found.len(), 6, "{found:?}");
    let cases = cases();
    for message in found {
        assert!(cases.iter().any(|case| case.server.contains(&message)), "no case: {message}");
    }
}

#[test]
fn every_example_is_valid() {
    let mut count = 0;
    for entry in fs::read_dir(path("deploy/examples")).expect("the folder is there") {
        let file = entry.expect("the folder can be read").path();
        let text = fs::read_to_string(&file).expect("the file can be read");
        for profile in profiles(&text) {
            let valid = ValidatedProfile::parse(&profile);
            valid.unwrap_or_else(|invalid| panic!("{}: {invalid}", file.display()));
            count += 1;
        }
    }
    assert!(count >= 2, "only {count} profiles");
}

#[test]
fn the_quickstart_holds_the_roles_that_its_profile_needs() {
    let text = read("deploy/examples/quickstart.yaml");
    let [profile] = <[CacheProfile; 1]>::try_from(profiles(&text)).expect("one profile");
    let profile = ValidatedProfile::parse(&profile).expect("it is valid");
    let subject =
        Subject::ServiceAccount { namespace: "kubewarm-system".into(), name: "kubewarm".into() };
    let access =
        Access::of_profile(&profile, &[].into(), &subject, Lookup::Granted).expect("its names fit");
    assert!(access.manifests.is_some() && access.manifests_elevated.is_some());
    assert!(
        text.ends_with(&access.to_yaml()),
        "the end of quickstart.yaml is not what `kubewarm rbac -f` prints; run `make generate`"
    );
    // Two of each, in the text as a whole: none but those at its end.
    assert_eq!(of_kind::<Role>(&text, "Role").len(), 2);
    assert_eq!(of_kind::<Value>(&text, "RoleBinding").len(), 2);
}

#[test]
fn the_operator_holds_what_it_uses_and_nothing_else() {
    let text = read("deploy/operator-rbac.yaml");
    let rule = |rule: PolicyRule| {
        let names = |names: Option<Vec<String>>| names.unwrap_or_default().join(",");
        let (groups, resources) = (names(rule.api_groups), names(rule.resources));
        format!("{groups}|{resources}|{}|{}", names(rule.resource_names), rule.verbs.join(","))
    };
    let cluster = of_kind::<ClusterRole>(&text, "ClusterRole").into_iter();
    let cluster: Vec<_> = cluster.flat_map(|role| role.rules.unwrap_or_default()).collect();
    let local = of_kind::<Role>(&text, "Role").into_iter();
    let local: Vec<_> = local.flat_map(|role| role.rules.unwrap_or_default()).collect();
    assert_eq!(
        cluster.into_iter().map(rule).collect::<Vec<_>>(),
        [
            "kubewarm.io|cacheprofiles||list,watch",
            "kubewarm.io|cacheprofiles/status||patch",
            "events.k8s.io|events||create",
            "admissionregistration.k8s.io|validatingadmissionpolicies,\
             validatingadmissionpolicybindings|kubewarm-accounts|get",
        ]
    );
    assert_eq!(
        local.into_iter().map(rule).collect::<Vec<_>>(),
        [
            "coordination.k8s.io|leases|kubewarm|get",
            "coordination.k8s.io|leases||create,delete,list,update",
        ]
    );
}
