//! The consistencies of profiles (`Strict`, `Bounded`, `Eventual`): how recent responses are, and
//! when kubewarm returns an error instead.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{HttpReply, Served, Server, account, let_read, let_write};
use crate::figures::informer;
use crate::operator::NAMESPACE;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Timeout for a state to become stale: ten times the staleness limit of the profiles.
const LATER: Duration = Duration::from_secs(100);
/// The number of writes. A read follows each write at once.
const ROUNDS: usize = 50;
const READERS: usize = 100;
/// How long the API server is frozen: less than the 6 s for which a strict read waits.
const FREEZE: Duration = Duration::from_secs(1);

/// One namespace for each consistency, with a profile of this consistency.
struct ConsistencyFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    strict: String,
    bounded: String,
    eventual: String,
}

fn spec(mode: &str, reads: &str) -> String {
    format!(
        "{{mode: {mode}, reads: {reads}, freshness: {{maxStalenessSeconds: 10}},
           targets: [{{name: settings, resource: configmaps}}]}}"
    )
}

impl ConsistencyFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::alone()?;
        let served = Served::start(&world, &[])?;
        let token = account(&world, NAMESPACE, "reader")?;
        let_read(&world, (NAMESPACE, "reader"), None)?;
        let_write(&world, (NAMESPACE, "reader"), None)?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        let name = |name| world.namespace(name);
        let (strict, bounded, eventual) = (name("strict")?, name("bounded")?, name("eventual")?);
        let scene = Self { world, served, api, reads, token, strict, bounded, eventual };
        for (namespace, serving) in scene.profiles() {
            let profile = Profile::apply(&scene.world, namespace, "p", &spec("Active", serving))?;
            profile.await_manifests()?;
            profile.grant()?;
            profile.await_condition("Ready", "True", None, SOON)?;
        }
        Ok(scene)
    }

    fn profiles(&self) -> [(&str, &'static str); 3] {
        [
            (&self.strict, "{consistency: Strict}"),
            (&self.bounded, "{consistency: Bounded}"),
            (&self.eventual, "{consistency: Eventual, coldReadTimeoutSeconds: 0}"),
        ]
    }

    fn list(&self, namespace: &str) -> Result<HttpReply, Failure> {
        self.reads.get(&self.token, &configmaps(namespace))
    }

    fn code(&self, namespace: &str) -> Result<u16, Failure> {
        Ok(self.list(namespace)?.code)
    }
}

fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn named(list: &Value, name: &str) -> bool {
    let items = list["items"].as_array().into_iter().flatten();
    items.into_iter().any(|item| item["metadata"]["name"] == *name)
}

#[test]
fn answers_are_as_recent_as_their_profile_requires() -> Outcome {
    let scene = ConsistencyFixture::start()?;
    a_read_contains_the_previous_write(&scene)?;
    a_read_waits_for_the_requested_version(&scene)?;
    a_future_version_gets_the_api_servers_error(&scene)?;
    readers_share_freshness_checks(&scene)?;
    a_frozen_server_confirms_no_read(&scene)?;
    stale_data_is_served_only_with_eventual_consistency(&scene)?;
    a_cold_store_is_rejected_at_once(&scene)
}

