//! Tests `events`, a kind that the API server does not serve from its watch cache. So its watches
//! get no bookmarks.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Served, Server, account, bind};
use crate::figures::informer;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const EVENTS: usize = 201;
/// The `maxStalenessSeconds` of the profiles.
const STALE_AFTER: u64 = 10;
/// The time without changes: longer than three intervals between comparisons with a list.
const QUIET: Duration = Duration::from_secs(40);

fn spec(consistency: &str) -> String {
    format!(
        "{{freshness: {{maxStalenessSeconds: {STALE_AFTER}}}, reads: {{consistency: {consistency}}},
           targets: [{{name: all, resource: events}}]}}"
    )
}

fn create(api: &Server, token: &str, namespace: &str, number: usize) -> Outcome {
    let name = format!("e{number}");
    let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Test",
        "metadata": {"name": name}, "involvedObject": {"namespace": namespace, "name": "x"}});
    let path = format!("/api/v1/namespaces/{namespace}/events");
    eventually(SOON, || match api.write(token, ("POST", &path), &event)?.code {
        201 | 409 => Ok(()),
        code => Err(format!("code {code}").into()),
    })
}

/// The number of the test's events in a list, which also contains the operator's Events about the
/// profile.
fn count(list: &Value) -> Result<usize, Failure> {
    let items = list["items"].as_array().ok_or_else(|| format!("{list:#}"))?;
    Ok(items.iter().filter(|event| event["reason"] == "Test").count())
}

#[test]
fn quiet_events_stay_fresh_and_strict_reads_are_answered() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &[])?;
    let (reads, api) = (served.server()?, Server::api(&world)?);
    let mut fields = Vec::new();
    let namespaces = [world.namespace("team")?, world.namespace("team")?];
    for (consistency, namespace) in ["Bounded", "Strict"].into_iter().zip(&namespaces) {
        let token = account(&world, namespace, "reader")?;
        bind(&world, "cluster-admin", (namespace, "reader"), Some(namespace))?;
        for number in 0..EVENTS {
            create(&api, &token, namespace, number)?;
        }
        let profile = Profile::apply(&world, namespace, "p", &spec(consistency))?;
        profile.await_manifests()?;
        profile.grant()?;
        profile.await_condition("Ready", "True", None, SOON)?;
        fields.push((namespace, token, profile));
    }
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/events");
    for (namespace, token, _) in &fields {
        eventually(SOON, || match reads.get(token, &path(namespace))?.code {
            200 => Ok(()),
            code => Err(format!("code {code}").into()),
        })?;
    }
    let began = Instant::now();
    while began.elapsed() < QUIET {
        for (namespace, token, _) in &fields {
            let reply = reads.get(token, &path(namespace))?;
            assert_eq!((reply.code, count(&reply.json())?), (200, EVENTS), "{reply:?}");
        }
        sleep(Duration::from_secs(1));
    }
    for (namespace, _, profile) in &fields {
        let seen = informer(&served.operator, namespace, "events")?;
        assert_eq!(seen["lacksBookmarks"], true, "{seen:#}");
        profile.await_condition("Ready", "True", None, SOON)?;
    }
    for (namespace, token, _) in &fields {
        let later =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x"}});
        let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let written = api.write(token, ("POST", &configmaps), &later)?.json();
        let version = written["metadata"]["resourceVersion"].as_str().ok_or("no version")?;
        // Only a comparison with a list can bring the store to this version: it belongs to another
        // kind, so no event brings it.
        let reply = reads.get(token, &format!("{}?resourceVersion={version}", path(namespace)))?;
        assert_eq!((reply.code, count(&reply.json())?), (200, EVENTS), "{reply:?}");
    }
    let log = served.operator.process.log();
    assert!(!log.contains("opening another"), "a quiet watch was replaced: {log}");
    Ok(())
}
