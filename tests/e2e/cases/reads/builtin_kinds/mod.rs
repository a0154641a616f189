//! Reads every built-in kind from kubewarm and from the API server, in JSON and in protobuf.
//! Objects, lists and watch events must be equal byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubewarm_wire::PROTOBUF;
use serde_json::{Value, json};

use crate::api::{HttpReply, Served, Server, Watch, account};
use crate::cases::reads::replay::Players;
use crate::figures::Exposition;
use crate::kinds::{ApiKind, discover};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

/// Timeout for equal answers: kubewarm receives a change a moment after the API server.
const SOON_SAME: Duration = Duration::from_secs(10);
/// The minimum number of tested kinds, so that the test fails if discovery loses kinds. Each
/// version of a kind counts.
const FEWEST: usize = 80;
/// The most targets of a profile.
const TARGETS: usize = 32;
const JSON: &str = "application/json";
/// API groups that kubewarm reads only in JSON: the field tables come from the types of client-go,
/// which lacks these groups.
const ONLY_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// An object of a kind that the test changes and deletes.
struct KindSample {
    path: String,
    object: Value,
}

/// The sample of each kind, by the path of the kind.
type KindSamples = BTreeMap<String, KindSample>;

/// The watches of a kind in one encoding.
struct WatchPair {
    kind: String,
    accept: &'static str,
    ours: Watch,
    theirs: Watch,
}

fn encodings(kind: &ApiKind) -> &'static [&'static str] {
    if ONLY_JSON.contains(&&*kind.group) { &[JSON] } else { &[JSON, PROTOBUF] }
}

