//! Reads from the cache return the API server's responses, and kubewarm permits what the API server
//! permits.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::accept::AGGREGATED;
use crate::api::{Served, Server, account, api_kubectl, let_read};
use crate::cases::access::decisions;
use crate::cases::access::own_tokens;
use crate::cases::access::readers;
use crate::cases::access::token_audience;
use crate::cases::reads::abuse;
use crate::cases::reads::indexed;
use crate::cases::reads::openapi;
use crate::cases::reads::replay::{self, Players, replay, replay_random};
use crate::cases::reads::user_limits;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, target};
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Timeout for the end of a revoked permission: kubewarm uses an access decision for 10 s.
const REVOKED: Duration = Duration::from_secs(15);
/// How long the test reads from a connection that stays open after the response.
const ANSWERED: Duration = Duration::from_secs(10);
/// The number of random requests, which take about 20 s. The test in `slow/replay.rs` sends many
/// more.
const RANDOM_REQUESTS: usize = 2_000;
/// Targets for reads of the whole cluster, in the operator's namespace, in addition to
/// [`replay::TARGETS`].
const EVERYTHING: &str = "
  {name: settings, resource: configmaps, scope: {type: AllNamespaces}, projection: {managedFields: Keep},
   indexes: [{name: tone, fieldPath: data.tone}]},
  {name: pods, resource: pods, scope: {type: AllNamespaces}, projection: {managedFields: Keep},
   indexes: [{name: by-node, fieldPath: spec.nodeName}, {name: by-app, fieldPath: metadata.labels.app}]},
  {name: services, resource: services, scope: {type: AllNamespaces}, projection: {managedFields: Keep}},
  {name: namespaces, resource: namespaces, scope: {type: Cluster}, projection: {managedFields: Keep}},
  {name: roles, group: rbac.authorization.k8s.io, resource: clusterroles, scope: {type: Cluster}, projection: {managedFields: Keep}},
  {name: parts, group: example.com, resource: parts, scope: {type: AllNamespaces}, projection: {managedFields: Keep},
   indexes: [{name: hole, fieldPath: 'spec.holes[*].at'}]},
  {name: secrets, resource: secrets, scope: {type: AllNamespaces}, projection: {type: Metadata}},";
/// The objects in the namespaces `a` and `b`.
fn contents(a: &str, b: &str) -> String {
    let settings = [
        ("red", "app: web, tier: '1'"),
        ("green", "app: web, tier: '2', example.com/x: ''"),
        ("blue", "app: api, tier: '3'"),
        ("plain", ""),
        ("odd", "tier: many"),
    ];
    let settings = settings.iter().flat_map(|(name, labels)| {
        [a, b].map(|namespace| {
            format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}, \
                 labels: {{{labels}}}}}, data: {{text: \"é \\\\u003c 1e400 {name}\"}}}}"
            )
        })
    });
    let pods = ["one", "two", "three"].iter().enumerate().map(|(number, name)| {
        let node = if number == 0 { "nodeName: n1, " } else { "" };
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {a}, labels: {{app: {name}}}}}, \
             spec: {{{node}restartPolicy: Never, automountServiceAccountToken: false, \
             containers: [{{name: c, image: example.com/none}}]}}}}"
        )
    });
    let parts = ["bolt", "nut"].iter().map(|name| {
        format!(
            "{{apiVersion: example.com/v1, kind: Part, metadata: {{name: {name}, namespace: {a}, \
             labels: {{app: {name}}}}}, spec: {{size: 3, big: 12345678901234567}}}}"
        )
    });
    let secret = format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: hidden, namespace: {a}}}, \
         stringData: {{word: sesame}}}}"
    );
    let all: Vec<_> = settings.chain(pods).chain(parts).chain([secret]).collect();
    format!("{{apiVersion: v1, kind: List, items: [{}]}}", all.join(", "))
}

/// A cluster with objects, and an operator that serves all of them to the account `reader`.
struct ReadFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    a: String,
    b: String,
}

