//! Tests that the example profiles are valid, and that invalid profiles are rejected with the
//! expected messages.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use crate::read;
use clap::Parser as _;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::CustomResourceExt as _;
use kubewarm::cli::Cli;
use kubewarm_api::{
    manifests::ProfilePermissions,
    model::{Subject, ValidatedProfile, WatchedNamespaces},
    v1alpha1::CacheProfile,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
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

/// A case of `tests/data/invalid`: the API server's message, kubewarm's message and the YAML.
struct InvalidExample {
    file: String,
    server: String,
    offline: String,
    text: String,
}

fn cases() -> Vec<InvalidExample> {
    let files = fs::read_dir(path("tests/data/invalid")).expect("the folder is there");
    let files = files.map(|entry| entry.expect("the folder can be read").path());
    let yaml = files.filter(|file| file.extension().is_some_and(|name| name == "yaml"));
    let case = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("the file can be read");
        let line = |at: usize, head: &str| {
            let line = text.lines().nth(at).and_then(|line| line.strip_prefix(head));
            line.unwrap_or_else(|| panic!("{} lacks {head}", file.display())).to_owned()
        };
        InvalidExample {
            file: file.display().to_string(),
            server: line(0, "# server: "),
            offline: line(1, "# offline: "),
            text,
        }
    };
    yaml.map(case).collect()
}