#[test]
fn every_builtin_kind_is_equal_in_both_encodings() -> Outcome {
    let world = World::with_all_kinds()?;
    let served = Served::start(&world, &[])?;
    Operator::grant_reading(&world)?;
    let token = account(&world, "default", "writer")?;
    let grant = ["--clusterrole=cluster-admin", "--serviceaccount=default:writer"];
    world.cluster.run([&["create", "clusterrolebinding", "writer"][..], &grant].concat())?;
    let (api, reads) = (Server::api(&world)?, served.server()?);
    let players = Players { api: &api, reads: &reads, token: &token, forwards: false };
    let mut kinds = discover(&api, &token)?;
    let can = |kind: &ApiKind, verb: &str| kind.verbs.iter().any(|known| known == verb);
    kinds.retain(|kind| ["get", "list", "watch"].into_iter().all(|verb| can(kind, verb)));
    kinds.retain(|kind| kind.group != "kubewarm.io");
    assert!(kinds.len() >= FEWEST, "{} kinds", kinds.len());
    warm(&world, &kinds)?;

    // The stores are still empty, so each object reaches kubewarm by watch.
    let watches = open_watches(&players, &kinds)?;
    create(&world)?;
    let samples = samples(&players, &kinds)?;
    let is_latest = |event: &Value, sample: &Value| version(&event["object"]) == version(sample);
    let mut differences = compare_events(&watches, &samples, is_latest);
    differences.extend(compare_reads(&players, &kinds, &samples)?);

    // After the restart of kubewarm, each object reaches it by list.
    drop(watches);
    served.operator.process.restart()?;
    let is_warm = || kinds.iter().try_for_each(|kind| players.now(&kind.path()).map(drop));
    eventually(SOON, is_warm)?;
    differences.extend(compare_reads(&players, &kinds, &samples)?);
    let watches = open_watches(&players, &kinds)?;
    change_and_delete(&players, &samples)?;
    let is_end = |event: &Value, sample: &Value| {
        let names = [&event["object"], sample].map(|object| &object["metadata"]["name"]);
        event["type"] == "DELETED" && names[0] == names[1]
    };
    differences.extend(compare_events(&watches, &samples, is_end));
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    let figures = Exposition::read(&served.operator)?;
    let fallbacks: Vec<_> =
        figures.series("kubewarm_upstream_protobuf_fallbacks_total", &[]).collect();
    let is_zero = |series: &&str| series.ends_with(" 0");
    assert!(!fallbacks.is_empty() && fallbacks.iter().all(is_zero), "{fallbacks:?}");
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn version(object: &Value) -> &str {
    text(&object["metadata"]["resourceVersion"])
}

/// Applies profiles for all kinds and waits until they are warm.
fn warm(world: &World, kinds: &[ApiKind]) -> Outcome {
    let targets: Vec<_> = kinds.iter().enumerate().map(|(at, kind)| kind.target(at)).collect();
    let names: Vec<_> =
        (0..targets.len().div_ceil(TARGETS)).map(|at| format!("all-{at}")).collect();
    let mut profiles = Vec::new();
    for (name, targets) in names.iter().zip(targets.chunks(TARGETS)) {
        let spec = format!("{{targets: [{}]}}", targets.join(", "));
        profiles.push(Profile::apply(world, NAMESPACE, name, &spec)?);
    }
    for profile in profiles {
        profile.await_condition("Ready", "True", None, SOON)?;
    }
    Ok(())
}

fn create(world: &World) -> Outcome {
    let folder = file("tests/e2e/cases/reads/builtin_kinds");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let objects = path("objects.yaml");
    // Admission rejects a pod until the API server's own watch has brought the pod's PriorityClass,
    // which the same file creates. Another attempt creates what is missing, and fails for the rest,
    // which exists.
    eventually(SOON, || {
        let created = world.cluster.run(["create", "-f", &objects]);
        let Err(failure) = created else { return Ok(()) };
        world.cluster.run(["get", "-f", &objects, "--output=name"]).map_err(|_missing| failure)?;
        Ok(())
    })?;
    let debug = ["debug", "pod/whole", "--namespace=kinds", "--image=example.com/none"];
    world.cluster.run([&debug[..], &["--container=e", "--target=c"]].concat())?;
    // Without validation, because the file contains only the required fields of a status.
    let apply = ["apply", "--server-side", "--force-conflicts", "--subresource=status"];
    let statuses = path("statuses.yaml");
    world.cluster.run([&apply[..], &["--validate=false", "-f", &statuses]].concat())?;
    Ok(())
}

/// Returns the first object of each kind that `objects.yaml` contains. Versions of the same kind
/// have the same object.
fn samples(players: &Players<'_>, kinds: &[ApiKind]) -> Result<KindSamples, Failure> {
    let mut samples = KindSamples::new();
    let mut missing = Vec::new();
    for kind in kinds {
        let path = kind.path();
        let all = players.api.get(players.token, &format!("{path}?labelSelector=round"))?.json();
        let Some(object) = list(&all["items"]).next() else {
            missing.push(path);
            continue;
        };
        let (name, namespace) = (&object["metadata"]["name"], &object["metadata"]["namespace"]);
        let place = namespace
            .as_str()
            .map(|namespace| format!("/namespaces/{namespace}"))
            .unwrap_or_default();
        let object_path = format!("{}{place}/{}/{}", kind.base(), kind.resource, text(name));
        samples.insert(path, KindSample { path: object_path, object: object.clone() });
    }
    assert!(missing.is_empty(), "objects.yaml has no object with the label `round` of {missing:?}");
    Ok(samples)
}

/// Compares an object and the list of each kind, and returns the differences.
fn compare_reads(
    players: &Players<'_>,
    kinds: &[ApiKind],
    samples: &KindSamples,
) -> Result<Vec<String>, Failure> {
    let mut compared = Vec::new();
    for kind in kinds {
        let (all, one) = (kind.path(), &samples[&kind.path()].path);
        for accept in encodings(kind) {
            compared.push(eventually(SOON_SAME, || compare_answers(players, one, accept)));
            compared.push(eventually(SOON_SAME, || {
                let now = players.now(&all)?;
                let list = format!("{all}?resourceVersionMatch=Exact&resourceVersion={now}");
                compare_answers(players, &list, accept)
            }));
        }
        if ONLY_JSON.contains(&&*kind.group) {
            assert_eq!(players.reads.get_as(players.token, one, PROTOBUF)?.code, 406, "{one}");
        }
    }
    Ok(compared.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect())
}

fn compare_answers(players: &Players<'_>, path: &str, accept: &str) -> Outcome {
    let ours = players.reads.get_as(players.token, path, accept)?;
    let theirs = players.api.get_as(players.token, path, accept)?;
    let parts = |reply: &HttpReply| {
        (reply.code, reply.header("content-type").to_owned(), reply.bytes.clone())
    };
    if theirs.code == 200 && parts(&ours) == parts(&theirs) {
        return Ok(());
    }
    let texts = [ours, theirs].map(|reply| format!("{} {}", reply.code, reply.json()));
    Err(format!("{path} as {accept}: {}", difference(&texts)).into())
}

/// The parts of two texts after their common beginning.
fn difference([ours, theirs]: &[String; 2]) -> String {
    let same = ours.bytes().zip(theirs.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
    let part = |text: &String| {
        let text = text.as_bytes();
        let end = text.len().min(same + 200);
        String::from_utf8_lossy(&text[same.saturating_sub(100).min(end)..end]).into_owned()
    };
    format!("\n  ours: …{}\n  theirs: …{}", part(ours), part(theirs))
}

/// Opens a watch of each kind and encoding at both servers, from the version of kubewarm's store.
fn open_watches(players: &Players<'_>, kinds: &[ApiKind]) -> Result<Vec<WatchPair>, Failure> {
    let mut pairs = Vec::new();
    for kind in kinds {
        let path = kind.path();
        let from = format!("{path}?watch=true&resourceVersion={}", players.now(&path)?);
        for accept in encodings(kind) {
            let open = |server: &Server| server.watch(players.token, &from, accept);
            let (ours, theirs) = (open(players.reads)?, open(players.api)?);
            assert_eq!((ours.code, theirs.code), (200, 200), "{from} as {accept}");
            assert_eq!(ours.headers.get("content-type"), theirs.headers.get("content-type"));
            pairs.push(WatchPair { kind: path.clone(), accept, ours, theirs });
        }
    }
    Ok(pairs)
}

/// Compares the events of each watch up to the event for which `is_last` returns true, and returns
/// the differences.
fn compare_events(
    pairs: &[WatchPair],
    samples: &KindSamples,
    is_last: impl Fn(&Value, &Value) -> bool,
) -> Vec<String> {
    let compare = |pair: &WatchPair| -> Outcome {
        let WatchPair { kind, accept, ours, theirs } = pair;
        let (own_events, events) = (ours.events(), theirs.events());
        let last = events.iter().position(|event| is_last(event, &samples[kind].object));
        let last = last.ok_or_else(|| format!("the API server sent no last event of {kind}"))?;
        let (ours, theirs) = (ours.frames(), theirs.frames());
        let Some(at) = (0..=last).find(|&at| ours.get(at) != theirs.get(at)) else { return Ok(()) };
        let texts =
            [&own_events, &events].map(|events| events.get(at).unwrap_or(&Value::Null).to_string());
        Err(format!("event {at} of {kind} as {accept}: {}", difference(&texts)).into())
    };
    let compared = pairs.iter().map(|pair| eventually(SOON_SAME, || compare(pair)));
    compared.filter_map(Result::err).map(|error| error.to_string()).collect()
}

/// Changes and deletes each sample once.
fn change_and_delete(players: &Players<'_>, samples: &KindSamples) -> Outcome {
    let write = |method: &str, path: &str, body: &Value| -> Outcome {
        let reply = players.api.write(players.token, (method, path), body)?;
        if reply.code < 300 {
            Ok(())
        } else {
            Err(format!("{method} {path}: {}", reply.text).into())
        }
    };
    let mut deleted = BTreeSet::new();
    for KindSample { path, object } in samples.values() {
        if !deleted.insert(text(&object["metadata"]["uid"])) {
            continue;
        }
        let change = json!({"metadata": {"labels": {"round": "2"}, "finalizers": null}});
        write("PATCH", path, &change)?;
        let at_once = json!({
            "kind": "DeleteOptions", "apiVersion": "v1",
            "gracePeriodSeconds": 0, "propagationPolicy": "Background",
        });
        write("DELETE", path, &at_once)?;
        if path.starts_with("/api/v1/namespaces/closing") {
            // A namespace stays until its finalizers are removed. No controller does this here, so
            // the test does.
            let mut namespace = players.api.get(players.token, path)?.json();
            namespace["spec"]["finalizers"] = json!([]);
            write("PUT", &format!("{path}/finalize"), &namespace)?;
        }
    }
    Ok(())
}