impl ReadFixture {
    fn start(flags: &[&str]) -> Result<Self, Failure> {
        let world = World::lease()?;
        let served = Served::start(&world, flags)?;
        Operator::grant_reading(&world)?;
        world.define_parts()?;
        world.cluster.apply(replay::DEFINITIONS)?;
        world.cluster.run(["wait", "--for=condition=Established", "crd", "--all"])?;
        eventually(SOON, || Ok(world.cluster.run(["get", "parts,widgets,planets", "-A"])?))?;
        let (a, b) = (world.namespace("team")?, world.namespace("other")?);
        let has_account = ["get", "serviceaccount", "default", "-n", &a];
        eventually(SOON, || Ok(world.cluster.run(has_account)?))?;
        world.cluster.apply(&contents(&a, &b))?;
        world.cluster.apply(&replay::objects(&a))?;
        let token = account(&world, &a, "reader")?;
        let_read(&world, (&a, "reader"), None)?;
        let everything = format!("{{targets: [{EVERYTHING}{}]}}", replay::TARGETS);
        let profile = Profile::apply(&world, NAMESPACE, "everything", &everything)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        Ok(Self { world, served, api, reads, token, a, b })
    }
}

/// Sends random requests to kubewarm with these flags, and to the API server.
pub(crate) fn random_requests_match_the_api_servers_answers(
    count: usize,
    flags: &[&str],
) -> Outcome {
    let scene = ReadFixture::start(flags)?;
    let ReadFixture { api, reads, token, .. } = &scene;
    replay_random(&Players { api, reads, token, forwards: !flags.is_empty() }, &scene.a, count)
}

#[test]
fn reads_match_the_api_servers_answers_and_authorization() -> Outcome {
    let scene = ReadFixture::start(&[])?;
    let ReadFixture { api, reads, token, .. } = &scene;
    let players = Players { api, reads, token, forwards: false };
    replay(&players, &scene.a)?;
    replay_random(&players, &scene.a, RANDOM_REQUESTS)?;
    discovery_of_a_profile_has_the_same_order(&scene)?;
    lists_and_watches_are_in_one_order(&scene)?;
    only_the_cache_sends_these_headers_and_errors(&scene)?;
    pages_have_one_version(&scene)?;
    a_watch_by_websocket_is_an_ordinary_watch(&scene)?;
    kubectl_reads_from_the_cache(&scene)?;
    indexed::objects_are_selected(&scene.world, &scene.served, (api, reads), token, &scene.a)?;
    openapi::is_not_served(&scene.world, &scene.served, (api, reads), token)?;
    abuse::check_other_clients_are_unaffected(&scene.served, token, &scene.a)?;
    no_caller_reads_more_than_its_permissions(&scene)?;
    decisions::decisions_outlast_refused_informers(
        &scene.world,
        &scene.served,
        (reads, token),
        &scene.a,
    )?;
    readers::get_what_they_may_read(&readers::ComparedServers {
        world: &scene.world,
        api,
        reads,
        profile: &format!("{NAMESPACE}/everything"),
        a: &scene.a,
        b: &scene.b,
    })?;
    the_status_contains_read_latencies(&scene)
}

