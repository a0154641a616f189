//! Lost permissions: kubewarm blocks an informer whose access is lost during a watch.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::{Exposition, informer};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, World, eventually};

/// The documented limit from the loss of a permission to a blocked informer, at default settings.
const BLOCKED: Duration = Duration::from_secs(30);
/// The documented limit from a grant to a ready profile. kubewarm has no permission to watch roles
/// here, so it finds the grant only by a later access check.
const READY: Duration = Duration::from_mins(1);
const SETTINGS: &str = "targets: [{name: settings, resource: configmaps}]";

/// Waits until the informer of `ConfigMaps` in this namespace satisfies `holds`.
fn await_informer(
    operator: &Operator,
    namespace: &str,
    limit: Duration,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    eventually(limit, || {
        let informer = informer(operator, namespace, "configmaps")?;
        if holds(&informer) { Ok(informer) } else { Err(format!("{informer:#}").into()) }
    })
}

fn create(world: &World, namespace: &str, name: &str) -> Outcome {
    world.cluster.run(["create", "configmap", name, "-n", namespace])?;
    Ok(())
}

/// The number of objects that the status reports for the target.
fn counted(profile: &Value) -> u64 {
    target(profile, "settings").and_then(|target| target["objects"].as_u64()).unwrap_or_default()
}

#[test]
fn a_binding_deleted_during_a_watch_blocks_the_informer_within_30_seconds() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let (team, other) = (world.namespace("team")?, world.namespace("other")?);
    let (team, other) = (team.as_str(), other.as_str());
    let block = Profile::apply(&world, team, "block", &format!("{{{SETTINGS}}}"))?;
    let stale = format!("{{reads: {{onAccessLost: ServeStale}}, {SETTINGS}}}");
    let stale = Profile::apply(&world, team, "stale", &stale)?;
    let untouched = Profile::apply(&world, other, "block", &format!("{{{SETTINGS}}}"))?;
    for profile in [&block, &stale, &untouched] {
        profile.await_manifests()?;
        profile.grant()?;
    }
    for profile in [&block, &stale, &untouched] {
        profile.await_condition("Authorized", "True", Some("Verified"), READY)?;
        profile.await_condition("Ready", "True", None, READY)?;
    }
    // Each namespace also contains the ConfigMap with the root certificate.
    create(&world, team, "before")?;
    await_informer(&operator, team, READY, |informer| informer["objects"] == 2)?;
    let lost = Instant::now();
    for profile in ["block", "stale"] {
        let binding = format!("rolebinding/kubewarm:{team}:{profile}");
        world.cluster.run(["delete", &binding, "-n", team])?;
    }
    // The API server continues to send events on the open watch, although the permission is
    // revoked.
    create(&world, team, "after")?;
    let blocked =
        await_informer(&operator, team, BLOCKED, |informer| informer["state"] == "Blocked")?;
    assert!(lost.elapsed() <= BLOCKED, "{:?}", lost.elapsed());
    assert_eq!(blocked["objects"], 3, "a profile still serves the store: {blocked:#}");
    assert!(blocked["accessLostTime"].is_string(), "{blocked:#}");
    assert_eq!(blocked["lastError"]["reason"], "Forbidden");

    let object = block.await_condition("Authorized", "False", Some("AccessRevoked"), READY)?;
    assert_eq!(counted(&object), 0, "{object:#}");
    block.await_condition("Warm", "False", Some("Forbidden"), READY)?;
    block.await_condition("Ready", "False", Some("PermissionsMissing"), READY)?;
    let object = stale.await_condition("Authorized", "False", Some("AccessRevoked"), READY)?;
    assert_eq!(counted(&object), 3, "{object:#}");
    stale.await_condition("Warm", "True", Some("Synced"), READY)?;
    stale.await_condition("Fresh", "False", None, READY)?;
    untouched.await_condition("Ready", "True", None, READY)?;
    let forbidden = ["state=\"forbidden\"", "profile=\"block\"", team];
    let metrics = Exposition::read(&operator)?;
    assert!(metrics.sum("kubewarm_profile_targets", &forbidden) > 0.5, "{metrics:?}");
    eventually(READY, || {
        let events = world.cluster.run(["get", "events", "-n", team, "--output=json"])?;
        let events: Value = serde_json::from_str(&events)?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let exists = events.any(|event| {
            event["reason"] == "AccessRevoked"
                && event["involvedObject"]["name"] == "block"
                && event["type"] == "Warning"
        });
        if exists { Ok(()) } else { Err("no Event".into()) }
    })?;
    // The store does not change while the informer is blocked.
    world.cluster.run(["delete", "configmap", "before", "-n", team])?;
    create(&world, team, "meanwhile")?;
    std::thread::sleep(Duration::from_secs(3));
    let still = informer(&operator, team, "configmaps")?;
    assert_eq!((&still["objects"], &still["state"]), (&blocked["objects"], &blocked["state"]));
    assert_eq!(still["resourceVersion"], blocked["resourceVersion"]);

    block.grant()?;
    block.await_condition("Ready", "True", None, READY)?;
    block.await_condition("Authorized", "True", Some("Verified"), READY)?;
    stale.await_condition("Fresh", "True", None, READY)?;
    let back = await_informer(&operator, team, READY, |informer| informer["objects"] == 3)?;
    assert_eq!(back["lastRelist"]["reason"], "ForbiddenRecovered", "{back:#}");
    assert!(back["accessLostTime"].is_null(), "{back:#}");
    assert_ne!(informer(&operator, other, "configmaps")?["state"], "Blocked");
    Ok(())
}

