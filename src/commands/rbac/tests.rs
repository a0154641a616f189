//! Tests of the flags of `rbac`, and of the manifests that it prints for profiles in files.

use super::*;
use crate::commands::fixtures::{self, parse};
use futures::FutureExt as _;
use kubewarm_api::{
    manifests::ProfilePermissions,
    model::{ValidatedProfile, WatchedNamespaces},
};
use proptest::prelude::*;
use std::{io::Write as _, path::Path};
use testbed::profiles::hostile;

const PROFILE: &str = "\
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: checkout}
spec:
  targets:
  - name: pods
    resource: pods
";

fn of_file(file: &Path, flags: &str) -> RbacArgs {
    parse(&format!("-f {} --operator-namespace ops {flags}", file.display())).unwrap()
}

/// Runs the command for a file. It sends no request, so its future completes immediately.
fn answer(args: &RbacArgs) -> Result<String, CommandError> {
    of_profiles(args).now_or_never().unwrap().map(|(text, _)| text)
}

fn run(text: &str, namespace: Option<&str>) -> Result<String, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let namespace = namespace.map_or_else(String::new, |name| format!("-n {name}"));
    let args = of_file(file.path(), &namespace);
    answer(&args).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let path = file.path().display().to_string();
        format!("{error}: {}", cause.unwrap_or_default()).replace(&path, "FILE")
    })
}

#[test]
fn the_manifests_of_a_file_have_the_roles_of_its_profiles() {
    let yaml = run(&format!("{PROFILE}---\n{}", PROFILE.replace("checkout", "orders")), None);
    let yaml = yaml.unwrap();
    for part in ["kubewarm:default:checkout", "kubewarm:default:orders", "namespace: ops"] {
        assert!(yaml.contains(part), "{part} is not in\n{yaml}");
    }
    for document in yaml.split("---\n").filter(|text| !text.trim().is_empty()) {
        let value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        assert_eq!(value["apiVersion"], "rbac.authorization.k8s.io/v1");
    }
}

#[test]
fn roles_for_secrets_are_elevated_and_come_last() {
    let secrets = "  - name: keys\n    resource: secrets\n    projection: {type: \
                   Metadata}\n";
    let yaml = run(&format!("{PROFILE}{secrets}"), Some("shop")).unwrap();
    let (plain, elevated) = yaml.split_once("# Elevated").unwrap();
    assert!(!plain.contains("secrets") && elevated.contains("secrets"), "{yaml}");
}

#[test]
fn with_watched_namespaces_no_cluster_role_is_granted() {
    let ask = |text: &str, namespace: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let cause = |error: CommandError| std::error::Error::source(&error).unwrap().to_string();
        let flags = format!("--watch-namespaces shop,ops -n {namespace}");
        answer(&of_file(file.path(), &flags)).map_err(cause)
    };
    let scope = |scope: &str| format!("{PROFILE}    scope: {scope}\n");
    assert!(!ask(PROFILE, "shop").unwrap().contains("ClusterRole"));
    let namespaces = scope("{type: Namespaces, namespaces: [a, b]}");
    assert!(!ask(&namespaces, "ops").unwrap().contains("ClusterRole"));
    let error = ask(&scope("{type: AllNamespaces}"), "ops").unwrap_err();
    assert!(error.starts_with("targets[pods].scope.type: AllNamespaces needs a"), "{error}");
    let error = ask(PROFILE, "a").unwrap_err();
    assert!(error.starts_with("metadata.namespace: profiles in a are not"), "{error}");
}

#[test]
fn a_profile_that_kubewarm_would_reject_is_an_error() {
    let wide = PROFILE.to_owned() + "    scope: {type: AllNamespaces}\n";
    assert_eq!(
        run(&wide, None).unwrap_err(),
        "cannot use document 1 of FILE: targets[pods].scope: a profile in namespace \"default\" may \
         only name that namespace; use type OwnNamespace, have a ServiceAccount read by \
         spec.serviceAccountName, or move the profile to namespace \"ops\", or correct \
         --operator-namespace"
    );
    assert!(run(&wide, Some("ops")).is_ok());

    let dotted = PROFILE.replace("resource: pods", "resource: Pods");
    let error = run(&dotted, None).unwrap_err();
    assert!(error.starts_with("cannot use document 1 of FILE: spec.targets[0]."), "{error}");

    assert!(run("kind: Pod\n", None).unwrap_err().contains("holds no CacheProfile"));
}

