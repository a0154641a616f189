//! The largest profile on a real API server: its CRD, its status and its RBAC manifests.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::operator::Operator;
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
