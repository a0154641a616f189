//! Tests API servers that restart, or that return with older data after an etcd restore. kubewarm
//! serves its stores meanwhile. Afterwards it delivers and counts the changes that it missed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Served, account, bind};
use crate::operator::Operator;
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// A profile with two informers.
const SETTINGS: &str = "{targets: [{name: settings, resource: configmaps},
  {name: accounts, resource: serviceaccounts}]}";

/// The label of the series that this module reads: series of `ConfigMaps`.
const CONFIGMAPS: &str = r#"resource="configmaps""#;

/// Ten times the time from the discovery of an etcd restore until kubewarm answers reads again.
const ANSWERED: Duration = Duration::from_secs(30);

/// A list of `ConfigMaps` with these names.
fn config_maps(namespace: &str, names: impl IntoIterator<Item = String>) -> String {
    let item = |name| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}}}"
        )
    };
    let items: Vec<String> = names.into_iter().map(item).collect();
    format!("{{apiVersion: v1, kind: List, items: [{}]}}", items.join(", "))
}

/// Applies a profile for a namespace's `ConfigMaps`, and waits until it is ready.
fn warm<'a>(world: &'a World, namespace: &'a str) -> Result<Profile<'a>, Failure> {
    let profile = Profile::apply(world, namespace, "settings", SETTINGS)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(profile)
}

/// The transition time of the condition `Warm`. If this time stays the same, the condition never
/// became False in between.
fn warm_since(profile: &Value) -> Option<&str> {
    let conditions = profile.pointer("/status/conditions").and_then(Value::as_array)?;
    let warm = conditions.iter().find(|condition| condition["type"] == "Warm")?;
    warm["lastTransitionTime"].as_str()
}

/// The sum of a counter over the series whose labels contain `label`.
fn count(operator: &Operator, metric: &str, label: &str) -> Result<f64, Failure> {
    let (_, text) = operator.ask("/metrics")?;
    let series = text.lines().filter(|line| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{')) && line.contains(label)
    });
    let mut sum = 0.0;
    for line in series {
        let (_, value) = line.rsplit_once(' ').ok_or("a series without a value")?;
        sum += value.parse::<f64>()?;
    }
    Ok(sum)
}

#[test]
fn changes_missed_during_a_restart_cost_one_relist_and_are_detected_by_uid() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("team")?;
    let names = ["deleted", "replaced", "kept"].map(str::to_owned);
    world.cluster.apply(&config_maps(&namespace, names))?;
    let operator = Operator::start(&world)?;
    let profile = warm(&world, &namespace)?;
    let before = profile.read()?;

    operator.process.freeze()?;
    // Unrelated writes raise the newest version. So the restarted API server's new watch cache
    // starts above the version of kubewarm's watch, which cannot resume.
    world.cluster.apply(&config_maps("default", (0..50).map(|n| format!("unrelated-{n}"))))?;
    world.cluster.apiserver().restart()?;
    for name in ["deleted", "replaced"] {
        world.cluster.run(["delete", "configmap", name, "-n", &namespace])?;
    }
    world.cluster.apply(&config_maps(&namespace, ["replaced".to_owned()]))?;
    operator.process.thaw()?;

    let after = profile.await_that(SOON, |profile| {
        let relist = target(profile, "settings")?.get("lastRelist")?;
        (relist["deletedObjects"] == 1 && relist["replacedObjects"] == 1).then_some(())
    })?;
    assert_eq!(warm_since(&before), warm_since(&after), "{after:#}");
    profile.await_condition("Ready", "True", None, SOON)?;
    for counted in ["relists", "relist_deleted_objects", "relist_replaced_objects"] {
        let metric = format!("kubewarm_upstream_{counted}_total");
        assert!((count(&operator, &metric, CONFIGMAPS)? - 1.0).abs() < 0.1, "{counted}");
    }
    assert!(
        count(&operator, "kubewarm_upstream_relists_total", r#"resource="serviceaccounts""#)?
            <= 1.0
    );
    Ok(())
}

