//! Every rule of the printed manifests: without it, exactly the cells break that it is for.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::figures::cells;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, World, eventually};

/// The next review, at most 22 s later, two real requests 3 s apart, and the write of the status.
const SOON: Duration = Duration::from_secs(45);
/// By then every place has been reviewed again.
const REVIEWED: Duration = Duration::from_secs(26);
const READY: Duration = Duration::from_mins(1);
/// Needs a rule of each sort: of named and of selected namespaces, of all of them, of the cluster,
/// and an elevated one.
fn spec(near: &str, far: &str) -> String {
    format!(
        "{{targets: [
  {{name: settings, resource: configmaps,
    scope: {{type: Namespaces, namespaces: [{near}, {far}]}}}},
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

/// Where the rules of `role` apply; empty is the whole cluster.
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

/// `namespace/resource` of each cell that is fenced.
fn fenced(operator: &Operator) -> Result<BTreeSet<String>, Failure> {
    let all = cells(operator)?.into_iter().filter(|cell| cell["state"] == "Fenced");
    let name = |cell: Value| {
        let text = |field: &str| cell[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("resource"))
    };
    Ok(all.map(name).collect())
}

/// The same of each rule that the status misses.
fn missing(profile: &Value) -> BTreeSet<String> {
    let places = profile.pointer("/status/access/missing").and_then(Value::as_array);
    let names = |place: &Value| -> Vec<String> {
        let namespace = place["namespace"].as_str().unwrap_or_default();
        let rules = place["rules"].as_array().into_iter().flatten();
        let resources = rules.flat_map(|rule| texts(rule, "resources"));
        resources.map(|of| format!("{namespace}/{of}")).collect()
    };
    places.into_iter().flatten().flat_map(names).collect()
}

#[test]
fn each_rule_of_the_manifests_is_for_the_cells_that_break_without_it() -> Outcome {
    let world = World::lease()?;
    let (near, far, web) =
        (world.namespace("near")?, world.namespace("far")?, world.namespace("web")?);
    world.cluster.run(["label", "namespace", &web, "tier=web"])?;
    world.cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kubewarm-system}}")?;
    let operator = Operator::start(&world)?;
    let profile = Profile::apply(&world, NAMESPACE, "all", &spec(&near, &far))?;
    profile.await_manifests()?;
    // Only who may list namespaces learns which one is selected, and what that takes.
    profile.grant()?;
    profile.await_that(READY, |found| {
        let printed = found.pointer("/status/access/manifests")?.as_str()?;
        printed.contains("target:chosen").then_some(())
    })?;
    profile.grant()?;
    let ready = profile.await_condition("Ready", "True", None, READY)?;

    let all = documents(&ready)?;
    let mut tried = BTreeSet::new();
    for role in &all {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        for (at, rule) in rules.iter().enumerate() {
            let mut broken = role.clone();
            broken["rules"].as_array_mut().ok_or("no rules")?.remove(at);
            // The rule that was taken out before is back with this.
            world.cluster.apply(&broken.to_string())?;
            let mut wanted = BTreeSet::new();
            // `get` tells a namespace that is gone from one that is closed; nothing is read by it.
            let is_get = texts(rule, "verbs") == ["get"];
            if !is_get {
                for place in places(role, &all) {
                    wanted
                        .extend(texts(rule, "resources").iter().map(|of| format!("{place}/{of}")));
                }
            }
            eventually(SOON, || {
                let found = fenced(&operator)?;
                if found == wanted {
                    Ok(())
                } else {
                    Err(format!("{found:?}, not {wanted:?}").into())
                }
            })?;
            if is_get {
                std::thread::sleep(REVIEWED);
                assert!(fenced(&operator)?.is_empty(), "{rule}");
                tried.insert("get namespaces".to_owned());
            } else {
                profile.await_that(SOON, |found| (missing(found) == wanted).then_some(()))?;
                profile.await_condition("Authorized", "False", Some("AccessRevoked"), SOON)?;
                tried.extend(wanted);
            }
        }
        world.cluster.apply(&role.to_string())?;
    }
    eventually(SOON, || match fenced(&operator)? {
        still if still.is_empty() => Ok(()),
        still => Err(format!("{still:?} stay fenced").into()),
    })?;
    profile.await_condition("Ready", "True", None, READY)?;
    let every = json!([
        format!("{near}/configmaps"),
        format!("{near}/deployments"),
        format!("{far}/configmaps"),
        format!("{far}/secrets"),
        format!("{web}/services"),
        "/nodes",
        "/namespaces",
        "/jobs",
        "get namespaces",
    ]);
    let every: BTreeSet<String> = serde_json::from_value(every)?;
    assert_eq!(tried, every, "a rule is missing, or one is too much");
    Ok(())
}