/// The caller writes through the API server and then reads from the cache.
fn a_read_contains_the_previous_write(scene: &ConsistencyFixture) -> Outcome {
    let ConsistencyFixture { api, reads, token, strict, .. } = scene;
    let all = configmaps(strict);
    for n in 0..ROUNDS {
        let name = format!("x{n}");
        let one = format!("{all}/{name}");
        let body = json!({"metadata": {"name": name}, "data": {"n": "0"}});
        assert_eq!(api.write(token, ("POST", &all), &body)?.code, 201);
        let listed = reads.get(token, &all)?;
        assert!(listed.code == 200 && named(&listed.json(), &name), "created: {listed:?}");
        if n % 10 == 0 {
            is_among_the_initial_events(scene, &all, &name)?;
        }
        let body = json!({"data": {"n": "1"}});
        let patched = api.write(token, ("PATCH", &one), &body)?.json();
        let got = reads.get(token, &one)?.json();
        assert_eq!(got["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
        // A write of another kind raises the API server's newest version, without an event for this
        // informer. The strict read must find out that its store is current anyway.
        let other = format!("/api/v1/namespaces/{strict}/serviceaccounts");
        let body = json!({"metadata": {"name": name}});
        assert_eq!(api.write(token, ("POST", &other), &body)?.code, 201);
        assert_eq!(reads.get(token, &one)?.code, 200);
        assert_eq!(api.write(token, ("DELETE", &one), &json!({}))?.code, 200);
        let gone = reads.get(token, &one)?;
        assert_eq!((gone.code, &gone.json()["reason"]), (404, &json!("NotFound")), "{gone:?}");
    }
    Ok(())
}

/// Reads with a watch that sends initial events, as informers do that list by streaming.
fn is_among_the_initial_events(scene: &ConsistencyFixture, all: &str, name: &str) -> Outcome {
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true";
    let matched = "resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let reply = scene.reads.get(&scene.token, &format!("{all}?{query}&{matched}"))?;
    let events = reply.text.lines().map(serde_json::from_str::<Value>);
    let events = events.collect::<Result<Vec<_>, _>>()?;
    let is_end = |event: &Value| {
        let notes = &event["object"]["metadata"]["annotations"];
        event["type"] == "BOOKMARK" && notes["k8s.io/initial-events-end"] == "true"
    };
    let mut initial = events.iter().take_while(|event| !is_end(event));
    let is_there = initial.any(|event| event["object"]["metadata"]["name"] == *name);
    assert!(is_there && events.iter().any(is_end), "{reply:?}");
    Ok(())
}

/// With every consistency, a read with the version of a write returns this version or a newer one.
/// An exact read returns exactly this version. The test writes nothing else.
fn a_read_waits_for_the_requested_version(scene: &ConsistencyFixture) -> Outcome {
    let ConsistencyFixture { api, reads, token, bounded, eventual, .. } = scene;
    for n in 0..ROUNDS {
        // The test leaves out strict profiles, because their responses are this recent even without
        // a version.
        let all = configmaps(if n % 2 == 0 { eventual } else { bounded });
        let name = format!("y{n}");
        let one = format!("{all}/{name}");
        let body = json!({"metadata": {"name": name}, "data": {"n": "0"}});
        let created = api.write(token, ("POST", &all), &body)?;
        assert_eq!(created.code, 201, "{created:?}");
        let at = version(&created.json())?;
        let got = reads.get(token, &format!("{one}?resourceVersion={at}"))?;
        assert_eq!((got.code, version(&got.json())?), (200, at), "created: {got:?}");

        let body = json!({"data": {"n": "1"}});
        let patched = api.write(token, ("PATCH", &one), &body)?;
        assert_eq!(patched.code, 200, "{patched:?}");
        let at = version(&patched.json())?;
        let matching = if n % 4 < 2 { "" } else { "&resourceVersionMatch=NotOlderThan" };
        let listed = reads.get(token, &format!("{all}?resourceVersion={at}{matching}"))?;
        assert_eq!(listed.code, 200, "patched: {listed:?}");
        let list = listed.json();
        let mut items = list["items"].as_array().into_iter().flatten();
        let item = items.find(|item| item["metadata"]["name"] == *name);
        let item = item.ok_or_else(|| format!("{name} is missing: {listed:?}"))?;
        assert_eq!((version(item)?, &item["data"]["n"]), (at, &json!("1")), "{item}");
        assert!(version(&list)? >= at, "{listed:?}");

        // The object changes again before the list. So the store has passed the requested version
        // when the list arrives, and kubewarm takes the older state from its event log.
        let exact = if n % 4 < 2 { "limit=500" } else { "resourceVersionMatch=Exact" };
        for value in ["first", "second", "third"] {
            let body = json!({"data": {"n": value}});
            let at = version(&api.write(token, ("PATCH", &one), &body)?.json())?;
            api.write(token, ("PATCH", &one), &json!({"data": {"n": "later"}}))?;
            let listed = reads.get(token, &format!("{all}?resourceVersion={at}&{exact}"))?;
            assert_eq!(listed.code, 200, "list at an exact version: {listed:?}");
            let list = listed.json();
            assert_eq!(version(&list)?, at, "{listed:?}");
            let mut items = list["items"].as_array().into_iter().flatten();
            let item = items.find(|item| item["metadata"]["name"] == *name);
            assert_eq!(item.map(|item| &item["data"]["n"]), Some(&json!(value)), "{listed:?}");
            let theirs = api.get(token, &format!("{all}?resourceVersion={at}&{exact}"))?.json();
            assert_eq!(states(&list)?, states(&theirs)?, "the list differs from the API server's");
        }
    }
    Ok(())
}

/// Returns name, version and data of each object in a list.
fn states(list: &Value) -> Result<Vec<(String, u64, Value)>, Failure> {
    let items = list["items"].as_array().ok_or("no items")?.iter();
    let state = |item: &Value| {
        Ok((item["metadata"]["name"].to_string(), version(item)?, item["data"].clone()))
    };
    items.map(state).collect()
}

fn version(object: &Value) -> Result<u64, Failure> {
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.ok_or_else(|| format!("no version: {object}"))?.parse()?)
}

fn a_future_version_gets_the_api_servers_error(scene: &ConsistencyFixture) -> Outcome {
    let all = configmaps(&scene.bounded);
    let future = version(&scene.api.get(&scene.token, &all)?.json())? + 1_000_000;
    let words = format!("Timeout: Too large resource version: {future}, current: ");
    for path in [
        format!("{all}?resourceVersion={future}"),
        format!("{all}?resourceVersion={future}&resourceVersionMatch=NotOlderThan&limit=5"),
        format!("{all}?resourceVersion={future}&resourceVersionMatch=Exact"),
        format!("{all}?resourceVersion={future}&limit=5"),
        // One of the objects exists and the other does not. Both requests get the same error,
        // because no store has reached this future version.
        format!("{all}/y1?resourceVersion={future}"),
        format!("{all}/none?resourceVersion={future}"),
    ] {
        // The message contains the newest version of the server, which differs between the servers.
        let refusal = |server: &Server| -> Result<_, Failure> {
            let reply = server.get(&scene.token, &path)?;
            let mut status = reply.json();
            let message = status["message"].as_str().unwrap_or_default();
            let current = message.strip_prefix(&words).unwrap_or_default().parse::<u64>();
            let current = current.map_err(|error| format!("{path}: {error}: {reply:?}"))?;
            assert!(current < future, "{path}: {reply:?}");
            status["message"] = json!(words);
            Ok((reply.code, reply.header("retry-after").to_owned(), status))
        };
        let (ours, theirs) = (refusal(&scene.reads)?, refusal(&scene.api)?);
        assert_eq!((ours.0, &ours), (504, &theirs), "{path}");
    }
    Ok(())
}

fn readers_share_freshness_checks(scene: &ConsistencyFixture) -> Outcome {
    // This read caches the access decision, so that the following reads send no access review to
    // the frozen API server.
    assert_eq!(scene.code(&scene.strict)?, 200);
    let before = std::fs::read_to_string(scene.world.cluster.audit_log())?.len();
    // The frozen API server delays the first freshness check, so that other readers arrive while it
    // waits.
    let server = scene.world.cluster.apiserver();
    server.freeze()?;
    let (codes, thawed) = std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS).map(|_| scope.spawn(|| scene.code(&scene.strict).ok())).collect();
        std::thread::sleep(FREEZE);
        let thawed = server.thaw();
        (readers.into_iter().map(|reader| reader.join().ok().flatten()).collect::<Vec<_>>(), thawed)
    });
    thawed?;
    assert!(codes.iter().all(|code| *code == Some(200)), "{codes:?}");
    let path = configmaps(&scene.strict);
    let log = std::fs::read_to_string(scene.world.cluster.audit_log())?;
    let checks = log.get(before..).unwrap_or_default().lines().filter(|line| {
        line.contains(&format!("{path}?limit=1000")) && line.contains("ResponseComplete")
    });
    let checks = checks.count();
    // Readers that wait together share one freshness check. On a busy machine, most readers can
    // arrive after the freeze and share none. Without sharing, there would be one request for each
    // reader.
    assert!((1..READERS).contains(&checks), "{checks} requests for {READERS} readers");
    Ok(())
}

