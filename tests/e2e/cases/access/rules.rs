//! Every rule of the printed manifests is necessary: without it, exactly the informers that need it
//! are blocked.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::figures::informers;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// The time after which kubewarm has sent a rules review for every namespace again (every 20 s).
const REVIEWED: Duration = Duration::from_secs(26);
/// A spec whose informers need every sort of rule: for named, selected and all namespaces, for
/// cluster-scoped kinds, for one object name, and for Secrets (an elevated rule).
fn spec(near: &str, far: &str) -> String {
    format!(
        "{{targets: [
  {{name: settings, resource: configmaps,
    scope: {{type: Namespaces, namespaces: [{near}, {far}]}}}},
  {{name: one-account, resource: serviceaccounts, fieldSelector: metadata.name=default,
    scope: {{type: Namespaces, namespaces: [{near}]}}}},
  {{name: deployments, group: apps, resource: deployments,
    scope: {{type: Namespaces, namespaces: [{near}]}}}},
  {{name: keys, resource: secrets, projection: {{type: Metadata}},
    scope: {{type: Namespaces, namespaces: [{far}]}}}},
  {{name: chosen, resource: services,
    scope: {{type: NamespaceSelector, namespaceSelector: {{matchLabels: {{tier: web}}}}}}}},
  {{name: nodes, resource: nodes, scope: {{type: Cluster}}}},
  {{name: jobs, group: batch, resource: jobs, scope: {{type: AllNamespaces}}}}]}}"
    )
}

fn texts<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    value[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The objects of both manifests.
fn documents(profile: &Value) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for field in ["manifests", "manifestsElevated"] {
        let text = profile["status"]["access"][field].as_str().ok_or("a manifest is missing")?;
        all.extend(serde_saphyr::from_multiple::<Value>(text)?);
    }
    Ok(all)
}

/// The namespaces in which the rules of `role` apply. An empty name stands for the whole cluster.
fn places(role: &Value, all: &[Value]) -> Vec<String> {
    let kind = role["kind"].as_str().unwrap_or_default();
    let bindings = all.iter().filter(|one| {
        let named = &one["roleRef"];
        let is_there =
            kind == "ClusterRole" || one["metadata"]["namespace"] == role["metadata"]["namespace"];
        named["kind"] == kind && named["name"] == role["metadata"]["name"] && is_there
    });
    bindings
        .map(|one| one["metadata"]["namespace"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// `namespace/resource` of each blocked informer.
fn blocked(operator: &Operator) -> Result<BTreeSet<String>, Failure> {
    let all = informers(operator)?.into_iter().filter(|informer| informer["state"] == "Blocked");
    let name = |informer: Value| {
        let text = |field: &str| informer[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("resource"))
    };
    Ok(all.map(name).collect())
}

/// `namespace/resource` of each rule that the status reports as missing.
fn missing(profile: &Value) -> BTreeSet<String> {
    let places = profile.pointer("/status/access/missing").and_then(Value::as_array);
    let names = |place: &Value| -> Vec<String> {
        let namespace = place["namespace"].as_str().unwrap_or_default();
        let rules = place["rules"].as_array().into_iter().flatten();
        let resources = rules.flat_map(|rule| texts(rule, "resources"));
        resources.map(|resource| format!("{namespace}/{resource}")).collect()
    };
    places.into_iter().flatten().flat_map(names).collect()
}

#[test]
fn removing_any_rule_of_the_manifests_breaks_exactly_its_informers() -> Outcome {
    let world = World::lease()?;
    let (near, far, web) =
        (world.namespace("near")?, world.namespace("far")?, world.namespace("web")?);
    world.cluster.run(["label", "namespace", &web, "tier=web"])?;
    world.cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kubewarm-system}}")?;
    let operator = Operator::start(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "all", &spec(&near, &far))?;
    profile.await_manifests()?;
    // The status contains the roles for selected namespaces only after kubewarm has the permission
    // to list namespaces. So the test grants the manifests twice.
    profile.grant()?;
    profile.await_that(SOON, |profile| {
        let printed = profile.pointer("/status/access/manifests")?.as_str()?;
        printed.contains("target:chosen").then_some(())
    })?;
    profile.grant()?;
    let ready = profile.await_condition("Ready", "True", None, SOON)?;

    let all = documents(&ready)?;
    let mut tested = BTreeSet::new();
    for role in &all {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        for (at, rule) in rules.iter().enumerate() {
            let mut broken = role.clone();
            broken["rules"].as_array_mut().ok_or("no rules")?.remove(at);
            // This role lacks one rule. Applying it also restores the rule that the previous step
            // removed.
            world.cluster.apply(&broken.to_string())?;
            let mut wanted = BTreeSet::new();
            // kubewarm needs the verb `get` only to distinguish a missing namespace from a
            // forbidden one. Without `get`, no informer is blocked.
            let is_get = texts(rule, "verbs") == ["get"];
            if !is_get {
                for place in places(role, &all) {
                    for resource in texts(rule, "resources") {
                        wanted.insert(format!("{place}/{resource}"));
                    }
                }
            }
            eventually(SOON, || {
                let names = blocked(&operator)?;
                if names == wanted {
                    Ok(())
                } else {
                    Err(format!("{names:?}, not {wanted:?}").into())
                }
            })?;
            if is_get {
                std::thread::sleep(REVIEWED);
                assert!(blocked(&operator)?.is_empty(), "{rule}");
                tested.insert("get namespaces".to_owned());
            } else {
                profile.await_that(SOON, |profile| (missing(profile) == wanted).then_some(()))?;
                profile.await_condition("Authorized", "False", Some("AccessRevoked"), SOON)?;
                tested.extend(wanted);
            }
        }
        world.cluster.apply(&role.to_string())?;
    }
    eventually(SOON, || match blocked(&operator)? {
        still if still.is_empty() => Ok(()),
        still => Err(format!("{still:?} stay blocked").into()),
    })?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let every = json!([
        format!("{near}/configmaps"),
        format!("{near}/deployments"),
        format!("{near}/serviceaccounts"),
        format!("{far}/configmaps"),
        format!("{far}/secrets"),
        format!("{web}/services"),
        "/nodes",
        "/namespaces",
        "/jobs",
        "get namespaces",
    ]);
    let every: BTreeSet<String> = serde_json::from_value(every)?;
    assert_eq!(tested, every, "the tested rules differ from the expected ones");
    Ok(())
}
