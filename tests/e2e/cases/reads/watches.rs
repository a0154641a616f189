//! Watches from the cache send the API server's events, and never an event that did not happen.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::accept::{ANY, METADATA, METADATA_LIST};
use crate::api::{Served, Server, Watch, account, let_read, let_write};
use crate::cases::reads::abuse::Peer;
use crate::cases::reads::audience::{Audience, WATCHES};
use crate::figures::{Exposition, Kept};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const EVERYTHING: &str = "{freshness: {consistencyCheckPeriodSeconds: 1}, targets: [
  {name: settings, resource: configmaps, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: parts, group: example.com, resource: parts, scope: {type: AllNamespaces}, projection: {managedFields: Keep}}]}";
/// The duration of a watch in seconds. Its last bookmark comes 2 s before the end.
const BRIEF: u64 = 8;
/// Timeout for the end of a revoked permission. kubewarm promises 30 s.
const REVOKED: Duration = Duration::from_mins(5);
/// Limit for the memory of an idle watch in KiB: ten times the value for many watches over one
/// connection.
const IDLE_KIB: u64 = 64;
/// Limit for the delay of a change on a thousand watches: ten times the 250 ms that are expected at
/// twenty changes a second.
const LATE: Duration = Duration::from_millis(2_500);
const PACE: Duration = Duration::from_millis(50);

/// A cluster with objects, and an operator that serves them to the account `reader`.
struct WatchFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    /// The token of an account that may write.
    writer: String,
    team: String,
}

impl WatchFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::lease()?;
        let served = Served::start(&world, &[])?;
        Operator::grant_reading(&world)?;
        world.define_parts()?;
        eventually(SOON, || Ok(world.cluster.run(["get", "parts", "-A"])?))?;
        let team = world.namespace("team")?;
        let has_account = ["get", "serviceaccount", "default", "-n", &team];
        eventually(SOON, || Ok(world.cluster.run(has_account)?))?;
        for name in ["red", "green"] {
            world.cluster.apply(&setting(&team, name, "web", "0"))?;
        }
        let token = account(&world, &team, "reader")?;
        let_read(&world, (&team, "reader"), None)?;
        let writer = account(&world, &team, "writer")?;
        let_write(&world, (&team, "writer"), Some(&team))?;
        let profile = Profile::apply(&world, NAMESPACE, "everything", EVERYTHING)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        Ok(Self { world, served, api, reads, token, writer, team })
    }
}

fn setting(namespace: &str, name: &str, app: &str, text: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}, \
         labels: {{app: {app}}}}}, data: {{text: \"{text}\"}}}}"
    )
}

/// The events that both servers must send. Bookmarks are left out, because their times differ.
fn changes(watch: &Watch) -> Vec<Value> {
    watch.events().into_iter().filter(|event| event["type"] != "BOOKMARK").collect()
}

/// The bookmarks that mark the end of the initial events.
fn marks(watch: &Watch) -> Vec<Value> {
    let is_mark = |event: &Value| {
        event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == json!("true")
    };
    watch
        .events()
        .into_iter()
        .filter(|event| event["type"] == "BOOKMARK" && is_mark(event))
        .collect()
}

#[test]
fn watches_send_the_api_servers_events() -> Outcome {
    let scene = WatchFixture::start()?;
    invalid_watches_are_rejected(&scene)?;
    events_are_the_same(&scene)?;
    a_resumed_watch_receives_the_missed_events(&scene)?;
    the_last_bookmark_comes_before_the_end(&scene)?;
    kubectl_watches(&scene)?;
    a_revoked_permission_ends_a_watch(&scene)?;
    a_thousand_watches_cost_little_and_receive_events_soon(&scene)?;
    a_watch_that_is_not_read_is_closed_without_affecting_others(&scene)?;
    watches_are_visible_in_metrics(&scene)?;
    consistency_checks_find_no_difference(&scene)?;
    all_end_with_the_process(&scene)
}

