//! Objects that are hard to read: no response of kubewarm is shorter than the API server's
//! response.

use kubewarm_wire::PROTOBUF;
use kubewarm_wire::protobuf::{METADATA, Unknown, write_bytes};
use serde_json::{Value, json};

use crate::accept::TABLE;
use crate::api::{HttpReply, Served, Server, Watch, account, api_kubectl, let_read};
use crate::cases::reads::tables::{printed, seconds};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, problems};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
const INITIAL: &str =
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
/// With `spec.x`, such an array has 128 levels. `serde_json` reads at most 127.
const ARRAY_LEVELS: usize = 126;
const SCHEMA_LEVELS: usize = 60;

const TARGETS: &str = "{targets: [
  {name: odds, group: example.com, resource: odds, scope: {type: AllNamespaces},
   projection: {managedFields: Keep}, indexes: [{name: color, fieldPath: spec.color}]},
  {name: shows, group: example.com, resource: shows, scope: {type: AllNamespaces},
   projection: {managedFields: Keep}},
  {name: nests, group: example.com, resource: nests, scope: {type: AllNamespaces},
   projection: {managedFields: Keep}},
  {name: revisions, group: apps, resource: controllerrevisions, scope: {type: AllNamespaces},
   projection: {managedFields: Keep}},
  {name: roles, group: rbac.authorization.k8s.io, resource: roles, scope: {type: AllNamespaces},
   projection: {managedFields: Keep}},
  {name: crds, group: apiextensions.k8s.io, resource: customresourcedefinitions,
   scope: {type: Cluster}, projection: {managedFields: Keep}}]}";

/// A definition with the columns `columns` and the schema `spec` of `.spec`.
fn definition(kind: &str, columns: &str, spec: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"{singular}s.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
        "names":{{"kind":"{kind}","plural":"{singular}s","singular":"{singular}"}},"versions":[{{
        "name":"v1","served":true,"storage":true,"selectableFields":[{{"jsonPath":".spec.color"}}],
        "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{spec}}}}}}},
        "additionalPrinterColumns":[{columns}]}}]}}}}"#
    )
}

fn schema(levels: usize) -> String {
    let color = r#""color":{"type":"string"}"#;
    let open = r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"#;
    let inner = r#"{"type":"object","properties":{"a":"#.repeat(levels);
    format!(r#"{open}{color},"b":{inner}{{"type":"string"}}{}}}}}"#, "}}".repeat(levels))
}

fn column(name: &str, path: &str) -> String {
    format!(r#"{{"name":"{name}","type":"string","jsonPath":"{path}"}}"#)
}

fn custom(kind: &str, name: &str, x: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"name":"{name}",
        "labels":{{"app":"odd"}}}},"spec":{{"color":"red","text":"t","x":{x}}}}}"#
    )
}

fn array() -> String {
    "[".repeat(ARRAY_LEVELS) + &"]".repeat(ARRAY_LEVELS)
}

struct UnusualFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    space: String,
}