fn a_frozen_server_confirms_no_read(scene: &ConsistencyFixture) -> Outcome {
    let ConsistencyFixture { strict, bounded, eventual, .. } = scene;
    // These reads before the freeze also cache the access decisions.
    assert_eq!([strict, bounded, eventual].map(|read| scene.code(read).ok()), [Some(200); 3]);
    scene.world.cluster.apiserver().freeze()?;
    let answers = || -> Result<_, Failure> {
        Ok((scene.code(bounded)?, scene.code(eventual)?, scene.list(strict)?))
    };
    let answers = answers();
    scene.world.cluster.apiserver().thaw()?;
    let (bounded, eventual, refused) = answers?;
    assert_eq!((bounded, eventual, refused.code), (200, 200, 504), "{refused:?}");
    assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
    eventually(SOON, || match scene.code(strict)? {
        200 => Ok(()),
        code => Err(format!("{code}").into()),
    })
}

/// Pauses the profiles. Their stores become stale while everything else continues.
fn stale_data_is_served_only_with_eventual_consistency(scene: &ConsistencyFixture) -> Outcome {
    for (namespace, serving) in scene.profiles() {
        Profile::apply(&scene.world, namespace, "p", &spec("Paused", serving))?;
    }
    // Until an informer is paused, its freshness checks succeed and reads are fresh. The profile's
    // condition does not show when its informer is paused, so the test reads the informer's state.
    for (namespace, _) in scene.profiles() {
        eventually(SOON, || {
            let informer = informer(&scene.served.operator, namespace, "configmaps")?;
            if informer["state"] == "Paused" { Ok(()) } else { Err(format!("{informer:#}").into()) }
        })?;
    }
    eventually(LATER, || match scene.code(&scene.bounded)? {
        504 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    assert_eq!(scene.code(&scene.strict)?, 504);
    eventually(LATER, || {
        let late = scene.list(&scene.eventual)?;
        assert_eq!(late.code, 200, "{late:?}");
        let warning = late.header("warning");
        if warning.starts_with("299 - ") { Ok(()) } else { Err(format!("{late:?}").into()) }
    })?;
    // A watch that starts with stale data also has the warning.
    let all = configmaps(&scene.eventual);
    let watched = scene
        .reads
        .get(&scene.token, &format!("{all}?watch=1&resourceVersion=0&timeoutSeconds=1"))?;
    assert_eq!(watched.code, 200, "{watched:?}");
    assert!(watched.header("warning").starts_with("299 - "), "{watched:?}");
    // A 404 needs a fresh store, so the answer for a missing object is 504.
    let none = format!("{}/none", configmaps(&scene.eventual));
    assert_eq!(scene.reads.get(&scene.token, &none)?.code, 504);
    Ok(())
}

fn a_cold_store_is_rejected_at_once(scene: &ConsistencyFixture) -> Outcome {
    let spec = "{reads: {coldReadTimeoutSeconds: 0}, targets: [{name: all, resource: services}]}";
    let profile = Profile::apply(&scene.world, &scene.eventual, "cold", spec)?;
    profile.await_manifests()?;
    let path = format!("/api/v1/namespaces/{}/services", scene.eventual);
    let began = std::time::Instant::now();
    let reply = scene.reads.get(&scene.token, &path)?;
    assert_eq!((reply.code, &reply.json()["reason"]), (503, &json!("ServiceUnavailable")));
    assert!(began.elapsed() < Duration::from_secs(3), "the refusal was delayed");
    Ok(())
}