fn kubectl_watches(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, served, token, team, .. } = scene;
    let output = world.cluster.folder().join("watched");
    let file = std::fs::File::create(&output)?;
    let mut kubectl = served.kubectl(world, token)?;
    kubectl.args(["get", "configmaps", "-n", team, "-w", "-o", "name"]);
    let mut kubectl = kubectl.stdout(file).spawn()?;
    let seen = |line: &str, times: usize| {
        eventually(SOON, || {
            let text = std::fs::read_to_string(&output)?;
            let count = text.lines().filter(|other| *other == line).count();
            if count >= times { Ok(()) } else { Err(text.into()) }
        })
    };
    let outcome = seen("configmap/green", 1).and_then(|()| {
        world.cluster.apply(&setting(team, "kubectl", "web", "0"))?;
        seen("configmap/kubectl", 1)?;
        world.cluster.run(["delete", "configmap", "kubectl", "-n", team])?;
        seen("configmap/kubectl", 2)
    });
    kubectl.kill()?;
    kubectl.wait()?;
    outcome
}

fn await_end(watch: &Watch, within: Duration) -> Outcome {
    eventually(within, || if watch.is_over() { Ok(()) } else { Err("still open".into()) })
}

/// A stopping replica ends its watches, whatever their timeout is.
fn all_end_with_the_process(scene: &WatchFixture) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/configmaps?watch=1", scene.team);
    let watch = scene.reads.watch(&scene.token, &path, ANY)?;
    eventually(SOON, || if watch.events().is_empty() { Err("nothing".into()) } else { Ok(()) })?;
    let status = scene.served.operator.process.term()?;
    assert!(status.success(), "{status}");
    await_end(&watch, SOON)?;
    assert!(watch.events().iter().all(|event| event["type"] == "ADDED"), "{:?}", watch.events());
    Ok(())
}

fn a_revoked_permission_ends_a_watch(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, reads, team, .. } = scene;
    let tenant = account(world, team, "tenant")?;
    let_read(world, (team, "tenant"), Some(team))?;
    let path = format!("/api/v1/namespaces/{team}/configmaps?watch=1");
    let watch = eventually(SOON, || {
        let watch = reads.watch(&tenant, &path, ANY)?;
        if watch.code == 200 { Ok(watch) } else { Err(format!("{}", watch.code).into()) }
    })?;
    let gone = account(world, team, "gone")?;
    let_read(world, (team, "gone"), Some(team))?;
    let of_gone = eventually(SOON, || {
        let watch = reads.watch(&gone, &path, ANY)?;
        if watch.code == 200 { Ok(watch) } else { Err(format!("{}", watch.code).into()) }
    })?;
    let other = reads.watch(&scene.token, &path, ANY)?;
    world.cluster.run(["delete", "rolebinding", &format!("read-{team}-tenant"), "-n", team])?;
    world.cluster.run(["delete", "serviceaccount", "gone", "-n", team])?;
    await_end(&watch, REVOKED)?;
    // The permission outlives the ServiceAccount, so only new requests notice the deletion soon. A
    // unit test shows that the open watch ends within 10 minutes.
    eventually(REVOKED, || match reads.get(&gone, path.trim_end_matches("?watch=1"))?.code {
        401 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    assert!(!of_gone.is_over() && !other.is_over());
    assert!(watch.events().iter().all(|event| event["type"] == "ADDED"), "{:?}", watch.events());
    Ok(())
}

fn a_thousand_watches_cost_little_and_receive_events_soon(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, served, api, writer, team, .. } = scene;
    let all = format!("/api/v1/namespaces/{team}/configmaps");
    let token = account(world, team, "many")?;
    let_read(world, (team, "many"), Some(team))?;
    let object = json!({"metadata": {"name": "pace"}});
    let made = api.write(writer, ("POST", &all), &object)?;
    assert_eq!(made.code, 201);
    let made = made.json();
    let since = made["metadata"]["resourceVersion"].as_str().ok_or("no version")?;
    let path = format!("{all}?watch=1&resourceVersion={since}&timeoutSeconds=600");
    let before = Kept::read(&served.operator)?;
    let audience = Audience::gather(&Peer::of(served, &token)?, &path, METADATA)?;
    let after = Kept::read(&served.operator)?;
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < IDLE_KIB * u64::try_from(WATCHES)?, "{before:?}, and {after:?} afterwards");
    let first = Instant::now();
    for number in 1..=100_u32 {
        let change = json!({"metadata": {"labels": {"n": number.to_string()}}});
        assert_eq!(api.write(writer, ("PATCH", &format!("{all}/pace")), &change)?.code, 200);
        sleep((PACE * number).saturating_sub(first.elapsed()));
    }
    audience.await_events(100, LATE)
}