impl UnusualFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::lease()?;
        let served = Served::start(&world, &[])?;
        Operator::grant_reading(&world)?;
        let space = world.namespace("unusual")?;
        let token = account(&world, &space, "reader")?;
        let_read(&world, (&space, "reader"), None)?;
        let writer = format!("--serviceaccount={space}:reader");
        world.cluster.run([
            "create",
            "clusterrolebinding",
            "w",
            "--clusterrole=cluster-admin",
            &writer,
        ])?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        let text = column("Text", ".spec.text");
        let shown = format!("{text},{}", column("X", ".spec.x"));
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for (kind, columns, levels) in
            [("Odd", &text, 1), ("Show", &shown, 1), ("Nest", &text, SCHEMA_LEVELS)]
        {
            post(&world, crds, &definition(kind, columns, &schema(levels)))?;
        }
        world.cluster.run(["wait", "--for=condition=Established", "crd", "--all"])?;
        eventually(SOON, || Ok(world.cluster.run(["get", "odds,shows,nests", "-A"])?))?;
        let base = |group: &str| format!("/apis/{group}/v1/namespaces/{space}");
        for (kind, plural) in [("Odd", "odds"), ("Show", "shows"), ("Nest", "nests")] {
            let path = format!("{}/{plural}", base("example.com"));
            for (name, x) in [("deep", &*array()), ("plain", "[[1]]")] {
                post(&world, &path, &custom(kind, name, x))?;
            }
        }
        for (name, data) in [("lone", r#"{"s":"\ud800"}"#), ("plain", "{}")] {
            let path = format!("{}/controllerrevisions", base("apps"));
            let revision = format!(
                r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"{name}"}},
                "data":{data},"revision":3}}"#
            );
            post(&world, &path, &revision)?;
        }
        let profile = Profile::apply(&world, NAMESPACE, "unusual", TARGETS)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        Ok(Self { world, served, api, reads, token, space })
    }

    fn own(&self, path: &str) -> String {
        let (group, rest) = path.split_once('/').unwrap_or(("", path));
        format!("/apis/{group}/v1/namespaces/{}/{rest}", self.space)
    }

    /// Compares the responses of both servers.
    fn compare(&self, path: &str, accept: &str) -> Outcome {
        eventually(SOON, || {
            let ours = self.reads.get_as(&self.token, path, accept)?;
            let theirs = self.api.get_as(&self.token, path, accept)?;
            if (ours.code, theirs.code) == (200, 200) && comparable(&ours) == comparable(&theirs) {
                return Ok(());
            }
            Err(format!("{path} ({accept})\nours: {ours:?}\ntheirs: {theirs:?}").into())
        })
    }
}

/// Sends JSON unchanged, which kubectl otherwise decodes.
fn post(world: &World, path: &str, body: &str) -> Outcome {
    let file = world.cluster.folder().join("unusual.json");
    std::fs::write(&file, body)?;
    world.cluster.run(["create", "--raw", path, "-f", &file.to_string_lossy()])?;
    Ok(())
}

/// The part of a response that both servers must send equally. A list's metadata is no part of it,
/// because it contains the version and the continue token.
fn comparable(reply: &HttpReply) -> String {
    without_times(&canonical(&reply.text))
}

/// Sorts the members of objects, because the servers write members of custom resources in different
/// orders. Very deep objects are left as they are: `serde_json` cannot parse them, and their order
/// is equal.
fn canonical(text: &str) -> String {
    let text = without_hard_parts(text);
    if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
        for part in ["items", "rows"] {
            if value[part].is_array() {
                return value[part].to_string();
            }
        }
        value.as_object_mut().and_then(|fields| fields.remove("columnDefinitions"));
        return value.to_string();
    }
    let start = ["\"items\":", "\"rows\":"].iter().find_map(|start| text.find(start));
    text[start.unwrap_or(0)..].to_owned()
}

/// Replaces ages.
fn without_times(text: &str) -> String {
    let word = |word| if seconds(word).is_some() { "AGE" } else { word };
    text.split('"').map(word).collect::<Vec<_>>().join("\"")
}