#[test]
fn every_invalid_profile_is_rejected_with_the_expected_message() {
    for InvalidExample { file, offline, text, .. } in &cases() {
        let profiles = profiles(text);
        let (last, before) = profiles.split_last().expect("a profile");
        for profile in before {
            ValidatedProfile::parse(profile).expect("the first version is valid");
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
    fn messages(schema: &Value, texts: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                let message = |rule: &Value| rule["message"].as_str().map(str::to_owned);
                texts.extend(rules.into_iter().flatten().filter_map(message));
                fields.values().for_each(|schema| messages(schema, texts));
            }
            Value::Array(schemas) => schemas.iter().for_each(|schema| messages(schema, texts)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut texts = Vec::new();
    messages(&serde_json::to_value(CacheProfile::crd()).expect("JSON"), &mut texts);
    assert_eq!(texts.len(), 7, "{texts:?}");
    let cases = cases();
    for message in texts {
        assert!(cases.iter().any(|case| case.server.contains(&message)), "no case: {message}");
    }
}

/// Collects the fields of a schema that have a bound, such as a maximum length. A field is a path
/// like `spec.targets[].name`.
fn bounded(schema: &Value, at: &str, paths: &mut BTreeSet<String>) {
    let bounds = [
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ];
    if bounds.iter().any(|bound| !schema[*bound].is_null()) {
        paths.insert(at.to_owned());
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        bounded(member, &format!("{at}.{name}"), paths);
    }
    for of_each in ["items", "additionalProperties"] {
        if schema[of_each].is_object() {
            bounded(&schema[of_each], &format!("{at}[]"), paths);
        }
    }
}

/// The field path at the start of a message, without indexes and keys, so that it can be compared
/// with a path of the schema.
fn general(message: &str) -> String {
    let mut parts = message.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| path + "[]" + part.split_once(']').map_or("", |(_, rest)| rest))
}

#[test]
fn every_bound_of_the_schema_has_a_case() {
    let crd = serde_json::to_value(CacheProfile::crd()).expect("JSON");
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = BTreeSet::new();
    bounded(spec, "spec", &mut fields);
    let cases = cases();
    let said = cases.iter().flat_map(|case| [&case.server, &case.offline]);
    let said: Vec<_> = said.map(|message| general(message)).collect();
    let is_said = |field: &str| {
        // The same type occurs in several places of the schema. A case in one of them is enough.
        let field = field.replace("spec.scope", "spec.targets[].scope");
        let field = field.replace("scope.namespaceSelector", "labelSelector");
        // In a message, the path of a map's value ends with its key, which is `app` in the cases.
        let field = field
            .strip_suffix("matchLabels[]")
            .map_or_else(|| field.clone(), |at| format!("{at}matchLabels.app"));
        let is_of = |message: &String| {
            message.strip_prefix(&*field).is_some_and(|rest| rest.starts_with([' ', ':']))
        };
        said.iter().any(is_of)
    };
    let missing: Vec<_> = fields.iter().filter(|field| !is_said(field)).collect();
    assert!(missing.is_empty(), "no case: {missing:#?}");
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
    assert!(count >= 6, "only {count} profiles");
}

#[test]
fn the_init_container_uses_the_operators_image_and_waits_for_its_profile() {
    let text = read("deploy/examples/warm-before-start.yaml");
    let [profile] = <[CacheProfile; 1]>::try_from(profiles(&text)).expect("one profile");
    let [waiting] = <[Value; 1]>::try_from(of_kind(&text, "Deployment")).expect("one Deployment");
    let operator: Vec<Value> = of_kind(&read("deploy/operator.yaml"), "Deployment");
    let image = &operator[0]["spec"]["template"]["spec"]["containers"][0]["image"];
    let pod = &waiting["spec"]["template"]["spec"];
    let init = &pod["initContainers"][0];
    assert_eq!(&init["image"], image);
    let arguments: Vec<_> =
        init["args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let cli = Cli::try_parse_from([&["kubewarm"], &*arguments].concat()).expect("it is a command");
    let Cli::Wait(wait) = cli else { panic!("{arguments:?} does not wait") };
    assert_eq!(Some(&wait.name), profile.metadata.name.as_ref());
    assert_eq!(
        waiting["metadata"]["namespace"],
        *profile.metadata.namespace.as_ref().expect("one")
    );

    let [waits] = <[Role; 1]>::try_from(of_kind(&text, "Role")).expect("one Role");
    let rules = waits.rules.expect("rules");
    let [rule] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!(rule.resources.as_deref(), Some(&["cacheprofiles".to_owned()][..]));
    assert_eq!(rule.resource_names.as_deref(), Some(&[wait.name][..]));
    let page = read("docs/controllers.md");
    let shown = format!(
        "image: {}\n     args: [{}]\n",
        image.as_str().expect("a name"),
        arguments.join(", ")
    );
    assert!(page.contains(&shown), "docs/controllers.md does not show\n{shown}");
}

#[test]
fn the_quickstart_holds_the_roles_that_its_profile_needs() {
    let text = read("deploy/examples/quickstart.yaml");
    let [profile] = <[CacheProfile; 1]>::try_from(profiles(&text)).expect("one profile");
    let profile = ValidatedProfile::parse(&profile).expect("it is valid");
    let subject =
        Subject::ServiceAccount { namespace: "kubewarm-system".into(), name: "kubewarm".into() };
    let access = ProfilePermissions::of_profile(
        &profile,
        &[].into(),
        &subject,
        &WatchedNamespaces::Everywhere,
    )
    .expect("its names fit");
    assert!(access.manifests.is_some() && access.manifests_elevated.is_some());
    assert!(
        text.ends_with(&access.to_yaml()),
        "the end of quickstart.yaml is not what `kubewarm rbac -f` prints; run `make generate`"
    );
    // The file contains two Roles and two RoleBindings in all. So it has no others in addition to
    // the generated ones at its end.
    assert_eq!(of_kind::<Role>(&text, "Role").len(), 2);
    assert_eq!(of_kind::<Value>(&text, "RoleBinding").len(), 2);
}

/// Whether a permission allows its holder to gain further permissions.
fn allows_escalation(rule: &PolicyRule) -> bool {
    let list = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let groups = list(&rule.api_groups);
    let words = [groups.clone(), list(&rule.resources), rule.verbs.clone()].concat();
    let is_one = |word: &String| {
        let whole = word.split('/').next().unwrap_or_default();
        word.contains('*')
            || ["secrets", "serviceaccounts", "escalate", "bind", "impersonate"].contains(&whole)
    };
    let reads = rule.verbs.iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
    let is_rbac = groups.iter().any(|group| group == "rbac.authorization.k8s.io");
    words.iter().any(is_one) || (is_rbac && !reads) || rule.non_resource_urls.is_some()
}

// This test does not check that kubewarm uses every permission: `e2e_rights` does.
#[test]
fn the_operators_permissions_allow_no_escalation() {
    for path in [
        "deploy/operator-rbac.yaml",
        "deploy/operator-rbac-namespaces.yaml",
        "deploy/metrics-auth.yaml",
        "deploy/read-api.yaml",
        "deploy/rbac-authorization.yaml",
    ] {
        let text = read(path);
        let local = of_kind::<Role>(&text, "Role").into_iter().map(|role| role.rules);
        let wide = of_kind::<ClusterRole>(&text, "ClusterRole").into_iter().map(|role| role.rules);
        let rules: Vec<_> = local.chain(wide).flatten().flatten().collect();
        assert!(!rules.is_empty(), "{path} grants nothing");
        for rule in rules {
            assert!(!allows_escalation(&rule), "{path}: {rule:?}");
        }
    }
}

#[test]
fn kubewarm_can_write_only_the_secret_of_its_own_certificate() {
    let granting = of_kind::<Role>(&read("deploy/certificate.yaml"), "Role");
    let rules: Vec<_> = granting.into_iter().filter_map(|role| role.rules).flatten().collect();
    let [rule] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!(rule.resource_names, Some(vec!["kubewarm-ca".to_owned()]));
    assert_eq!(rule.verbs, ["get", "update"]);
}

#[test]
fn permissions_that_escalate_are_listed() {
    let rule = |group: &str, resource: &str, verb: &str| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    };
    let rbac = "rbac.authorization.k8s.io";
    for (group, resource, verb) in [
        ("*", "pods", "list"),
        ("", "*/status", "patch"),
        ("", "pods", "*"),
        ("", "secrets", "list"),
        ("", "serviceaccounts/token", "create"),
        ("", "users", "impersonate"),
        (rbac, "roles", "bind"),
        (rbac, "clusterroles", "escalate"),
        (rbac, "rolebindings", "create"),
    ] {
        assert!(allows_escalation(&rule(group, resource, verb)), "{verb} {resource}");
    }
    assert!(!allows_escalation(&rule(rbac, "roles", "watch")));
    assert!(!allows_escalation(&rule("", "pods", "list")));
}