#[test]
fn profiles_are_granted_to_a_named_operator_only() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(PROFILE.as_bytes()).unwrap();
    let answer = |flags: &str| {
        let line = format!("-f {} {flags}", file.path().display());
        answer(&parse::<RbacArgs>(&line).unwrap())
    };
    let of_name = of_profiles(&parse("checkout --generation=1").unwrap()).now_or_never();
    for error in [answer("").unwrap_err(), of_name.unwrap().unwrap_err()] {
        let error = error.to_string();
        assert!(error.starts_with("pass --operator-namespace or --subject: "), "{error}");
    }
    assert!(answer("--subject jane").unwrap().contains("name: jane"));
    assert!(answer("--operator-namespace kubewarm-system").is_ok());
}

#[test]
fn the_operators_own_permissions_need_a_named_operator() {
    let run = |line: &str| rbac(&parse(line).unwrap()).now_or_never().unwrap();
    let error = run("--operator").unwrap_err().to_string();
    assert!(error.starts_with("pass --operator-namespace: "), "{error}");
}

#[test]
fn a_status_with_another_subject_is_an_error() {
    let operator = Subject::from_username("system:serviceaccount:kubewarm-system:kubewarm");
    let mut profile = fixtures::ready();
    assert!(expected(&profile, &operator).is_ok());
    let mut is_expected = |subject: &str| {
        let subject = Some(subject.to_owned());
        let access = AccessStatus { subject, ..AccessStatus::default() };
        profile.status.as_mut().unwrap().access = Some(access);
        expected(&profile, &operator).is_ok()
    };
    assert!(is_expected("system:serviceaccount:kubewarm-system:kubewarm"));
    assert!(!is_expected("system:serviceaccount:ops:kubewarm"));
}

#[test]
fn a_missing_file_is_named() {
    let args = of_file(Path::new("no/such.yaml"), "");
    assert_eq!(answer(&args).unwrap_err().to_string(), "cannot read no/such.yaml");
}

#[test]
fn subjects_are_parsed_from_their_displayed_form() {
    for text in ["system:serviceaccount:ops:kubewarm", "jane", "system:admin", "group:devs"] {
        assert_eq!(subject(text).map(|s| s.to_string()).as_deref(), Ok(text));
    }
    for text in ["", "group:", "system:serviceaccount:ops", "system:serviceaccount::a"] {
        assert!(subject(text).is_err(), "{text}");
    }
}

#[test]
fn a_file_or_a_name_is_required_and_only_a_name_has_a_generation() {
    let parse = parse::<RbacArgs>;
    let args = parse("checkout -n shop --diff --generation=7").unwrap();
    assert_eq!((args.spec.name.as_deref(), args.generation), (Some("checkout"), Some(7)));
    assert!(parse("-f - --diff").unwrap().diff);
    assert!(parse("--operator --watch-namespaces a,b").unwrap().operator);
    assert!(parse("--operator --metrics-auth").unwrap().metrics_auth);
    assert!(parse("--operator --read-api").unwrap().read_api);
    assert!(parse("--operator --rbac-authorization").unwrap().rbac_authorization);
    for line in [
        "--operator --watch-namespaces A",
        "--operator -f a",
        "checkout --metrics-auth",
        "checkout --read-api",
        "checkout --rbac-authorization",
        "--operator --metrics-auth --watch-namespaces a",
        "",
        "checkout -f a.yaml",
        "-f a.yaml --generation=7",
        "--diff",
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

fn objects(text: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

proptest! {
    #[test]
    fn no_string_in_a_profile_changes_the_printed_manifests(profile in hostile()) {
        // The command would replace an empty namespace by the default namespace, so the test skips
        // it.
        prop_assume!(profile["metadata"]["namespace"] != "");
        let operator = Subject::ServiceAccount { namespace: "ops".into(), name: "kubewarm".into() };
        let expected = run(PROFILE, None).unwrap();
        // JSON is valid YAML, so `rbac` must accept the profile both in one line and in many lines.
        for text in [profile.to_string(), serde_json::to_string_pretty(&profile).unwrap()] {
            let Ok(printed) = run(&format!("{text}\n---\n{PROFILE}"), None) else { continue };
            let profile = serde_json::from_value(profile.clone()).unwrap();
            let valid = ValidatedProfile::parse(&profile).unwrap();
            let access = ProfilePermissions::of_profile(&valid, &[].into(), &operator, &WatchedNamespaces::Everywhere);
            let mut typed = objects(&access.unwrap().to_yaml());
            typed.extend(objects(&expected));
            prop_assert_eq!(objects(&printed), typed);
        }
    }
}