#[test]
fn every_response_contains_every_object() -> Outcome {
    let scene = UnusualFixture::start()?;
    let odds = scene.own("example.com/odds");
    let nests = scene.own("example.com/nests");
    let revisions = scene.own("apps/controllerrevisions");
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for path in [
        &*odds,
        &format!("{odds}?limit=1"),
        &format!("{odds}?labelSelector=app%3Dodd"),
        &format!("{odds}?labelSelector=!none"),
        &format!("{odds}?fieldSelector=metadata.name%3Ddeep"),
        &format!("{odds}?fieldSelector=spec.color%3Dred"),
        &format!("{odds}?includeObject=Object"),
        &format!("{odds}?includeObject=None"),
        &nests,
        &revisions,
        &format!("{revisions}?includeObject=Object"),
        crds,
        &format!("{crds}?includeObject=Object"),
        "/apis/example.com/v1/odds",
    ] {
        for accept in [TABLE, "application/json", METADATA_LIST] {
            scene.compare(path, accept)?;
        }
    }
    for path in [
        format!("{odds}/deep"),
        format!("{nests}/deep"),
        format!("{revisions}/lone"),
        format!("{crds}/nests.example.com"),
    ] {
        for accept in [TABLE, "application/json"] {
            scene.compare(&path, accept)?;
        }
    }
    for path in [&format!("{revisions}/lone"), &revisions, &format!("{revisions}?limit=5")] {
        scene.compare(path, PROTOBUF)?;
    }
    for path in [&*odds, &nests, &revisions, crds] {
        other_ways_to_list_have_every_object(&scene, path)?;
    }
    let indexed = format!("{odds}?fieldSelector=index.kubewarm.io/color%3Dred");
    let indexed = comparable(&scene.reads.get(&scene.token, &indexed)?);
    assert_eq!(indexed, comparable(&scene.api.get(&scene.token, &odds)?));
    kubectl_prints_every_object(&scene)?;
    watches_send_every_object(&scene, &[&odds, &revisions])?;
    a_cell_that_cannot_be_computed_is_empty(&scene)?;
    a_definition_with_a_deep_schema_is_watched(&scene)?;
    a_name_that_is_not_utf8_is_served(&scene)
}

/// Lists in pages, at an exact version, compressed, and from one profile.
fn other_ways_to_list_have_every_object(scene: &UnusualFixture, path: &str) -> Outcome {
    let UnusualFixture { api, reads, token, .. } = scene;
    let bearer = format!("Bearer {token}");
    for accept in [TABLE, "application/json"] {
        let all = api.get_as(token, path, accept)?;
        let list = reads.get_as(token, path, accept)?;
        let version = &list_metadata(&list, "resourceVersion")?;
        let exact = format!("?resourceVersion={version}&resourceVersionMatch=Exact");
        let of_profile = format!("/profiles/{NAMESPACE}/unusual{path}");
        for ours in [format!("{path}{exact}"), of_profile] {
            let ours = reads.get_as(token, &ours, accept)?;
            assert_eq!((ours.code, comparable(&ours)), (200, comparable(&all)), "{path}");
        }
        let headers =
            [("authorization", &*bearer), ("accept", accept), ("accept-encoding", "gzip")];
        let packed = reads.ask("GET", path, &headers)?;
        assert_eq!(comparable(&packed), comparable(&all), "{path}");
        let next = |server: &Server| {
            let first = server.get_as(token, &format!("{path}?limit=1"), accept)?;
            let next = list_metadata(&first, "continue")?;
            server.get_as(token, &format!("{path}?limit=1&continue={next}"), accept)
        };
        assert_eq!(comparable(&next(reads)?), comparable(&next(api)?), "{path}");
    }
    Ok(())
}

