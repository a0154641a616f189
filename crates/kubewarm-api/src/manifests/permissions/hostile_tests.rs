//! Tests with hostile strings in every field of a profile. A YAML parser must read the manifests as
//! exactly the objects that kubewarm built.

use super::{tests::declared, *};
use crate::v1alpha1::CacheProfile;
use kube::CustomResourceExt as _;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;
use testbed::profiles::{AMBIGUOUS, StringPosition, all_places, every_string, hostile, write};

fn valid(profile: &Value) -> Option<ValidatedProfile> {
    let profile: CacheProfile = serde_json::from_value(profile.clone()).unwrap();
    ValidatedProfile::parse(&profile).ok()
}

/// Returns the RBAC objects that kubewarm builds for a profile, before it writes them as YAML.
/// Returns `None` if kubewarm rejects the profile.
fn objects(profile: &Value, operator: &Subject) -> Option<Vec<Value>> {
    let needs = RequiredPermissions::of_profile(
        &valid(profile)?,
        &[].into(),
        &WatchedNamespaces::Everywhere,
    );
    values(&needs, operator)
}

fn values(needs: &RequiredPermissions, operator: &Subject) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    for tier in [PrivilegeLevel::Plain, PrivilegeLevel::Elevated] {
        all.extend(documents(needs, operator, tier).ok()?);
    }
    Some(all.iter().map(|document| serde_json::to_value(document).unwrap()).collect())
}

fn operator() -> Subject {
    Subject::ServiceAccount { namespace: "kubewarm-system".into(), name: "kubewarm".into() }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a rule permits only list and watch of named resources, get of named namespaces, or token
/// requests for one ServiceAccount.
fn is_narrow(rule: &Value) -> bool {
    let [verbs, kinds] = ["verbs", "resources"].map(|field| strings(&rule[field]));
    let names = strings(&rule["resourceNames"]);
    let is_read = verbs == ["list", "watch"];
    let is_lookup = verbs == ["get"] && kinds == ["namespaces"] && !names.is_empty();
    let is_token = verbs == ["create"] && kinds == ["serviceaccounts/token"] && names.len() == 1;
    is_read || is_lookup || is_token
}

fn check(access: &ProfilePermissions, typed: &[Value]) -> Result<(), TestCaseError> {
    let text = access.to_yaml();
    let parsed: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    prop_assert_eq!(&parsed, typed);
    // kubectl splits the text at lines that begin with `---`, before a YAML parser reads it. So a
    // string in the manifests must not contain such a line.
    let separators = text.lines().filter(|line| line.starts_with("---")).count();
    prop_assert_eq!(separators, typed.len());
    prop_assert!(!text.contains("free-text"), "{}", text);
    // RBAC has no wildcard for names of objects, so only these can contain a star.
    let mut unnamed = parsed.clone();
    let rules =
        unnamed.iter_mut().filter_map(|document| document["rules"].as_array_mut()).flatten();
    rules.for_each(|rule| rule["resourceNames"] = Value::Null);
    prop_assert!(!serde_json::to_string(&unnamed).unwrap().contains('*'), "{}", text);
    for rule in parsed.iter().filter_map(|document| document["rules"].as_array()).flatten() {
        prop_assert!(is_narrow(rule), "{}", rule);
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_string_of_a_profile_changes_its_parsed_manifests(profile in hostile()) {
        let Some(valid) = valid(&profile) else { return Ok(()) };
        let Ok(printed) = ProfilePermissions::of_profile(&valid, &[].into(), &operator(), &WatchedNamespaces::Everywhere)
        else { return Ok(()) };
        check(&printed, &objects(&profile, &operator()).unwrap())?;

        // In the cluster of this test, the profile's namespace selector matches the namespaces
        // `null` and `west`.
        let declared = declared(&valid, &["null", "west"]);
        let for_informers = ProfilePermissions::for_informers(&declared, &operator(), &WatchedNamespaces::Everywhere).unwrap();
        let needs = RequiredPermissions::for_informers(&declared, &WatchedNamespaces::Everywhere);
        check(&for_informers, &values(&needs, &operator()).unwrap())?;
    }
}

#[test]
fn names_that_yaml_would_parse_as_other_types_stay_strings() {
    let paths = ["/metadata/name", "/metadata/namespace", "/spec/serviceAccountName"];
    let target = ["name", "resource", "group", "scope/namespaces/0"];
    let target = target.map(|field| format!("/spec/targets/0/{field}"));
    for place in paths.into_iter().map(str::to_owned).chain(target) {
        let cases =
            AMBIGUOUS.into_iter().flat_map(|word| every_string().map(|string| (word, string)));
        for (word, mut profile) in cases {
            write(&mut profile, &StringPosition::Value(place.clone()), word);
            let valid =
                valid(&profile).unwrap_or_else(|| panic!("kubewarm rejects {word} at {place}"));
            let access = ProfilePermissions::of_profile(
                &valid,
                &[].into(),
                &operator(),
                &WatchedNamespaces::Everywhere,
            );
            check(&access.unwrap(), &objects(&profile, &operator()).unwrap()).unwrap();
        }
    }
}

/// Collects from the schema the paths of all strings without an enum, such as
/// `/spec/targets/*/name`. For the keys of a map, the path ends with `{}`.
fn of_schema(schema: &Value, at: &str, paths: &mut BTreeSet<String>) {
    let is_quantity = schema["x-kubernetes-int-or-string"] == true;
    if is_quantity || schema["type"] == "string" && schema["enum"].is_null() {
        paths.insert(at.to_owned());
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        of_schema(member, &format!("{at}/{name}"), paths);
    }
    if schema["additionalProperties"].is_object() {
        paths.insert(format!("{at}{{}}"));
        of_schema(&schema["additionalProperties"], &format!("{at}/*"), paths);
    }
    if schema["items"].is_object() {
        of_schema(&schema["items"], &format!("{at}/*"), paths);
    }
}

#[test]
fn the_hostile_profiles_cover_every_string_of_the_spec() {
    let crd = serde_json::to_value(CacheProfile::crd()).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut wanted = BTreeSet::new();
    of_schema(spec, "/spec", &mut wanted);
    let written = all_places().into_iter().map(|place| {
        let (at, end) = match place {
            StringPosition::Value(at) => (at, ""),
            StringPosition::Key(at, _) => (at, "{}"),
        };
        let parts: Vec<_> = at.split('/').collect();
        let is_key = |n: usize| n > 0 && parts[n - 1] == "matchLabels";
        let is_any = |n: usize| parts[n].bytes().all(|b| b.is_ascii_digit()) || is_key(n);
        let parts = (0..parts.len()).map(|n| match parts[n] {
            "" => "",
            _ if is_any(n) => "*",
            part => part,
        });
        parts.collect::<Vec<_>>().join("/") + end
    });
    let written: BTreeSet<_> = written.filter(|at| at.starts_with("/spec")).collect();
    assert_eq!(written, wanted);
}
