//! A binding that is deleted under an open watch: what may not be read is not served any more.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::{Exposition, cell};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, World, eventually};

/// From the loss of a permission to the fence, at the default settings: what the product promises.
const FENCED: Duration = Duration::from_secs(30);
/// What the product promises for a grant where roles may not be watched.
const READY: Duration = Duration::from_mins(1);
const SETTINGS: &str = "targets: [{name: settings, resource: configmaps}]";

/// Waits until the one cell of config maps in this namespace is as `holds` wants it.
fn await_cell(
    operator: &Operator,
    namespace: &str,
    limit: Duration,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    eventually(limit, || {
        let cell = cell(operator, namespace, "configmaps")?;
        if holds(&cell) { Ok(cell) } else { Err(format!("{cell:#}").into()) }
    })
}

fn create(world: &World, namespace: &str, name: &str) -> Outcome {
    world.cluster.run(["create", "configmap", name, "-n", namespace])?;
    Ok(())
}

/// Objects of the target, as the status counts them.
fn counted(profile: &Value) -> u64 {
    target(profile, "settings").and_then(|target| target["objects"].as_u64()).unwrap_or_default()
}

#[test]
fn a_binding_deleted_under_an_open_watch_fences_its_cell_within_thirty_seconds() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let (team, other) = (world.namespace("team")?, world.namespace("other")?);
    let (team, other) = (team.as_str(), other.as_str());
    let fence = Profile::apply(&world, team, "fence", &format!("{{{SETTINGS}}}"))?;
    let stale = format!("{{reads: {{onAccessLost: ServeStale}}, {SETTINGS}}}");
    let stale = Profile::apply(&world, team, "stale", &stale)?;
    let untouched = Profile::apply(&world, other, "fence", &format!("{{{SETTINGS}}}"))?;
    for profile in [&fence, &stale, &untouched] {
        profile.await_manifests()?;
        profile.grant()?;
    }
    for profile in [&fence, &stale, &untouched] {
        profile.await_condition("Authorized", "True", Some("Verified"), READY)?;
        profile.await_condition("Ready", "True", None, READY)?;
    }
    // With the root certificate that each namespace has.
    create(&world, team, "before")?;
    await_cell(&operator, team, READY, |cell| cell["objects"] == 2)?;
    let lost = Instant::now();
    for profile in ["fence", "stale"] {
        let binding = format!("rolebinding/kubewarm:{team}:{profile}");
        world.cluster.run(["delete", &binding, "-n", team])?;
    }
    // The watch is open, and the API server goes on telling it everything.
    create(&world, team, "after")?;
    let fenced = await_cell(&operator, team, FENCED, |cell| cell["state"] == "Fenced")?;
    assert!(lost.elapsed() <= FENCED, "{:?}", lost.elapsed());
    assert_eq!(fenced["objects"], 3, "one of its profiles serves it as stale: {fenced:#}");
    assert!(fenced["accessLostTime"].is_string(), "{fenced:#}");
    assert_eq!(fenced["lastError"]["reason"], "Forbidden");

    let said = fence.await_condition("Authorized", "False", Some("AccessRevoked"), READY)?;
    assert_eq!(counted(&said), 0, "{said:#}");
    fence.await_condition("Warm", "False", Some("Forbidden"), READY)?;
    fence.await_condition("Ready", "False", Some("PermissionsMissing"), READY)?;
    let said = stale.await_condition("Authorized", "False", Some("AccessRevoked"), READY)?;
    assert_eq!(counted(&said), 3, "{said:#}");
    stale.await_condition("Warm", "True", Some("Synced"), READY)?;
    stale.await_condition("Fresh", "False", None, READY)?;
    untouched.await_condition("Ready", "True", None, READY)?;
    let forbidden = ["state=\"forbidden\"", "profile=\"fence\"", team];
    let metrics = Exposition::read(&operator)?;
    assert!(metrics.sum("kubewarm_profile_targets", &forbidden) > 0.5, "{metrics:?}");
    eventually(READY, || {
        let events = world.cluster.run(["get", "events", "-n", team, "--output=json"])?;
        let events: Value = serde_json::from_str(&events)?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let told = events.any(|event| {
            event["reason"] == "AccessRevoked"
                && event["involvedObject"]["name"] == "fence"
                && event["type"] == "Warning"
        });
        if told { Ok(()) } else { Err("no Event".into()) }
    })?;
    // Nothing of what changes meanwhile is seen.
    world.cluster.run(["delete", "configmap", "before", "-n", team])?;
    create(&world, team, "meanwhile")?;
    std::thread::sleep(Duration::from_secs(3));
    let still = cell(&operator, team, "configmaps")?;
    assert_eq!((&still["objects"], &still["state"]), (&fenced["objects"], &fenced["state"]));
    assert_eq!(still["resourceVersion"], fenced["resourceVersion"]);

    fence.grant()?;
    fence.await_condition("Ready", "True", None, READY)?;
    fence.await_condition("Authorized", "True", Some("Verified"), READY)?;
    stale.await_condition("Fresh", "True", None, READY)?;
    let back = await_cell(&operator, team, READY, |cell| cell["objects"] == 3)?;
    assert_eq!(back["lastRelist"]["reason"], "ForbiddenRecovered", "{back:#}");
    assert!(back["accessLostTime"].is_null(), "{back:#}");
    assert_ne!(cell(&operator, other, "configmaps")?["state"], "Fenced");
    Ok(())
}