/// A member of a list's metadata, found by text search, because `serde_json` cannot parse each
/// list.
fn list_metadata(list: &HttpReply, member: &str) -> Result<String, Failure> {
    let start = format!("\"{member}\":\"");
    let (_, rest) = list.text.split_once(&start).ok_or_else(|| format!("no {member}: {list:?}"))?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

fn a_definition_with_a_deep_schema_is_watched(scene: &UnusualFixture) -> Outcome {
    let UnusualFixture { world, api, reads, token, .. } = scene;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1\
                &fieldSelector=metadata.name%3Dnests.example.com&";
    let mut pairs = Vec::new();
    for accept in [TABLE, "application/json"] {
        let path = format!("{path}{INITIAL}");
        pairs.push((reads.watch(token, &path, accept)?, api.watch(token, &path, accept)?));
    }
    world.cluster.run(["label", "crd", "nests.example.com", "more=1"])?;
    for (ours, theirs) in &pairs {
        eventually(SOON, || {
            let both = [ours, theirs].map(|watch| {
                let frames = watch.frames().into_iter();
                let frames = frames.map(|frame| String::from_utf8_lossy(&frame).into_owned());
                frames.filter(|frame| !frame.contains("BOOKMARK")).collect::<Vec<_>>()
            });
            let types = both.each_ref().map(|frames| {
                frames.iter().map(|frame| frame.split(',').next()).collect::<Vec<_>>()
            });
            let are_equal = both[0].len() == 2 && types[0] == types[1];
            let has_names = both[0].iter().all(|frame| frame.contains("nests.example.com"));
            if are_equal && has_names { Ok(()) } else { Err(format!("{both:#?}").into()) }
        })?;
    }
    Ok(())
}

fn kubectl_prints_every_object(scene: &UnusualFixture) -> Outcome {
    let UnusualFixture { world, served, token, space, .. } = scene;
    for arguments in [
        &["get", "crds"] as &[&str],
        &["get", "crd", "nests.example.com"],
        &["get", "odds", "-n", space],
        &["get", "odd", "deep", "-n", space],
        &["get", "nest", "deep", "-n", space],
        &["get", "controllerrevisions", "-A", "-o", "wide"],
        &["get", "controllerrevision", "lone", "-n", space],
    ] {
        let ours = printed(served.kubectl(world, token)?, arguments)?;
        assert_eq!(ours, printed(api_kubectl(world, token)?, arguments)?, "{arguments:?}");
    }
    Ok(())
}

/// Replaces the values that `serde_json` cannot parse, such as deep arrays and lone
/// surrogates.
fn without_hard_parts(text: &str) -> String {
    let array = array();
    let text = text.replace(&format!("\"{array}\""), "\"PRINTED\"");
    text.replace(&array, "\"DEEP\"").replace(r"\ud800", "LONE")
}

fn event(line: &str) -> String {
    let mut event: Value = serde_json::from_str(&without_hard_parts(line)).unwrap_or_default();
    if let Some(table) = event["object"].as_object_mut() {
        // The API server sends the columns again in some events.
        table.remove("columnDefinitions");
    }
    without_times(&event.to_string())
}

/// The events of a watch as text, without bookmarks.
fn events(watch: &Watch) -> Vec<String> {
    let frames = watch.frames().into_iter();
    let frames = frames.map(|frame| event(&String::from_utf8_lossy(&frame)));
    frames.filter(|event| !event.contains("BOOKMARK")).collect()
}

fn watches_send_every_object(scene: &UnusualFixture, paths: &[&str]) -> Outcome {
    let UnusualFixture { world, api, reads, token, space, .. } = scene;
    let mut pairs = Vec::new();
    for path in paths {
        for accept in [TABLE, "application/json"] {
            let path = format!("{path}?watch=1&{INITIAL}");
            pairs.push((reads.watch(token, &path, accept)?, api.watch(token, &path, accept)?));
        }
    }
    for (kind, name) in [("odd", "deep"), ("controllerrevision", "lone")] {
        world.cluster.run(["label", kind, name, "-n", space, "more=1"])?;
        world.cluster.run(["delete", kind, name, "-n", space])?;
    }
    both_send_the_deletion(&pairs)
}

/// The API server prints the deep array in a column. kubewarm leaves this column of the row empty,
/// counts the row and logs one line.
fn a_cell_that_cannot_be_computed_is_empty(scene: &UnusualFixture) -> Outcome {
    let UnusualFixture { served, api, reads, token, .. } = scene;
    let shows = scene.own("example.com/shows");
    for path in [&*shows, &format!("{shows}/deep"), &format!("{shows}?limit=1")] {
        let ours = comparable(&reads.get_as(token, path, TABLE)?);
        let theirs = comparable(&api.get_as(token, path, TABLE)?);
        let cells = |x: &str| format!(r#""cells":["deep","t",{x}]"#);
        assert_eq!(ours, theirs.replace(&cells("\"PRINTED\""), &cells("null")));
        assert!(ours.contains(&cells("null")), "{ours}");
    }
    let (_, metrics) = served.operator.ask("/metrics")?;
    let counted = r#"kubewarm_read_incomplete_rows_total{group="example.com",resource="shows",version="v1"} 3"#;
    assert!(metrics.contains(counted), "{metrics}");
    let log = served.operator.process.log();
    assert_eq!(log.matches("a cell of a Table is empty").count(), 1, "{log}");
    assert!(!log.contains(r#""level":"ERROR""#), "{log}");
    Ok(())
}

/// Only a client that writes protobuf can create an object whose name is not UTF-8. In JSON, the
/// API server sends U+FFFD instead.
fn a_name_that_is_not_utf8_is_served(scene: &UnusualFixture) -> Outcome {
    let UnusualFixture { world, api, reads, token, space, .. } = scene;
    let path = scene.own("rbac.authorization.k8s.io/roles");
    let (mut metadata, mut raw) = (Vec::new(), Vec::new());
    write_bytes(1, b"not-\xff-utf8", &mut metadata);
    write_bytes(3, space.as_bytes(), &mut metadata);
    write_bytes(METADATA, &metadata, &mut raw);
    let mut role = Vec::new();
    let api_version = "rbac.authorization.k8s.io/v1";
    Unknown { api_version, kind: "Role", raw: &raw }.write(&mut role);
    let created = api.post_protobuf(token, &path, role)?;
    assert_eq!(created.code, 201, "{created:?}");
    let profile = Profile::apply(world, NAMESPACE, "unusual", TARGETS)?;
    profile.await_that(SOON, |profile| {
        let all = problems(profile, "roles");
        all.iter().any(|problem| problem.contains("ReadAsJson")).then_some(())
    })?;
    for accept in [TABLE, "application/json", METADATA_LIST] {
        scene.compare(&path, accept)?;
    }
    // The API server finds the object only by the bytes of its name. kubewarm keeps the object as
    // JSON, so it finds the object by the name in JSON.
    let (by_bytes, by_json) =
        (format!("{path}/not-%FF-utf8"), format!("{path}/not-%EF%BF%BD-utf8"));
    for accept in [TABLE, "application/json"] {
        let ours = reads.get_as(token, &by_json, accept)?;
        let theirs = api.get_as(token, &by_bytes, accept)?;
        assert_eq!((ours.code, theirs.code), (200, 200), "{ours:?} {theirs:?}");
        assert_eq!(comparable(&ours), comparable(&theirs), "{accept}");
    }
    assert_eq!(reads.get(token, &by_bytes)?.code, 400);
    assert_eq!(api.get(token, &by_json)?.code, 404);
    let mut pairs = Vec::new();
    for accept in [TABLE, "application/json"] {
        let path = format!("{path}?watch=1&{INITIAL}");
        pairs.push((reads.watch(token, &path, accept)?, api.watch(token, &path, accept)?));
    }
    // No client can change the object: an object from JSON has another name.
    let deleted = api.write(token, ("DELETE", &by_bytes), &json!({}))?;
    assert_eq!(deleted.code, 200, "{deleted:?}");
    both_send_the_deletion(&pairs)
}

/// Waits until both watches of each pair have sent the same events, with a deletion.
fn both_send_the_deletion(pairs: &[(Watch, Watch)]) -> Outcome {
    for (ours, theirs) in pairs {
        eventually(SOON, || {
            let (ours, theirs) = (events(ours), events(theirs));
            let is_over = theirs.iter().any(|event| event.contains("DELETED"));
            if is_over && ours == theirs {
                return Ok(());
            }
            Err(format!("ours: {ours:#?}\ntheirs: {theirs:#?}").into())
        })?;
    }
    Ok(())
}