/// A thousand other watches receive every event, once and in order.
fn a_watch_that_is_not_read_is_closed_without_affecting_others(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, served, api, reads, token, writer, team } = scene;
    let all = format!("/api/v1/namespaces/{team}/configmaps");
    let audience = account(world, team, "audience")?;
    let_read(world, (team, "audience"), Some(team))?;
    // This pause is shorter than the time after which kubewarm closes a connection that reads
    // nothing. So not this limit ends the watch, but the event log.
    let pause = Duration::from_secs(45);
    let path = format!("{all}?watch=1&resourceVersion=0");
    let slow: Vec<_> =
        (0..20).map(|_| reads.watch_slowly(token, &path, ANY, pause)).collect::<Result<_, _>>()?;
    let quick = reads.watch(token, &path, ANY)?;
    let listed = reads.get(token, &all)?.json();
    let since = listed["metadata"]["resourceVersion"].as_str().ok_or("no version")?;
    let path = format!("{all}?watch=1&resourceVersion={since}&timeoutSeconds=600");
    let truth = api.watch(token, &path, METADATA)?;
    let audience = Audience::gather(&Peer::of(served, &audience)?, &path, METADATA)?;

    let mut random = fastrand::Rng::with_seed(1);
    let mut last = String::new();
    for name in ["large", "small"] {
        let object = json!({"metadata": {"name": name}});
        assert_eq!(api.write(writer, ("POST", &all), &object)?.code, 201);
    }
    // These events are larger than the connection's buffers and the event log of such a small store
    // together. So the slow watch must fall behind.
    for number in 0..40 {
        last = format!("{number}-{}", random.u64(..));
        let noise: String = (0..200_000).map(|_| random.alphanumeric()).collect();
        let large = json!({"data": {"text": format!("{last} {noise}")}});
        assert_eq!(api.write(writer, ("PATCH", &format!("{all}/large")), &large)?.code, 200);
        for _ in 0..2 {
            let small = json!({"metadata": {"labels": {"n": random.u64(..).to_string()}}});
            assert_eq!(api.write(writer, ("PATCH", &format!("{all}/small")), &small)?.code, 200);
        }
        // Waits for the readers, because a debug build is slow.
        audience.await_events(2 + 3 * (number + 1), SOON)?;
    }
    for name in ["small", "large"] {
        let path = format!("{all}/{name}");
        assert_eq!(api.write(writer, ("DELETE", &path), &json!({}))?.code, 200);
    }
    let events = eventually(SOON, || {
        let events = truth.events();
        if events.len() == 124 { Ok(events) } else { Err(format!("{}", events.len()).into()) }
    })?;
    audience.await_events(events.len(), SOON)?;
    audience.check_events(&events)?;
    eventually(SOON, || {
        let events = quick.events();
        let text = events.last().and_then(|event| event["object"]["data"]["text"].as_str());
        let is_last = text.is_some_and(|text| text.starts_with(&last));
        if is_last { Ok(()) } else { Err("not yet".into()) }
    })?;
    for watch in &slow {
        await_end(watch, SOON)?;
        assert!(watch.events().len() < quick.events().len(), "the slow watch received every event");
    }
    assert!(!quick.is_over());
    audience.check_events(&events)
}