#[test]
fn a_restored_etcd_is_detected_and_its_lost_objects_are_removed() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("team")?;
    let operator = Operator::start(&world)?;
    let profile = warm(&world, &namespace)?;
    let snapshot = world.cluster.folder().join("snapshot");
    world.cluster.snapshot(&snapshot)?;
    // These writes create more versions than a restarting control plane does. So the versions after
    // the restore stay below the versions before.
    world.cluster.apply(&config_maps(&namespace, (0..200).map(|n| format!("undone-{n}"))))?;
    // The status shows new object counts once a minute, the metrics show them at once.
    let await_objects = |wanted: fn(f64) -> bool| {
        eventually(SOON, || {
            let objects = count(&operator, "kubewarm_objects", CONFIGMAPS)?;
            if wanted(objects) { Ok(()) } else { Err(format!("{objects} objects").into()) }
        })
    };
    await_objects(|objects| objects >= 200.0)?;

    world.cluster.restore(&snapshot)?;

    await_objects(|objects| objects < 200.0)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    assert!(count(&operator, "kubewarm_resource_version_rollbacks_total", CONFIGMAPS)? >= 1.0);
    profile.await_that(SOON, |profile| {
        (target(profile, "settings")?.get("lastRelist")?["reason"] == "Rollback").then_some(())
    })?;
    eventually(SOON, || {
        let events =
            ["get", "events.events.k8s.io", "-n", &namespace, "-o", "jsonpath={.items[*].reason}"];
        let reasons = world.cluster.run(events)?;
        if reasons.contains("ResourceVersionRolledBack") { Ok(()) } else { Err(reasons.into()) }
    })
}

#[test]
fn a_restore_delays_no_read_and_ends_the_watches_of_undone_versions() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("team")?;
    let served = Served::start(&world, &["--forward"])?;
    let token = account(&world, &namespace, "writer")?;
    bind(&world, "cluster-admin", (&namespace, "writer"), Some(&namespace))?;
    let _profile = warm(&world, &namespace)?;
    let reads = served.server()?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let is_answered = || match reads.get(&token, &path)?.code {
        200 => Ok(()),
        code => Err(format!("code {code}").into()),
    };
    eventually(SOON, is_answered)?;
    let snapshot = world.cluster.folder().join("snapshot");
    world.cluster.snapshot(&snapshot)?;
    // These writes create more versions than a restarting control plane does. So the versions after
    // the restore stay below the versions before.
    world.cluster.apply(&config_maps("default", (0..200).map(|n| format!("undone-{n}"))))?;
    let watch = reads.watch(&token, &format!("{path}?watch=1"), "application/json")?;
    let undone = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "undone"}});
    assert_eq!(reads.write(&token, ("POST", &path), &undone)?.code, 201);

    world.cluster.restore(&snapshot)?;
    eventually(SOON, || {
        let metric = "kubewarm_resource_version_rollbacks_total";
        let rollbacks = count(&served.operator, metric, CONFIGMAPS)?;
        if rollbacks >= 1.0 { Ok(()) } else { Err("no rollback yet".into()) }
    })?;
    let restored = Instant::now();
    eventually(SOON, is_answered)?;
    // kubewarm stores the version of a forwarded write for a minute, and reads wait for it. After a
    // restore, they must not wait for a version that no longer exists.
    assert!(restored.elapsed() < ANSWERED, "{:?}", restored.elapsed());
    // The client's watch must end with 410, so that the client lists again. After the restore,
    // possibly no event ever has a higher version than the client's.
    eventually(SOON, || {
        let events = watch.events();
        let is_expired = events.last().is_some_and(|event| event["object"]["code"] == 410);
        if is_expired { Ok(()) } else { Err(format!("{:?}", events.last()).into()) }
    })?;
    let lists = reads.get(&token, &path)?;
    assert!(!lists.text.contains("\"undone\""), "{}", lists.text);
    Ok(())
}