#[test]
fn every_replica_fences_by_itself() -> Outcome {
    let world = World::lease()?;
    let replicas =
        [Operator::start_as(&world, "kubewarm-a")?, Operator::start_as(&world, "kubewarm-b")?];
    let team = world.namespace("team")?;
    let profile = Profile::apply(&world, &team, "fence", &format!("{{{SETTINGS}}}"))?;
    profile.await_manifests()?;
    profile.grant()?;
    for replica in &replicas {
        await_cell(replica, &team, READY, |cell| cell["state"] == "Watching")?;
    }
    world.cluster.run(["delete", "rolebinding", &format!("kubewarm:{team}:fence"), "-n", &team])?;
    let fenced = |replica| await_cell(replica, &team, FENCED, |cell| cell["state"] == "Fenced");
    for replica in &replicas {
        fenced(replica)?;
    }
    profile.await_manifests()?;
    profile.grant()?;
    for replica in &replicas {
        await_cell(replica, &team, READY, |cell| cell["state"] == "Watching")?;
    }
    Ok(())
}

#[test]
fn an_account_that_is_deleted_takes_its_cells_along() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let team = world.namespace("team")?;
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &team])?;
    let spec = format!("{{serviceAccountName: reader, {SETTINGS}}}");
    let profile = Profile::apply(&world, &team, "fence", &spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Authorized", "True", Some("Verified"), READY)?;
    await_cell(&operator, &team, READY, |cell| cell["state"] == "Watching")?;
    world.cluster.run(["delete", "serviceaccount", "reader", "-n", &team])?;
    // The API server takes its token for ten seconds more.
    await_cell(&operator, &team, READY, |cell| cell["state"] == "Fenced")?;
    profile.await_condition("Accepted", "False", Some("ServiceAccountNotFound"), READY)?;
    profile.await_condition("Ready", "False", None, READY)?;

    world.cluster.run(["create", "serviceaccount", "reader", "-n", &team])?;
    await_cell(&operator, &team, READY, |cell| cell["state"] == "Watching")?;
    profile.await_condition("Ready", "True", None, READY)?;
    Ok(())
}

#[test]
fn a_cell_that_is_refused_before_it_exists_is_fenced_when_it_does() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let team = world.namespace("team")?;
    let list = ["--verb=list", "--resource=configmaps", "-n", &team];
    world.cluster.run(["create", "role", "list"].into_iter().chain(list))?;
    let account = format!("--serviceaccount={NAMESPACE}:kubewarm");
    world.cluster.run(["create", "rolebinding", "list", "--role=list", &account, "-n", &team])?;
    let spec = |mode: &str| format!("{{mode: {mode}, {SETTINGS}}}");
    let profile = Profile::apply(&world, &team, "fence", &spec("Plan"))?;
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), READY)?;
    Profile::apply(&world, &team, "fence", &spec("Active"))?;
    let cell = await_cell(&operator, &team, READY, |cell| cell["state"] == "Fenced")?;
    assert_eq!(cell["lastError"]["verb"], "watch", "{cell:#}");
    Ok(())
}