fn watches_are_visible_in_metrics(scene: &WatchFixture) -> Outcome {
    let WatchFixture { served, reads, token, team, .. } = scene;
    let path = format!("/api/v1/namespaces/{team}/configmaps?watch=1&resourceVersion=0");
    let watch = reads.watch(token, &path, ANY)?;
    let is_ours = |watcher: &&Value| {
        watcher["namespace"] == json!(team) && watcher["resource"] == "configmaps"
    };
    let (one, open) = eventually(SOON, || {
        let (code, open) = served.operator.ask("/debug/watchers")?;
        let open: Value = serde_json::from_str(&open)?;
        let one = open["watchers"].as_array().into_iter().flatten().find(is_ours);
        match one.filter(|one| one["position"].is_string()) {
            Some(one) if !watch.events().is_empty() => Ok((one.clone(), open)),
            _ => Err(format!("{code}: {open:#}").into()),
        }
    })?;
    assert_eq!((&one["behind"], one["who"].as_str().map(str::len)), (&json!(0), Some(16)), "{one}");
    assert!(!open.to_string().contains("reader"), "{open:#}");
    let (_, metrics) = served.operator.ask("/metrics")?;
    for line in [
        r#"kubewarm_read_watches{group="",resource="configmaps",version="v1"} "#,
        r#"kubewarm_read_watch_ends_total{reason="rejected"} "#,
        r#"kubewarm_read_watch_ends_total{reason="slow"} 20"#,
        r#"kubewarm_read_watch_ends_total{reason="expired"} "#,
        r#"kubewarm_read_watch_ends_total{reason="timeout"} "#,
        r#"kubewarm_read_watch_ends_total{reason="client"} "#,
        r#"kubewarm_read_watch_events_total{group="",resource="configmaps",version="v1"} "#,
        r#"kubewarm_read_requests_total{code="200",group="",handler="watch",outcome="success",resource="configmaps",version="v1"} "#,
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    Ok(())
}

/// The writes during the compared watches.
fn write(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, team, .. } = scene;
    let cluster = &world.cluster;
    for (name, app, text) in [
        ("red", "web", "1"),
        ("blue", "web", "1"),
        ("blue", "api", "1"),
        ("blue", "api", "2"),
        ("blue", "web", "2"),
        ("green", "web", "1"),
    ] {
        cluster.apply(&setting(team, name, app, text))?;
    }
    cluster.run(["delete", "configmap", "red", "-n", team])?;
    cluster.run(["create", "configmap", "red", "-n", team])?;
    cluster.run(["label", "configmap", "green", "app-", "-n", team])?;
    cluster.apply(&format!(
        "{{apiVersion: example.com/v1, kind: Part, metadata: {{name: bolt, namespace: {team}}}, \
         spec: {{size: 3}}}}"
    ))?;
    cluster.run(["label", "part", "bolt", "app=web", "-n", team])?;
    cluster.run(["delete", "part", "bolt", "-n", team])?;
    // The last events of each kind. Each watch with a label selector receives the deletion of
    // `last`, so it shows that the watch is complete.
    cluster.apply(&setting(team, "last", "api", "0"))?;
    cluster.apply(&setting(team, "last", "web", "0"))?;
    cluster.run(["delete", "configmap", "last", "-n", team])?;
    cluster.apply(&format!(
        "{{apiVersion: example.com/v1, kind: Part, metadata: {{name: last, namespace: {team}, \
         labels: {{app: web}}}}}}"
    ))?;
    cluster.run(["delete", "part", "last", "-n", team])?;
    Ok(())
}