/// kubewarm answers this request with an ordinary watch. The API server answers 101, and
/// docs/reading.md names this difference.
fn a_watch_by_websocket_is_an_ordinary_watch(scene: &ReadFixture) -> Outcome {
    let ReadFixture { served, token, a, .. } = scene;
    let request = format!(
        "GET /api/v1/namespaces/{a}/configmaps?watch=true&timeoutSeconds=1 HTTP/1.1\r\nHost: x\r\n\
         Authorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let peer = abuse::Peer::of(served, token)?;
    let answer = Runtime::new()?.block_on(peer.send(request.as_bytes(), ANSWERED));
    let answer = answer.map_err(|fault| fault.to_string())?.ok_or("no answer")?;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert!(!answer.head.contains("upgrade: websocket"), "{answer:?}");
    let body = String::from_utf8_lossy(&answer.body);
    assert!(body.contains(r#"{"type":"ADDED","object":{"#), "{body}");
    Ok(())
}

/// kubewarm writes latencies only together with another change of the status. Here this change is
/// the object counts of the earlier tests, which kubewarm writes within a minute.
fn the_status_contains_read_latencies(scene: &ReadFixture) -> Outcome {
    let profile = Profile { world: &scene.world, namespace: NAMESPACE, name: "everything" };
    let took = |profile: &Value| {
        let took = target(profile, "settings")?.pointer("/latencyMilliseconds/read")?;
        Some((took["p50"].as_u64()?, took["p99"].as_u64()?))
    };
    let timed = profile.await_that(SOON, |profile| took(profile).map(drop))?;
    let (half, most) = took(&timed).ok_or("no times")?;
    assert!(half <= most, "{half} ms, {most} ms");
    Ok(())
}

/// The fixture's only profile declares all kinds, so its discovery documents must equal kubewarm's
/// general documents. The replay compares the general documents with the API server's.
fn discovery_of_a_profile_has_the_same_order(scene: &ReadFixture) -> Outcome {
    let ReadFixture { reads, token, .. } = scene;
    let profile = format!("/profiles/{NAMESPACE}/everything");
    for path in ["/api", "/api/v1", "/apis", "/apis/autoscaling", "/apis/autoscaling/v2"] {
        for accept in ["application/json", replay::AGGREGATED_FIRST] {
            let all = reads.get_as(token, path, accept)?.json();
            let document = reads.get_as(token, &format!("{profile}{path}"), accept)?.json();
            assert_eq!(document, all, "{path} {accept}");
        }
    }
    Ok(())
}

/// Lists and watches have the order of etcd's keys. `zone` and `zone-a` test this order: etcd
/// compares `zone/` with `zone-a/`, and `-` comes before `/`.
fn lists_and_watches_are_in_one_order(scene: &ReadFixture) -> Outcome {
    let ReadFixture { api, reads, token, .. } = scene;
    let path = "/api/v1/configmaps?labelSelector=app%3Dzoned";
    let order = ["zone-a/of-zone-a", "zone/of-zone"];
    let watch = format!("{path}&watch=true&resourceVersion=0");
    for server in [reads, api] {
        assert_eq!(names(&server.get(token, path)?.json()), order);
        let watch = server.watch(token, &watch, "*/*")?;
        eventually(SOON, || {
            let objects = watch.events().into_iter().map(|mut event| event["object"].take());
            let seen = names(&json!({"items": objects.collect::<Vec<_>>()}));
            if seen.len() == order.len() {
                assert_eq!(seen, order);
            }
            if seen == order { Ok(()) } else { Err(format!("{seen:?}").into()) }
        })?;
    }
    Ok(())
}

fn only_the_cache_sends_these_headers_and_errors(scene: &ReadFixture) -> Outcome {
    let ReadFixture { reads, token, a, .. } = scene;
    let reply = reads.get(token, &format!("/api/v1/namespaces/{a}/configmaps"))?;
    let age: u64 = reply.header("kubewarm-freshness-milliseconds").parse()?;
    assert!(age < 120_000 && reply.header("warning").is_empty(), "{reply:?}");
    assert_eq!(reply.header("kubewarm-informer").len(), 16, "{reply:?}");
    assert_eq!(reply.header("content-type"), "application/json");
    let watch = format!("/api/v1/namespaces/{a}/configmaps?watch=1&timeoutSeconds=1");
    let watched = reads.get(token, &watch)?;
    let age: u64 = watched.header("kubewarm-freshness-milliseconds").parse()?;
    assert!(age < 120_000 && watched.header("warning").is_empty(), "{watched:?}");
    assert_eq!(
        watched.header("kubewarm-informer"),
        reply.header("kubewarm-informer"),
        "{watched:?}"
    );
    for path in [
        "/api/v1/limitranges".to_owned(),
        format!("/api/v1/namespaces/{a}/limitranges/x"),
        "/apis/apps/v1/daemonsets".to_owned(),
        format!("/api/v1/namespaces/{a}/pods/one/log"),
        format!("/api/v1/watch/namespaces/{a}/configmaps"),
    ] {
        let reply = reads.get(token, &path)?;
        assert_eq!((reply.code, &reply.json()["reason"]), (421, &json!("NotCached")), "{path}");
    }
    let whole = reads.get(token, &format!("/api/v1/namespaces/{a}/secrets/hidden"))?;
    assert_eq!(whole.code, 406, "{whole:?}");
    // The client sends the `ETag` of a discovery document that it has stored, so the server answers
    // 304.
    let bearer = format!("Bearer {token}");
    for path in ["/api", "/apis"] {
        let first = reads.get_as(token, path, AGGREGATED)?;
        assert_eq!((first.code, first.header("vary")), (200, "Accept"), "{first:?}");
        assert!(first.text.contains("\"watch\""), "{first:?}");
        let headers = [
            ("authorization", &*bearer),
            ("accept", AGGREGATED),
            ("if-none-match", first.header("etag")),
        ];
        assert_eq!(reads.ask("GET", path, &headers)?.code, 304);
    }
    assert_eq!(reads.get(token, "/apis/policy")?.code, 404);
    assert_eq!(reads.get(token, "/apis/policy/v1")?.code, 404);
    let kinds = reads.get(token, "/api/v1")?.json();
    let names: Vec<_> = kinds["resources"].as_array().into_iter().flatten().collect();
    let names: Vec<_> = names.iter().filter_map(|resource| resource["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "configmaps",
            "events",
            "namespaces",
            "nodes",
            "pods",
            "replicationcontrollers",
            "secrets",
            "services"
        ]
    );
    Ok(())
}

/// The names in a list, as `namespace/name`.
pub(crate) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |object: &Value| {
        format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
    };
    items.map(name).collect()
}

fn pages_have_one_version(scene: &ReadFixture) -> Outcome {
    let ReadFixture { world, reads, token, a, .. } = scene;
    let many = (0..120).map(|n| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: page-{n:03}, namespace: {a}}}}}"
        )
    });
    let many = many.collect::<Vec<_>>().join(", ");
    world.cluster.apply(&format!("{{apiVersion: v1, kind: List, items: [{many}]}}"))?;
    let base = format!("/api/v1/namespaces/{a}/configmaps");
    let whole = eventually(SOON, || {
        let whole = reads.get(token, &base)?.json();
        if names(&whole).len() >= 126 { Ok(whole) } else { Err("some objects are missing".into()) }
    })?;
    let mut items = Vec::new();
    let mut next = String::new();
    let mut versions = BTreeSet::new();
    let mut remaining = Vec::new();
    loop {
        let reply = reads.get(token, &format!("{base}?limit=50&continue={next}"))?;
        let page = reply.json();
        assert_eq!(reply.code, 200, "{page}");
        items.extend(names(&page));
        versions
            .insert(page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
        remaining.push(page["metadata"]["remainingItemCount"].as_u64());
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.clone_into(&mut next),
            Some(_) | None => break,
        }
        // This object is deleted between two pages. The later pages must still show the list's
        // first version.
        let gone = format!("page-{:03}", 100 + remaining.len());
        world.cluster.run(["delete", "configmap", &gone, "-n", a])?;
        eventually(SOON, || match reads.get(token, &format!("{base}/{gone}"))?.code {
            404 => Ok(()),
            code => Err(format!("{code}").into()),
        })?;
    }
    assert_eq!(items, names(&whole));
    let at = versions.first().ok_or("no version")?;
    let exact =
        reads.get(token, &format!("{base}?resourceVersion={at}&resourceVersionMatch=Exact"))?;
    assert_eq!((exact.code, names(&exact.json())), (200, names(&whole)), "{exact:?}");
    assert_eq!((versions.len(), remaining.len()), (1, 3), "{versions:?} {remaining:?}");
    assert!(remaining[0].is_some() && remaining[2].is_none(), "{remaining:?}");

    // Changes of more than 1 MiB drop this list's version from the event log of a small store. The
    // error 410 contains a continue token for the newest version.
    let first = reads.get(token, &format!("{base}?limit=3"))?.json();
    let next = first["metadata"]["continue"].as_str().ok_or("no token")?;
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..4 {
        let text: String = (0..700_000).map(|_| random.alphanumeric()).collect();
        let large = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: page-large, namespace: {a}}}, data: {{text: {text}}}}}"
        );
        let file = world.cluster.folder().join("large.yaml");
        std::fs::write(&file, large)?;
        world.cluster.run(["apply", "--server-side", "-f", &file.to_string_lossy()])?;
    }
    let expired = eventually(SOON, || {
        let reply = reads.get(token, &format!("{base}?limit=3&continue={next}"))?;
        if reply.code == 410 { Ok(reply.json()) } else { Err(format!("{}", reply.code).into()) }
    })?;
    world.cluster.run(["delete", "configmap", "page-large", "-n", a])?;
    eventually(SOON, || match reads.get(token, &format!("{base}/page-large"))?.code {
        404 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    assert_eq!(expired["reason"], "Expired");
    let next = expired["metadata"]["continue"].as_str().ok_or("no token")?;
    let rest = reads.get(token, &format!("{base}?continue={next}"))?;
    assert_eq!(rest.code, 200, "{rest:?}");
    let all = names(&reads.get(token, &base)?.json());
    assert_eq!(names(&rest.json()), all.get(3..).unwrap_or_default());
    let exact =
        reads.get(token, &format!("{base}?resourceVersion=1&resourceVersionMatch=Exact"))?;
    assert_eq!((exact.code, exact.json()["reason"].clone()), (410, json!("Expired")));
    Ok(())
}

/// Returns the output of a command.
pub(crate) fn printed(command: &mut Command, arguments: &[&str]) -> Result<String, Failure> {
    let output = command.args(arguments).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{arguments:?}: {error}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn kubectl_reads_from_the_cache(scene: &ReadFixture) -> Outcome {
    let ReadFixture { world, served, token, a, .. } = scene;
    for arguments in [
        &["get", "configmaps", "-n", a, "-o", "json"] as &[&str],
        &["get", "configmaps", "-n", a, "-o", "yaml"],
        &["get", "configmaps", "-A", "-o", "name"],
        &["get", "cm", "red", "-n", a, "-o", "json"],
        &["get", "cm/red", "cm/blue", "-n", a, "-o", "yaml"],
        &["get", "cm", "-n", a, "-l", "app=web", "-o", "name"],
        &["get", "cm", "-n", a, "-l", "app in (web,api),tier!=2", "-o", "json"],
        &["get", "pods", "-n", a, "--field-selector", "spec.nodeName=n1", "-o", "name"],
        &["get", "po", "-A", "--field-selector=status.phase=Pending", "-o", "json"],
        &["get", "cm", "-n", a, "--chunk-size=50", "-o", "name"],
        &["get", "cm", "-A", "--chunk-size=60", "-o", "json"],
        &["get", "cm", "-n", a, "--chunk-size=0", "-o", "name"],
        &["get", "parts", "-n", a, "-o", "json"],
        &["get", "part", "bolt", "-n", a, "-o", "yaml"],
        &["get", "parts.v1.example.com", "-A", "-o", "name"],
        &["get", "ns", "default", "-o", "json"],
        &["get", "namespaces,clusterroles", "-o", "name"],
        &["get", "svc", "kubernetes", "-o", "jsonpath={.spec.ports[0].port}"],
        &["get", "pods", "-n", a, "--sort-by=.metadata.name", "-o", "name"],
        // The profile declares both versions of this kind, so kubectl uses the preferred version.
        &["get", "hpa", "-n", a],
        &["get", "hpa", "-n", a, "-o", "json"],
        &["get", "hpa.v1.autoscaling", "-n", a, "-o", "json"],
    ] {
        eventually(SOON, || {
            let ours = printed(&mut served.kubectl(world, token)?, arguments)?;
            let theirs = printed(&mut api_kubectl(world, token)?, arguments)?;
            if ours == theirs {
                return Ok(());
            }
            Err(format!("{arguments:?}\nours: {ours}\ntheirs: {theirs}").into())
        })?;
    }
    let table = printed(&mut served.kubectl(world, token)?, &["get", "pods", "-n", a])?;
    for word in ["NAME", "AGE", "one", "two", "three"] {
        assert!(table.contains(word), "{table}");
    }
    let table = printed(&mut served.kubectl(world, token)?, &["get", "cm", "-A", "--show-labels"])?;
    assert!(table.contains("app=web") && table.contains(a), "{table}");
    let kinds = printed(&mut served.kubectl(world, token)?, &["api-resources", "-o", "name"])?;
    let kinds: Vec<_> = kinds.lines().collect();
    assert_eq!(
        kinds,
        [
            "configmaps",
            "events",
            "namespaces",
            "nodes",
            "pods",
            "replicationcontrollers",
            "secrets",
            "services",
            "deployments.apps",
            "replicasets.apps",
            "horizontalpodautoscalers.autoscaling",
            "jobs.batch",
            "certificatesigningrequests.certificates.k8s.io",
            "events.events.k8s.io",
            "parts.example.com",
            "planets.example.com",
            "widgets.example.com",
            "clusterroles.rbac.authorization.k8s.io",
            "resourceslices.resource.k8s.io",
        ]
    );
    let mut missing = served.kubectl(world, token)?;
    let output = missing.args(["get", "cm", "none", "-n", a]).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains(r#"Error from server (NotFound): configmaps "none" not found"#),
        "{stderr}"
    );
    Ok(())
}

fn no_caller_reads_more_than_its_permissions(scene: &ReadFixture) -> Outcome {
    let ReadFixture { world, api, reads, a, b, .. } = scene;
    let denied = account(world, a, "denied")?;
    let tenant = account(world, a, "tenant")?;
    let_read(world, (a, "tenant"), Some(a))?;
    let elsewhere = [
        "/api/v1/configmaps".to_owned(),
        "/api/v1/configmaps?limit=1".to_owned(),
        format!("/api/v1/configmaps?fieldSelector=metadata.namespace%3D{a}"),
        "/api/v1/configmaps?fieldSelector=metadata.name%3Dred".to_owned(),
        format!("/api/v1/namespaces/{b}/configmaps"),
        format!("/api/v1/namespaces/{b}/configmaps/red"),
        format!("/api/v1/namespaces/{b}/configmaps/none"),
        format!("/api/v1/namespaces/{b}/pods"),
        // kubewarm refuses this request before it looks for a profile. So the response does not
        // reveal that no profile declares the kind.
        format!("/api/v1/namespaces/{b}/limitranges"),
        "/apis/apps/v1/deployments".to_owned(),
        "/api/v1/namespaces".to_owned(),
        format!("/api/v1/namespaces/{b}"),
        "/apis/example.com/v1/parts".to_owned(),
        "/api/v1/configmaps?watch=true".to_owned(),
    ];
    let collection = format!("/api/v1/namespaces/{a}/configmaps");
    for path in &elsewhere {
        for token in [&denied, &tenant] {
            let (ours, theirs) = (reads.get(token, path)?, api.get(token, path)?);
            assert_eq!(ours.code, 403, "{path}: {ours:?}");
            assert_eq!(ours.json(), theirs.json(), "{path}");
        }
    }
    let (ours, theirs) = (reads.get(&denied, &collection)?, api.get(&denied, &collection)?);
    assert_eq!((ours.code, ours.json()), (403, theirs.json()));
    assert_eq!(reads.get(&tenant, &collection)?.code, 200);

    // A continue token contains only a position and a version. So another caller's token grants no
    // access.
    let all = reads.get(&scene.token, "/api/v1/configmaps?limit=1")?.json();
    let next = all["metadata"]["continue"].as_str().ok_or("no token")?;
    let last =
        reads.get(&scene.token, &format!("/api/v1/namespaces/{b}/configmaps?limit=2"))?.json();
    let last = last["metadata"]["continue"].as_str().ok_or("no token")?;
    for (path, token) in [
        (format!("{collection}?continue={next}"), &tenant),
        (format!("{collection}?continue={last}"), &tenant),
        (format!("{collection}?continue={last}&fieldSelector=metadata.namespace%3D{b}"), &tenant),
        (format!("{collection}?fieldSelector=metadata.namespace%3D{b}"), &tenant),
        (format!("{collection}?labelSelector=app,!nothing"), &tenant),
    ] {
        let reply = reads.get(token, &path)?;
        let foreign =
            names(&reply.json()).into_iter().find(|name| !name.starts_with(&format!("{a}/")));
        assert_eq!(foreign, None, "{path}: {}", reply.text);
        assert!([200, 400, 410].contains(&reply.code), "{path}: {reply:?}");
    }
    // No spelling of a path leads to another namespace.
    for path in [
        format!("/api/v1/namespaces/{a}/../{b}/configmaps"),
        format!("/api/v1/namespaces/{a}%2F..%2F{b}/configmaps"),
        format!("/api/v1/namespaces//{b}/configmaps"),
        format!("//api/v1/namespaces/{b}/configmaps"),
        format!("/profiles/{NAMESPACE}/everything/api/v1/namespaces/{b}/configmaps"),
        format!("/profiles/{NAMESPACE}/everything/api/v1/namespaces/{a}/configmaps"),
    ] {
        let reply = reads.get(&tenant, &path)?;
        assert!([400, 403, 404].contains(&reply.code), "{path}: {reply:?}");
    }
    let by_profile = format!("/profiles/{NAMESPACE}/everything/api/v1/namespaces/{a}/configmaps");
    assert_eq!(reads.get(&scene.token, &by_profile)?.code, 200);
    let other = format!("/profiles/{NAMESPACE}/none/api/v1/namespaces/{a}/configmaps");
    assert_eq!(reads.get(&scene.token, &other)?.code, 421);

    // Only the token identifies the caller. Other headers have no effect.
    let bearer = format!("Bearer {}", scene.token);
    let (other, bearer) = (format!("Bearer {tenant}"), bearer.as_str());
    for (headers, code) in [
        (&[] as &[(&str, &str)], 401),
        (&[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")], 401),
        (&[("authorization", "Basic eA==")], 401),
        (&[("authorization", bearer), ("authorization", &other)], 400),
        (&[("authorization", bearer), ("impersonate-user", "system:admin")], 403),
        (&[("x-remote-user", "system:admin"), ("x-remote-group", "system:masters")], 401),
    ] {
        let reply = reads.ask("GET", &collection, headers)?;
        assert_eq!(reply.code, code, "{headers:?}: {reply:?}");
    }
    let (bad, same) = (reads.get("bad", &collection)?, api.get("bad", &collection)?);
    assert_eq!((bad.code, bad.json()), (401, same.json()));

    // Access ends after the permission is revoked.
    let name = format!("read-{a}-tenant");
    world.cluster.run(["delete", "rolebinding", &name, "-n", a])?;
    eventually(REVOKED, || match reads.get(&tenant, &collection)?.code {
        403 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    let log = scene.served.operator.process.log();
    for token in [&scene.token, &tenant, &denied] {
        assert!(!log.contains(token.as_str()), "a token is logged");
    }
    assert!(!log.contains("sesame"));
    let (_, metrics) = scene.served.operator.ask("/metrics")?;
    for line in [
        r#"kubewarm_read_requests_total{code="200",group="",handler="list",outcome="success",resource="configmaps",version="v1"}"#,
        r#"kubewarm_read_requests_total{code="421",group="_other",handler="get",outcome="rejected",resource="_other",version="_other"}"#,
        r#"kubewarm_read_duration_seconds_count{cache="hit",handler="get"}"#,
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    Ok(())
}

#[test]
fn reads_wait_for_a_cold_store_and_a_narrowed_profile_returns_no_empty_list() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &["--audience", token_audience::AUDIENCE])?;
    let reads = served.server()?;
    let team = world.namespace("team")?;
    let elsewhere = world.namespace("elsewhere")?;
    for namespace in [&team, &elsewhere] {
        world.cluster.run(["create", "configmap", "red", "-n", namespace])?;
    }
    for name in ["reader", "another"] {
        account(&world, &team, name)?;
    }
    let [token, another] = ["reader", "another"]
        .map(|name| token_audience::token(&world, (&team, name), &[token_audience::AUDIENCE]));
    let (token, another) = (token?, another?);
    let_read(&world, (&team, "reader"), None)?;
    let collection = format!("/api/v1/namespaces/{team}/configmaps");
    assert_eq!(
        eventually(SOON, || match reads.get(&token, &collection)?.code {
            503 => Err("the profiles are not listed yet".into()),
            403 => Err("the right is not known yet".into()),
            code => Ok(code),
        })?,
        421
    );
    let spec = "{targets: [{name: settings, resource: configmaps}]}";
    let profile = Profile::apply(&world, &team, "mine", spec)?;
    profile.await_manifests()?;
    for path in [collection.clone(), format!("{collection}/red"), format!("{collection}/none")] {
        let began = std::time::Instant::now();
        let reply = reads.get(&token, &path)?;
        // Without `Retry-After`, the client does not retry. A retry would hide the message from the
        // user who can grant the permission.
        assert_eq!((reply.code, reply.header("retry-after")), (503, ""));
        assert_eq!(reply.json()["reason"], "ServiceUnavailable");
        assert!(began.elapsed() > Duration::from_secs(4), "kubewarm did not wait for the store");
    }
    user_limits::waiting_requests_are_limited_per_caller(&served, (&token, &another), &collection)?;
    profile.grant()?;
    let list = eventually(SOON, || {
        let reply = reads.get(&token, &collection)?;
        if reply.code == 200 { Ok(reply.json()) } else { Err(format!("{reply:?}").into()) }
    })?;
    assert!(names(&list).contains(&format!("{team}/red")), "{list}");
    assert_eq!(reads.get(&token, &format!("{collection}/none"))?.code, 404);
    token_audience::check_audience(&world, &reads, (&team, "reader"), &collection)?;
    // A tenant's profile serves reads of its namespace, and reads below the profile's path.
    let by_profile = format!("/profiles/{team}/mine{collection}");
    assert_eq!(reads.get(&token, &by_profile)?.code, 200);
    undeclared_objects_are_never_reported_as_missing(&reads, &token, (&team, &elsewhere))?;

    // The profile loses the object's target while a reader polls the object. No response may report
    // the object as missing (404), because the object exists.
    let narrow = "{targets: [{name: settings, resource: configmaps, \
                  labelSelector: {matchLabels: {app: web}}}]}";
    Profile::apply(&world, &team, "mine", narrow)?;
    let mut codes = BTreeSet::new();
    eventually(SOON, || {
        let (got, listed) =
            (reads.get(&token, &format!("{collection}/red"))?, reads.get(&token, &collection)?);
        codes.extend([got.code, listed.code]);
        let is_empty = listed.code == 200 && names(&listed.json()).is_empty();
        assert!(got.code != 404 && !is_empty, "{got:?} {listed:?}");
        if got.code == 421 && listed.code == 421 { Ok(()) } else { Err("not yet".into()) }
    })?;
    assert!(codes.iter().all(|code| [200, 421, 429, 503].contains(code)), "{codes:?}");
    let selected = reads.get(&token, &format!("{collection}?labelSelector=app%3Dweb"))?;
    assert_eq!((selected.code, names(&selected.json())), (200, Vec::new()));
    Ok(())
}

/// The profile's store has the kind only in the namespace `team`. kubewarm must not answer for the
/// other namespace, nor for all namespaces, from this store.
fn undeclared_objects_are_never_reported_as_missing(
    reads: &Server,
    token: &str,
    (team, elsewhere): (&str, &str),
) -> Outcome {
    let other = format!("/api/v1/namespaces/{elsewhere}/configmaps");
    let all = "/api/v1/configmaps";
    let objects = [format!("{other}/red"), format!("{other}/none")];
    let lists = [all, &other].into_iter().flat_map(|path| {
        let queries =
            ["limit=500", "resourceVersion=0", "watch=true", "watch=true&resourceVersion=0"];
        let with = queries.map(|query| format!("{path}?{query}"));
        [path.to_owned()].into_iter().chain(with)
    });
    let of_team = [
        format!("{all}?fieldSelector=metadata.name%3Dred"),
        format!("{all}?labelSelector=app%3Dnone"),
    ];
    for path in objects.into_iter().chain(lists).chain(of_team) {
        for before in [String::new(), format!("/profiles/{team}/mine")] {
            let path = format!("{before}{path}");
            let reply = reads.get(token, &path)?;
            assert_eq!(reply.code, 421, "{path}: {reply:?}");
            assert_eq!(reply.json()["reason"], "NotCached", "{path}: {reply:?}");
        }
    }
    Ok(())
}

#[test]
fn access_is_decided_with_the_callers_own_token() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &["--auth", "caller-token"])?;
    Operator::grant_reading(&world)?;
    // With `--auth=caller-token`, kubewarm needs no permission to send TokenReviews and
    // SubjectAccessReviews.
    world.cluster.run(["delete", "clusterrolebinding", "kubewarm:read-api"])?;
    own_tokens::decide(&world, &served)
}

/// The operator has the administrator's client certificate. If it sent callers' access reviews with
/// this certificate, every caller could do everything.
#[test]
fn access_is_decided_without_the_operators_certificate() -> Outcome {
    let world = World::lease()?;
    let served = Served::start_as_administrator(&world, &["--auth", "caller-token"])?;
    own_tokens::decide(&world, &served)
}
