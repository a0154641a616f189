//! kubewarm for some namespaces, with an identity that holds nothing but Roles.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, message};
use crate::world::{Failure, Outcome, World, eventually};

const LIMIT: Duration = Duration::from_mins(1);
/// Replicas look for each other every 30 s, and numbers wait a minute.
const TOLD: Duration = Duration::from_mins(3);
const PODS: &str = "{targets: [{name: pods, resource: {resource: pods}}]}";
/// What only a ClusterRole could allow.
const WIDE: &str = "{targets: [
  {name: all, resource: {resource: pods}, scope: {type: AllNamespaces}},
  {name: nodes, resource: {resource: nodes}, scope: {type: Cluster}},
  {name: chosen, resource: {resource: pods},
   scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {a: b}}}}]}";

/// The shipped rights for these namespaces, and nothing else.
fn grant_roles(world: &World, namespaces: &str) -> Result<(), Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["rbac", "--operator", "--watch-namespaces", namespaces]);
    let printed = command.output()?;
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    world.cluster.apply(&String::from_utf8(printed.stdout)?)?;
    Ok(())
}

/// The `ClusterRoles` and their bindings that name kubewarm.
fn cluster_roles(world: &World) -> Result<Vec<String>, Failure> {
    let kinds = "clusterroles,clusterrolebindings";
    let names = world.cluster.run(["get", kinds, "--output=name"])?;
    Ok(names.lines().filter(|name| name.contains("kubewarm")).map(str::to_owned).collect())
}

/// Grants what the status asks for, and waits until that is enough.
fn make_ready(profile: &Profile<'_>) -> Outcome {
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, LIMIT)?;
    Ok(())
}

fn has_replicas(profile: &Value, count: usize) -> Option<()> {
    (profile.pointer("/status/replicas")?.as_array()?.len() == count).then_some(())
}

#[test]
fn without_any_cluster_role_profiles_of_the_named_namespaces_become_ready() -> Outcome {
    let world = World::with_roles()?;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    grant_roles(&world, &format!("{NAMESPACE},{shop}"))?;

    // One namespace is not granted, one does not exist: neither holds the others up.
    let watched = format!("{NAMESPACE},{shop},{other},nowhere");
    let flag = ["--watch-namespaces", &watched];
    let operator = Operator::launch(&world, "pod-a", &flag)?;
    let profile = Profile::apply(&world, &shop, "web", PODS)?;
    make_ready(&profile)?;
    let status = profile.read()?;
    assert_eq!(status.pointer("/status/access/method"), Some(&"Probe".into()), "{status:#}");

    // Of the operator's namespace, one that names others, watched or not.
    let two = format!("{{type: Namespaces, namespaces: [{shop}, {other}]}}");
    let two = PODS.replace("}]}", &format!(", scope: {two}}}]}}"));
    make_ready(&Profile::apply(&world, NAMESPACE, "two", &two)?)?;

    // A profile with an account of its own: kubewarm mints its tokens by a Role, too.
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &shop])?;
    let account = PODS.replacen('{', "{serviceAccountName: reader, ", 1);
    make_ready(&Profile::apply(&world, &shop, "account", &account)?)?;
    assert_eq!(cluster_roles(&world)?, Vec::<String>::new());

    let wide = Profile::apply(&world, NAMESPACE, "wide", WIDE)?;
    for target in ["all", "nodes", "chosen"] {
        wide.await_target(target, ("Accepted", "False", "ScopeNotAvailable"), LIMIT)?;
    }
    let refused = wide.await_condition("Accepted", "False", Some("ScopeNotAvailable"), LIMIT)?;
    assert!(message(&refused, "Accepted").contains("ClusterRole"), "{refused:#}");

    eventually(LIMIT, || {
        let (code, page) = operator.ask("/readyz?verbose")?;
        let is_named = |name: &str| {
            page.lines().any(|line| {
                line.contains("cacheprofiles") && line.contains(&format!("namespace {name}:"))
            })
        };
        let as_expected = is_named(&other) && is_named("nowhere") && !is_named(&shop);
        if code == 200 && as_expected { Ok(()) } else { Err(format!("{code}: {page}").into()) }
    })?;
    let log = operator.process.log();
    let is_named = |line: &str| line.contains("cacheprofiles") && line.contains(&other);
    assert!(log.lines().any(is_named), "{log}");

    // A profile where nobody may look has no status; once the Role is there, it is found.
    let late = Profile::apply(&world, &other, "late", PODS)?;
    assert!(late.read()?.get("status").is_none());
    grant_roles(&world, &other)?;
    late.await_that(LIMIT, |profile| profile.get("status").map(drop))?;
    make_ready(&late)?;

    // The leases and the Events need no more than Roles either.
    let second = Operator::launch(&world, "pod-b", &flag)?;
    profile.await_that(TOLD, |profile| has_replicas(profile, 2))?;
    let (_, page) = second.ask("/readyz?verbose")?;
    assert!(!page.contains("leases of replicas"), "{page}");
    let events = world.cluster.run(["get", "events.events.k8s.io", "-n", &shop, "-o", "name"])?;
    assert!(!events.is_empty(), "no Event");

    // What is revoked is noticed without leave to ask for anything.
    world.cluster.run(["delete", "rolebinding", "--all", "-n", &shop])?;
    grant_roles(&world, &shop)?;
    profile.await_condition("Authorized", "False", None, LIMIT)?;
    assert_eq!(cluster_roles(&world)?, Vec::<String>::new());
    // Its own lease goes with it, by a Role as well.
    assert!(second.process.term()?.success());
    profile.await_that(TOLD, |profile| has_replicas(profile, 1))?;
    Ok(())
}

#[test]
fn what_nobody_may_list_any_more_keeps_its_profiles_and_holds_up_no_other() -> Outcome {
    let world = World::with_roles()?;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    let watched = format!("{shop},{other}");
    grant_roles(&world, &watched)?;
    let operator = Operator::launch(&world, "pod-a", &["--watch-namespaces", &watched])?;
    let kept = Profile::apply(&world, &other, "kept", PODS)?;
    make_ready(&kept)?;
    world.cluster.run(["delete", "rolebinding", "kubewarm:operator", "-n", &other])?;
    // A watch outlives its role, but not its connection.
    world.cluster.apiserver().kill()?;
    world.cluster.apiserver().start()?;
    eventually(LIMIT, || {
        let (_, page) = operator.ask("/readyz?verbose")?;
        if page.contains("profiles not listed: 1 ") { Ok(()) } else { Err(page.into()) }
    })?;

    make_ready(&Profile::apply(&world, &shop, "new", PODS)?)?;
    let (_, cells) = operator.ask("/debug/cells")?;
    let found: Value = serde_json::from_str(&cells)?;
    let is_kept = |cell: &Value| cell["resource"] == "pods" && cell["namespace"] == *other;
    let found = found["cells"].as_array().into_iter().flatten().any(is_kept);
    assert!(found, "{cells}");
    Ok(())
}