#[test]
fn every_replica_blocks_informers_by_itself() -> Outcome {
    let world = World::lease()?;
    let replicas =
        [Operator::start_as(&world, "kubewarm-a")?, Operator::start_as(&world, "kubewarm-b")?];
    let team = world.namespace("team")?;
    let profile = Profile::apply(&world, &team, "block", &format!("{{{SETTINGS}}}"))?;
    profile.await_manifests()?;
    profile.grant()?;
    for replica in &replicas {
        await_informer(replica, &team, READY, |informer| informer["state"] == "Watching")?;
    }
    world.cluster.run(["delete", "rolebinding", &format!("kubewarm:{team}:block"), "-n", &team])?;
    let blocked = |replica| {
        await_informer(replica, &team, BLOCKED, |informer| informer["state"] == "Blocked")
    };
    for replica in &replicas {
        blocked(replica)?;
    }
    profile.await_manifests()?;
    profile.grant()?;
    for replica in &replicas {
        await_informer(replica, &team, READY, |informer| informer["state"] == "Watching")?;
    }
    Ok(())
}

#[test]
fn deleting_an_account_blocks_its_informers() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let team = world.namespace("team")?;
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &team])?;
    let spec = format!("{{serviceAccountName: reader, {SETTINGS}}}");
    let profile = Profile::apply(&world, &team, "block", &spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Authorized", "True", Some("Verified"), READY)?;
    await_informer(&operator, &team, READY, |informer| informer["state"] == "Watching")?;
    world.cluster.run(["delete", "serviceaccount", "reader", "-n", &team])?;
    // The API server accepts the token for ten more seconds after it deleted the ServiceAccount.
    await_informer(&operator, &team, READY, |informer| informer["state"] == "Blocked")?;
    profile.await_condition("Accepted", "False", Some("ServiceAccountNotFound"), READY)?;
    profile.await_condition("Ready", "False", None, READY)?;

    world.cluster.run(["create", "serviceaccount", "reader", "-n", &team])?;
    await_informer(&operator, &team, READY, |informer| informer["state"] == "Watching")?;
    profile.await_condition("Ready", "True", None, READY)?;
    Ok(())
}

#[test]
fn an_informer_refused_before_it_starts_is_blocked_when_it_starts() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let team = world.namespace("team")?;
    let list = ["--verb=list", "--resource=configmaps", "-n", &team];
    world.cluster.run(["create", "role", "list"].into_iter().chain(list))?;
    let account = format!("--serviceaccount={NAMESPACE}:kubewarm");
    world.cluster.run(["create", "rolebinding", "list", "--role=list", &account, "-n", &team])?;
    let spec = |mode: &str| format!("{{mode: {mode}, {SETTINGS}}}");
    let profile = Profile::apply(&world, &team, "block", &spec("Plan"))?;
    profile.await_condition("Authorized", "False", Some("PermissionsMissing"), READY)?;
    Profile::apply(&world, &team, "block", &spec("Active"))?;
    let informer =
        await_informer(&operator, &team, READY, |informer| informer["state"] == "Blocked")?;
    assert_eq!(informer["lastError"]["verb"], "watch", "{informer:#}");
    Ok(())
}