fn events_are_the_same(scene: &WatchFixture) -> Outcome {
    let WatchFixture { api, reads, token, team, .. } = scene;
    let settings = format!("/api/v1/namespaces/{team}/configmaps");
    let parts = format!("/apis/example.com/v1/namespaces/{team}/parts");
    // The watches start at the cache's version, because the API server also has each version that
    // the cache has.
    let list = reads.get(token, &settings)?.json();
    let since = list["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned();
    let of_parts = reads.get(token, &parts)?.json();
    let of_parts = of_parts["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned();
    let initial =
        "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true";
    let mut pairs = Vec::new();
    for (path, query, accept) in [
        (&*settings, String::new(), ANY),
        (&settings, "resourceVersion=0".to_owned(), ANY),
        (&settings, format!("resourceVersion={since}"), ANY),
        (&settings, format!("resourceVersion={since}"), METADATA),
        (&settings, format!("resourceVersion={since}&labelSelector=app%3Dweb"), ANY),
        (&settings, format!("resourceVersion={since}&labelSelector=app!%3Dweb"), METADATA),
        (&settings, "resourceVersion=0&fieldSelector=metadata.name%3Dred".to_owned(), ANY),
        (&settings, "resourceVersion=0&fieldSelector=metadata.name!%3Dred".to_owned(), ANY),
        (&settings, initial.to_owned(), ANY),
        (&settings, format!("{initial}&resourceVersion={since}&labelSelector=app"), METADATA),
        (&settings, initial.replace("=true&allow", "=false&allow"), ANY),
        (&parts, initial.to_owned(), ANY),
        (&parts, format!("resourceVersion={of_parts}"), METADATA),
        (&parts, "resourceVersion=0&labelSelector=app".to_owned(), ANY),
    ] {
        let path = format!("{path}?watch=true&{query}");
        let ours = reads.watch(token, &path, accept)?;
        let theirs = api.watch(token, &path, accept)?;
        assert_eq!((ours.code, theirs.code), (200, 200), "{path}");
        for name in ["content-type", "cache-control"] {
            assert_eq!(ours.headers.get(name), theirs.headers.get(name), "{path}");
        }
        pairs.push((format!("{path} ({accept})"), ours, theirs));
    }
    write(scene)?;
    receive_equal_events(&pairs);
    Ok(())
}

/// Returns whether a watch has received its last event: the deletion of `last`, or any event if its
/// selector excludes `last`.
fn receives_all_events(path: &str, events: &[Value]) -> bool {
    let selects_last = !path.contains("metadata.name%3Dred");
    let is_end =
        |event: &Value| event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "last";
    if selects_last { events.iter().any(is_end) } else { !events.is_empty() }
}

/// Compares both servers' watches of each path.
fn receive_equal_events(pairs: &[(String, Watch, Watch)]) {
    let mut different = Vec::new();
    for (path, ours, theirs) in pairs {
        let same = eventually(SOON, || {
            let marks_agree = marks(ours).len() == marks(theirs).len();
            let (ours, theirs) = (changes(ours), changes(theirs));
            let are_complete =
                receives_all_events(path, &ours) && receives_all_events(path, &theirs);
            if ours == theirs && marks_agree && are_complete {
                return Ok(());
            }
            Err(format!("{path}\n ours: {}\n theirs: {}", json!(ours), json!(theirs)).into())
        });
        if let Err(difference) = same {
            different.push(difference.to_string());
        }
        assert!(!ours.is_over() && !theirs.is_over(), "{path}");
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

fn version(object: &Value) -> Result<u64, Failure> {
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.ok_or_else(|| format!("no version: {object}"))?.parse()?)
}

/// A watch can resume from each version of the past.
fn a_resumed_watch_receives_the_missed_events(scene: &WatchFixture) -> Outcome {
    let WatchFixture { api, reads, token, writer, team, .. } = scene;
    let all = format!("/api/v1/namespaces/{team}/configmaps");
    // The versions come from the cache, which is never ahead of the API server. So both servers can
    // watch from them.
    let mut versions = vec![version(&reads.get(token, &all)?.json())?];
    let write = |name: &str, method: &str, app: &str| -> Result<Value, Failure> {
        let path = if method == "POST" { all.clone() } else { format!("{all}/{name}") };
        let body = match method {
            "DELETE" => json!({}),
            _ => json!({"metadata": {"name": name, "labels": {"app": app}}, "data": {"text": app}}),
        };
        let done = api.write(writer, (method, &path), &body)?;
        assert!([200, 201].contains(&done.code), "{method} {path}: {done:?}");
        Ok(done.json())
    };
    for (method, name, app) in [
        ("POST", "north", "web"),
        ("PATCH", "north", "api"),
        ("POST", "south", "web"),
        ("PATCH", "north", "web"),
        ("DELETE", "south", ""),
        ("POST", "south", "api"),
        ("PATCH", "south", "web"),
        ("DELETE", "north", ""),
        ("PATCH", "south", "api"),
    ] {
        let written = write(name, method, app)?;
        // The response to a deletion contains no version of the deletion.
        if method != "DELETE" {
            versions.push(version(&written)?);
        }
    }
    let newest = versions.last().ok_or("no version")?;
    let got = reads.get(token, &format!("{all}/south?resourceVersion={newest}"))?;
    assert_eq!((got.code, version(&got.json())?), (200, *newest), "{got:?}");

    let mut pairs = Vec::new();
    for since in &versions {
        for (query, accept) in [
            ("", ANY),
            ("&labelSelector=app%3Dweb", METADATA),
            ("&labelSelector=app!%3Dweb", ANY),
            ("&fieldSelector=metadata.name!%3Dsouth&allowWatchBookmarks=true", ANY),
        ] {
            let path = format!("{all}?watch=true&resourceVersion={since}{query}");
            let (ours, theirs) =
                (reads.watch(token, &path, accept)?, api.watch(token, &path, accept)?);
            assert_eq!((ours.code, theirs.code), (200, 200), "{path}");
            pairs.push((path, ours, theirs));
        }
    }
    for (method, app) in [("POST", "api"), ("PATCH", "web"), ("DELETE", "")] {
        write("last", method, app)?;
    }
    receive_equal_events(&pairs);
    // How many events each watch must have received: the writes since its start version, including
    // deletions and the last three writes.
    let events: Vec<_> = pairs.iter().step_by(4).map(|(_, ours, _)| changes(ours).len()).collect();
    assert_eq!(events, [12, 11, 10, 9, 8, 6, 5, 3]);
    Ok(())
}

/// A client can resume from the last bookmark without a list. A watch without `allowWatchBookmarks`
/// receives none.
fn the_last_bookmark_comes_before_the_end(scene: &WatchFixture) -> Outcome {
    let WatchFixture { api, reads, token, team, .. } = scene;
    let settings = format!("/api/v1/namespaces/{team}/configmaps");
    let parts = format!("/apis/example.com/v1/namespaces/{team}/parts");
    let mut expected = Vec::new();
    for (path, accept) in
        [(&settings, ANY), (&settings, METADATA), (&parts, ANY), (&parts, METADATA)]
    {
        // A watch with initial events also gets a bookmark at their end. In the API server, this
        // bookmark has the same form as the last one.
        let state = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
        let marked = format!("{path}?watch=true&allowWatchBookmarks=true&{state}");
        let theirs = api.watch(token, &marked, accept)?;
        let mark = eventually(SOON, || Ok(marks(&theirs).pop().ok_or("no bookmark")?))?;
        expected.push((path, accept, without_place(&mark)));
    }
    // The process may stand still on a busy machine and send no bookmark, so the test tries again.
    eventually(SOON, || {
        let mut watches = Vec::new();
        for (path, accept, bookmark) in &expected {
            let since = version(&reads.get(token, path)?.json())?;
            let path = format!("{path}?watch=true&resourceVersion={since}&timeoutSeconds={BRIEF}");
            let silent = reads.watch(token, &path, accept)?;
            let path = format!("{path}&allowWatchBookmarks=true");
            watches.push((reads.watch(token, &path, accept)?, silent, since, bookmark, path));
        }
        let text = json!({"data": {"text": fastrand::u64(..).to_string()}});
        let green = format!("{settings}/green");
        let done = api.write(&scene.writer, ("PATCH", &green), &text)?;
        assert_eq!(done.code, 200, "{done:?}");
        for (watch, silent, since, bookmark, path) in &watches {
            await_end(watch, SOON)?;
            await_end(silent, SOON)?;
            assert_eq!(changes(silent), silent.events(), "{path}: an unrequested bookmark");
            assert_eq!(changes(silent), changes(watch), "{path}");
            let events = watch.events();
            let mut newest = *since;
            for event in &events {
                let version = version(&event["object"])?;
                assert!(version >= newest, "{path}: the version decreases: {}", json!(events));
                newest = version;
            }
            let last = events.iter().rfind(|event| event["type"] == "BOOKMARK");
            let last = last.ok_or_else(|| format!("{path}: no bookmark: {}", json!(events)))?;
            assert_eq!(&without_place(last), *bookmark, "{path}");
            assert_eq!(marks(watch), Vec::<Value>::new(), "{path}: no initial events");
        }
        Ok(())
    })
}

/// The object of a bookmark without its version and annotations, which differ between the servers.
fn without_place(bookmark: &Value) -> Value {
    let mut object = bookmark["object"].clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
        metadata.remove("resourceVersion");
    }
    object
}

/// Reads the results of the consistency checks, which ran during all tests above at the highest
/// rate that a profile may set.
fn consistency_checks_find_no_difference(scene: &WatchFixture) -> Outcome {
    let WatchFixture { world, served, .. } = scene;
    let checked = |resource: &str| -> Result<[f64; 2], Failure> {
        let resource = format!("resource=\"{resource}\"");
        let figures = Exposition::read(&served.operator)?;
        let labels = [&*resource, "outcome=\"success\""];
        let completed = figures.sum("kubewarm_consistency_checks_total", &labels);
        let different = figures.sum("kubewarm_consistency_differences_total", &[&*resource]);
        Ok([completed - different, different])
    };
    for resource in ["configmaps", "parts"] {
        eventually(SOON, || match checked(resource)? {
            [0.0..2.0, _] => Err(format!("{resource}: no comparison was equal").into()),
            _ => Ok(()),
        })?;
        assert!(checked(resource)?[1] < 1.0, "{resource}");
    }
    let profile = Profile { world, namespace: NAMESPACE, name: "everything" }.read()?;
    for name in ["settings", "parts"] {
        let target = target(&profile, name).ok_or_else(|| format!("{profile:#}"))?;
        assert_eq!(target.get("lastRelist"), None, "{target:#}");
    }
    Ok(())
}

fn invalid_watches_are_rejected(scene: &WatchFixture) -> Outcome {
    let WatchFixture { reads, token, team, .. } = scene;
    let settings = format!("/api/v1/namespaces/{team}/configmaps?watch=1");
    let reply = reads.get(token, &format!("{settings}&resourceVersion=abc"))?;
    assert_eq!(reply.code, 400, "{reply:?}");
    // The version 1 is no longer in the event log. The server reports this in the first event of
    // the watch.
    let path = format!("{settings}&resourceVersion=1&timeoutSeconds=5");
    let watch = reads.watch(token, &path, ANY)?;
    await_end(&watch, SOON)?;
    let events = watch.events();
    let [event] = &events[..] else { return Err(format!("{events:?}").into()) };
    assert_eq!((watch.code, &event["type"]), (200, &json!("ERROR")), "{event}");
    let status = (&event["object"]["code"], &event["object"]["reason"]);
    assert_eq!(status, (&json!(410), &json!("Expired")), "{event}");
    let text = event["object"]["message"].as_str().unwrap_or_default();
    assert!(text.starts_with("too old resource version: 1 ("), "{text}");
    let path = format!("{settings}&timeoutSeconds=1&resourceVersion=0");
    let watch = reads.watch(token, &path, METADATA_LIST)?;
    assert_eq!(watch.code, 406);
    let watch = reads.watch(token, &path, ANY)?;
    await_end(&watch, SOON)
}
