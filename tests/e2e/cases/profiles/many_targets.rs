//! The largest profiles on a real API server: the CRD's rules, the status and the RBAC manifests.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Outcome, SOON, World};

const TARGETS: usize = 128;
/// Namespaced kinds of several API groups.
const KINDS: [&str; 8] = [
    "configmaps",
    "pods",
    "serviceaccounts",
    "{group: apps, resource: deployments}",
    "{group: batch, resource: jobs}",
    "{group: coordination.k8s.io, resource: leases}",
    "{group: networking.k8s.io, resource: ingresses}",
    "{group: rbac.authorization.k8s.io, resource: roles}",
];

/// A profile with 128 targets. Each target selects other objects, so each has an informer.
fn spec() -> Result<String, std::fmt::Error> {
    let mut targets = String::new();
    for number in 0..TARGETS {
        let kind = KINDS[number % KINDS.len()].trim_matches(['{', '}']);
        let kind = if kind.contains(':') { kind.to_owned() } else { format!("resource: {kind}") };
        write!(
            targets,
            "{{name: t{number}, {kind}, labelSelector: {{matchLabels: {{part: p{number}}}}}}},"
        )?;
    }
    Ok(format!("{{targets: [{targets}]}}"))
}

#[test]
fn a_profile_with_128_targets_gets_a_status_manifests_and_warm_targets() -> Outcome {
    let world = World::lease()?;
    let _operator = Operator::start(&world)?;
    let team = world.namespace("team")?;
    let profile = Profile::apply(&world, &team, "all", &spec()?)?;
    profile.await_manifests()?;
    // The access checks of 128 informers of one namespace take some seconds.
    profile.await_that(SOON, |profile| {
        let rules = profile.pointer("/status/access/missing/0/rules")?.as_array()?;
        let resources = rules.iter().filter_map(|rule| rule["resources"].as_array());
        let missing: BTreeSet<_> = resources.flatten().filter_map(Value::as_str).collect();
        (missing.len() == KINDS.len()).then_some(())
    })?;

    profile.grant()?;
    let seen = profile.await_condition("Ready", "True", None, SOON)?;
    let targets = seen.pointer("/status/targets").and_then(Value::as_array);
    assert_eq!(targets.map(Vec::len), Some(TARGETS));
    assert_eq!(seen["status"]["warmTargets"], "128/128", "{seen:#}");
    Ok(())
}

/// The longest name of a namespace, and the longest field path of an index, by the CRD.
const LONGEST_NAMESPACE: usize = 63;
const LONGEST_PATH: usize = 128;

/// A profile of 860 KiB: 128 targets, each with as many namespaces and indexes as the CRD permits,
/// in their greatest lengths. The CRD's rules cost the API server most here.
fn largest() -> Value {
    let target = |number: usize| {
        let namespaces = (0..64).map(|n| format!("{n:0>LONGEST_NAMESPACE$}"));
        let indexes = (0..16).map(|n| {
            let path = format!("spec.{:x<length$}", format!("x{n}"), length = LONGEST_PATH - 5);
            json!({"name": format!("i{n}"), "fieldPath": path})
        });
        json!({
            "name": format!("t{number}"), "resource": "configmaps",
            "labelSelector": {"matchLabels": {"part": format!("p{number}")}},
            "scope": {"type": "Namespaces", "namespaces": namespaces.collect::<Vec<_>>()},
            "indexes": indexes.collect::<Vec<_>>(),
        })
    };
    json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile", "metadata": {"name": "all"},
        "spec": {"targets": (0..TARGETS).map(target).collect::<Vec<_>>()},
    })
}

#[test]
fn a_spec_above_40_kibibytes_is_refused_in_its_status() -> Outcome {
    let world = World::lease()?;
    let _operator = Operator::start(&world)?;
    let spec = largest().to_string();
    assert!(spec.len() > 800 << 10, "{}", spec.len());
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), spec)?;
    // `kubectl apply` would store the object a second time, in an annotation of at most 256 KiB,
    // which is too small for this object.
    let path = file.path().to_string_lossy();
    world.cluster.run(["create", "--namespace", NAMESPACE, "-f", &path])?;
    let profile = Profile { world: &world, namespace: NAMESPACE, name: "all" };
    let seen = profile.await_condition("Accepted", "False", Some("InvalidSpec"), SOON)?;
    let conditions = seen["status"]["conditions"].to_string();
    assert!(conditions.contains("at most 40960 are allowed"), "{conditions}");
    Ok(())
}
