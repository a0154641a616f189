//! Tables from the cache have the rows and columns that the API server prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::accept::{KUBECTL, OLD_TABLE, TABLE};
use crate::api::{Served, Server, Watch, account, api_kubectl, let_read};
use crate::cases::reads::cells;
use crate::kinds::{ApiKind, discover};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

const SOON_SAME: Duration = Duration::from_secs(5);
const OBJECTS: &str = include_str!("tables.yaml");
/// Seconds by which the ages in two successive answers may differ.
const TOLERANCE: i64 = 20;
/// The most targets of a profile.
const MAX_TARGETS: usize = 30;

/// Further kinds to compare: kinds for which the API server has no printer, and one kind in another
/// version than the file of shipped columns has.
const MORE: &[&str] = &[
    "limitranges",
    "roles.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "gadgets.example.com",
    "plains.example.com",
    "cells.example.com",
];

/// A kind with printer columns of every type, and a kind without columns.
const GADGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Text, type: string, jsonPath: .spec.text}
    - {name: Number, type: integer, jsonPath: .spec.number, description: how many}
    - {name: Float, type: number, jsonPath: .spec.float, priority: 1}
    - {name: Flag, type: boolean, jsonPath: .spec.flag}
    - {name: List, type: string, jsonPath: .spec.list}
    - {name: First, type: string, jsonPath: ".spec.list[0]"}
    - {name: Last, type: string, jsonPath: ".spec.list[-1:]"}
    - {name: Each, type: string, jsonPath: ".spec.list[*]"}
    - {name: Beyond, type: string, jsonPath: ".spec.list[7]"}
    - {name: Map, type: string, jsonPath: .spec.map}
    - {name: Dotted, type: string, jsonPath: '.metadata.labels.example\.com/x'}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Some, type: string, jsonPath: '.status.conditions[?(@.n>1)].type'}
    - {name: Deep, type: string, jsonPath: .spec..inner}
    - {name: When, type: date, jsonPath: .spec.when}
    - {name: Never, type: date, jsonPath: .spec.text}
    - {name: Kind, type: string, jsonPath: .kind}
    - {name: Nothing, type: string, jsonPath: .spec.nothing}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plains.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Plain, plural: plains, singular: plain}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

const CUSTOM: &str = r#"
{apiVersion: v1, kind: List, items: [
  {apiVersion: example.com/v1, kind: Plain, metadata: {name: p, namespace: NAMESPACE}},
  {apiVersion: example.com/v1, kind: Gadget, metadata: {name: empty, namespace: NAMESPACE}},
  {apiVersion: example.com/v1, kind: Gadget, metadata: {name: wrong, namespace: NAMESPACE},
   spec: {text: 1.5, number: x, float: x, flag: 1, list: x, map: 1000000.5, when: 3}},
  {apiVersion: example.com/v1, kind: Gadget, metadata: {name: full, namespace: NAMESPACE, labels: {example.com/x: odd}},
   spec: {text: "a < b", number: 3, float: 1.25, flag: true, list: [1, 2, "<"], map: {b: {inner: 1}, a: [true]},
          when: "2026-01-01T00:00:00Z"},
   status: {conditions: [{type: Odd, status: "False", n: 1}, {type: Ready, status: "True", n: 2}]}}]}
"#;

/// A pod that a `ResourceQuota` admits, because it states its requests.
const LATE: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: late, namespace: NAMESPACE, labels: {app: web}},
 spec: {automountServiceAccountToken: false, containers: [{name: a, image: example.com/a,
        resources: {requests: {cpu: 1m}, limits: {memory: 1Mi}}}]}}";

/// Statuses for some objects, which no controller in this cluster writes.
fn statuses() -> Vec<(&'static str, &'static str, Value)> {
    let ended = json!({"exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z",
                       "finishedAt": "2026-01-01T00:00:10Z"});
    vec![
        ("pod", "done", json!({"phase": "Succeeded"})),
        (
            "pod",
            "states",
            json!({
                "phase": "Running", "podIP": "192.0.2.9", "podIPs": [{"ip": "192.0.2.9"}],
                "conditions": [{"type": "Ready", "status": "False"},
                               {"type": "example.com/open", "status": "True"}],
                "initContainerStatuses": [
                    {"name": "i", "image": "i", "imageID": "", "restartCount": 1, "ready": true,
                     "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "image": "s", "imageID": "", "restartCount": 2, "ready": true,
                     "started": true, "state": {"running": {}}}],
                "containerStatuses": [
                    {"name": "a", "image": "a", "imageID": "", "restartCount": 0, "ready": true,
                     "state": {"running": {}}},
                    {"name": "b", "image": "b", "imageID": "", "restartCount": 5, "ready": false,
                     "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                     "lastState": {"terminated": ended}}],
            }),
        ),
        (
            "service",
            "balanced",
            json!({"loadBalancer": {"ingress": [{"hostname": "a-long-name.example.com"}, {"ip": "192.0.2.7"}]}}),
        ),
        (
            "ingress",
            "all",
            json!({"loadBalancer": {"ingress": [{"hostname": "a-long-name.example.com"}]}}),
        ),
        (
            "node",
            "n1",
            json!({
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.10"},
                              {"type": "ExternalIP", "address": "198.51.100.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux", "kernelVersion": "6.1",
                             "containerRuntimeVersion": "x://1", "architecture": "amd64",
                             "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
                             "operatingSystem": "linux"},
            }),
        ),
        (
            "hpa",
            "h",
            json!({"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current":
                    {"averageUtilization": 7, "averageValue": "70m"}}}]}),
        ),
        ("volumeattachment", "va", json!({"attached": true})),
    ]
}

/// The shipped columns, by `resource.group`.
fn shipped() -> Result<BTreeMap<String, Value>, Failure> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file(
        "crates/kubewarm-wire/src/tables/columns.json",
    ))?)?)
}

/// The kinds with shipped columns and the kinds in `MORE`, from discovery.
fn kinds(api: &Server, token: &str) -> Result<Vec<ApiKind>, Failure> {
    let mut names: BTreeSet<_> = shipped()?.into_keys().filter(|name| name != "metadata").collect();
    names.extend(MORE.iter().map(|&name| name.to_owned()));
    let mut kinds = discover(api, token)?;
    kinds.retain(|kind| names.remove(&kind.name()));
    assert!(names.is_empty(), "not served: {names:?}");
    Ok(kinds)
}

/// Parses an age into seconds.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let text = text
        .strip_suffix(" ago)")
        .and_then(|rest| rest.split_once('('))
        .map_or(text, |(_, age)| age);
    let mut total = 0;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            'y' => 365 * 86400,
            _ => return None,
        };
        total += number.parse::<i64>().ok()? * unit;
        number.clear();
    }
    (!text.is_empty() && number.is_empty()).then_some(total)
}

/// Compares two values of a row. Ages may differ slightly.
fn is_same(ours: &Value, theirs: &Value) -> bool {
    let age = |cell: &Value| cell.as_str().and_then(seconds);
    match (age(ours), age(theirs)) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= TOLERANCE,
        _ => ours == theirs,
    }
}

/// Removes the changes that the API server's printers make to stored objects: the order of
/// `FlowSchemas`, and an annotation of `DaemonSets`.
fn as_stored(mut table: Value, path: &str) -> Value {
    let Some(rows) = table["rows"].as_array_mut() else { return table };
    if path.contains("/flowschemas") {
        rows.sort_by_key(|row| row["cells"][0].as_str().unwrap_or_default().to_owned());
    }
    for row in rows.iter_mut().filter(|_| path.contains("/daemonsets")) {
        if let Some(annotations) = row["object"]["metadata"]["annotations"].as_object_mut() {
            annotations.remove("deprecated.daemonset.template.generation");
        }
    }
    table
}

/// The first difference of two tables.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    for field in ["kind", "apiVersion", "columnDefinitions"] {
        if ours[field] != theirs[field] {
            return Some(format!("{field}\n  ours: {}\n  theirs: {}", ours[field], theirs[field]));
        }
    }
    let rows = |table: &Value| table["rows"].as_array().cloned();
    let (Some(ours), Some(theirs)) = (rows(ours), rows(theirs)) else {
        return (ours["rows"] != theirs["rows"]).then(|| format!("{ours} {theirs}"));
    };
    if ours.len() != theirs.len() {
        return Some(format!("{} rows, not {}", ours.len(), theirs.len()));
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let (cells, expected) = (ours["cells"].as_array(), theirs["cells"].as_array());
        let (Some(cells), Some(expected)) = (cells, expected) else {
            return Some(format!("no cells\n  ours: {ours}\n  theirs: {theirs}"));
        };
        let is_equal = cells.len() == expected.len()
            && cells.iter().zip(expected).all(|(ours, theirs)| is_same(ours, theirs));
        if !is_equal
            || ours["object"] != theirs["object"]
            || ours["conditions"] != theirs["conditions"]
        {
            return Some(format!("\n  ours: {ours}\n  theirs: {theirs}"));
        }
    }
    None
}

/// A cluster with an object of every kind, and an operator that serves them.
struct TableFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    space: String,
    kinds: Vec<ApiKind>,
}

impl TableFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::lease()?;
        let served = Served::start(&world, &[])?;
        Operator::grant_reading(&world)?;
        world.cluster.apply(GADGETS)?;
        world.cluster.apply(cells::DEFINITION)?;
        world.cluster.run(["wait", "--for=condition=Established", "crd", "--all"])?;
        eventually(SOON, || Ok(world.cluster.run(["get", "gadgets,plains,cells", "-A"])?))?;
        let space = world.namespace("tables")?;
        let has_account = ["get", "serviceaccount", "default", "-n", &space];
        eventually(SOON, || Ok(world.cluster.run(has_account)?))?;
        for objects in [OBJECTS, CUSTOM] {
            world.cluster.apply(&objects.replace("NAMESPACE", &space))?;
        }
        world.cluster.apply(&cells::objects(&space))?;
        for (kind, name, status) in statuses() {
            let patch = json!({"status": status}).to_string();
            let patch = [
                "patch",
                kind,
                name,
                "-n",
                &space,
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ];
            world.cluster.run(patch)?;
        }
        world.cluster.run(["delete", "pod", "going", "-n", &space, "--wait=false"])?;
        let token = account(&world, &space, "reader")?;
        let_read(&world, (&space, "reader"), None)?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        let kinds = eventually(SOON, || kinds(&api, &token))?;
        for (part, some) in kinds.chunks(MAX_TARGETS).enumerate() {
            let first = part * MAX_TARGETS;
            let targets = some.iter().enumerate().map(|(at, kind)| kind.target(first + at));
            let spec = format!("{{targets: [{}]}}", targets.collect::<Vec<_>>().join(", "));
            let name = format!("part-{part}");
            let profile = Profile::apply(&world, NAMESPACE, &name, &spec)?;
            profile.await_condition("Ready", "True", None, SOON)?;
        }
        Ok(Self { world, served, api, reads, token, space, kinds })
    }
}

#[test]
fn tables_match_the_api_servers_tables() -> Outcome {
    let scene = TableFixture::start()?;
    let began = ages(&scene, &scene.reads)?;
    let mut different = Vec::new();
    let mut same = |path: String, accept: &str| {
        let outcome = eventually(SOON_SAME, || {
            let theirs = scene.api.get_as(&scene.token, &path, accept)?;
            let ours = scene.reads.get_as(&scene.token, &path, accept)?;
            if (ours.code, theirs.code) != (200, 200) {
                return Err(format!("{path}: {ours:?} {theirs:?}").into());
            }
            match difference(&as_stored(ours.json(), &path), &as_stored(theirs.json(), &path)) {
                None => Ok(()),
                Some(difference) => Err(format!("{path} ({accept}): {difference}").into()),
            }
        });
        different.extend(outcome.err().map(|error| error.to_string()));
    };
    for kind in &scene.kinds {
        same(kind.path(), TABLE);
    }
    let base = format!("/api/v1/namespaces/{}", scene.space);
    let gadgets = format!("/apis/example.com/v1/namespaces/{}/gadgets", scene.space);
    for included in ["", "None", "Metadata", "Object"] {
        for path in [format!("{base}/pods"), format!("{base}/pods/states"), gadgets.clone()] {
            same(format!("{path}?includeObject={included}"), KUBECTL);
        }
    }
    for path in [
        format!("{base}/pods?labelSelector=app%3Dnone"),
        format!("{base}/limitranges?labelSelector=app%3Dnone"),
        format!("{base}/pods?labelSelector=app%3Dweb&fieldSelector=status.phase%3DRunning"),
        format!("{base}/configmaps?limit=1"),
        format!("{base}/services?resourceVersion=0"),
        format!("{gadgets}/full"),
    ] {
        same(path.clone(), KUBECTL);
        same(path, OLD_TABLE);
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    for (path, code) in [("pods?includeObject=all", 400), ("pods/none", 404)] {
        let path = format!("{base}/{path}");
        let ours = scene.reads.get_as(&scene.token, &path, TABLE)?;
        let theirs = scene.api.get_as(&scene.token, &path, TABLE)?;
        assert_eq!((ours.code, ours.json()), (code, theirs.json()), "{path}");
    }
    cells::are_printed_as_in_the_api_server(
        (&scene.reads, &scene.api),
        &scene.token,
        &scene.space,
    )?;
    let first =
        scene.reads.get_as(&scene.token, &format!("{base}/configmaps?limit=1"), TABLE)?.json();
    assert!(first["metadata"]["continue"].is_string(), "{first}");
    assert!(first["metadata"]["remainingItemCount"].is_u64(), "{first}");
    kubectl_prints_the_same(&scene)?;
    ages_grow(&scene, &began)?;
    watched_tables_are_the_same(&scene)
}

/// Version and printed age in seconds of a pod and of a custom resource that no controller changes.
fn ages(scene: &TableFixture, server: &Server) -> Result<Vec<(String, i64)>, Failure> {
    let TableFixture { token, space, .. } = scene;
    let paths = [
        format!("/api/v1/namespaces/{space}/pods/done"),
        format!("/apis/example.com/v1/namespaces/{space}/gadgets/wrong"),
    ];
    let age = |path: &String| {
        let table = server.get_as(token, path, TABLE)?.json();
        let mut columns = table["columnDefinitions"].as_array().into_iter().flatten();
        let at = columns.position(|column| column["name"] == "Age").ok_or("no column")?;
        let row = &table["rows"][0];
        let age = row["cells"][at].as_str().and_then(seconds);
        let version = row["object"]["metadata"]["resourceVersion"].as_str();
        let shown = version.zip(age).ok_or_else(|| format!("{path}: {table}"))?;
        Ok((shown.0.to_owned(), shown.1))
    };
    paths.iter().map(age).collect()
}

/// The printed ages grow, although the objects are unchanged since `first`.
fn ages_grow(scene: &TableFixture, first: &[(String, i64)]) -> Outcome {
    let have_grown = |now: &[(String, i64)]| {
        first.iter().zip(now).all(|((_, before), (_, after))| after - before >= 10)
    };
    let ours = eventually(SOON, || {
        let now = ages(scene, &scene.reads)?;
        if have_grown(&now) { Ok(now) } else { Err(format!("{first:?}, then {now:?}").into()) }
    })?;
    let theirs = ages(scene, &scene.api)?;
    for (((before, _), (after, age)), (_, expected)) in first.iter().zip(&ours).zip(&theirs) {
        assert_eq!(before, after, "the object has changed");
        assert!((age - expected).abs() <= TOLERANCE, "{ours:?}, not {theirs:?}");
    }
    Ok(())
}

/// Returns the output of a command with every age replaced, and with single spaces.
pub(crate) fn printed(mut command: Command, arguments: &[&str]) -> Result<String, Failure> {
    let output = command.args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(without_ages(&String::from_utf8(output.stdout)?))
}

/// Replaces every age and joins repeated spaces.
pub(crate) fn without_ages(text: &str) -> String {
    let word = |word: &str| match seconds(word.trim_start_matches('(')) {
        Some(_) => "AGE".to_owned(),
        None => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn kubectl_prints_the_same(scene: &TableFixture) -> Outcome {
    let TableFixture { world, served, token, space, .. } = scene;
    let many = "pods,services,deployments,replicasets,statefulsets,daemonsets,jobs,cronjobs,configmaps,\
                secrets,serviceaccounts,ingresses,pvc,hpa,pdb,networkpolicies,roles,rolebindings,leases,\
                resourcequotas,limitranges,gadgets";
    let cluster = "nodes,namespaces,pv,storageclasses,clusterroles,clusterrolebindings,priorityclasses,\
                   ingressclasses,csidrivers,csr,crd";
    for arguments in [
        &["get", many, "-n", space] as &[&str],
        &["get", many, "-n", space, "-o", "wide"],
        &["get", many, "-n", space, "--show-labels"],
        &["get", many, "-A", "-L", "app"],
        &["get", cluster],
        &["get", cluster, "-o", "wide"],
        &["get", "pods", "-n", space, "--no-headers"],
        &["get", "pods", "-n", space, "--sort-by=.metadata.name"],
        &["get", "pods", "-n", space, "--sort-by=.status.phase", "-o", "wide"],
        &["get", "gadgets", "-n", space, "--sort-by=.metadata.name"],
        &["get", "pod", "states", "-n", space, "-o", "wide"],
        &["get", "pod/states", "svc/plain", "-n", space],
        &["get", "all", "-n", space],
        &["get", "events", "-n", space, "--field-selector=reason=Bad", "-o", "wide"],
        &["get", "configmaps", "-A", "--chunk-size=2"],
    ] {
        eventually(SOON_SAME, || {
            let ours = printed(served.kubectl(world, token)?, arguments)?;
            let theirs = printed(api_kubectl(world, token)?, arguments)?;
            if ours == theirs {
                return Ok(());
            }
            Err(format!("{arguments:?}\nours:\n{ours}\ntheirs:\n{theirs}").into())
        })?;
    }
    Ok(())
}

/// The events that both servers must send. Bookmarks are left out, except the bookmark at the end
/// of the initial events, which is compared without its version.
fn events_of(watch: &Watch) -> Vec<Value> {
    let mark = |event: &Value| {
        event["object"]["rows"][0]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
            == "true"
    };
    let comparable = |mut event: Value| {
        if event["type"] == "BOOKMARK" {
            event["object"]["metadata"]["resourceVersion"] = json!("*");
            event["object"]["rows"][0]["object"]["metadata"]["resourceVersion"] = json!("*");
        }
        event
    };
    let events = watch.events().into_iter();
    events.filter(|event| event["type"] != "BOOKMARK" || mark(event)).map(comparable).collect()
}

/// Keeps the columns only in the first event. The API server repeats them if another watch of the
/// same form had written its first event before (`watchEmbeddedEncoder` in apiserver 0.36 shares
/// encoded events).
fn with_columns_once(theirs: &[Value]) -> Vec<Value> {
    let mut theirs = theirs.to_vec();
    if let Some((first, further)) = theirs.split_first_mut() {
        let columns = &first["object"]["columnDefinitions"];
        for event in
            further.iter_mut().filter(|event| event["object"]["columnDefinitions"] == *columns)
        {
            event["object"]["columnDefinitions"] = Value::Null;
        }
    }
    theirs
}

/// The first difference between the events of two watches.
fn first_difference(ours: &[Value], theirs: &[Value]) -> Option<String> {
    let theirs = with_columns_once(theirs);
    let both = ours.iter().zip(&theirs);
    let different = both.filter_map(|(ours, theirs)| {
        let (table, expected) = (&ours["object"], &theirs["object"]);
        if ours["type"] != theirs["type"] || table["metadata"] != expected["metadata"] {
            return Some(format!("\n  ours: {ours}\n  theirs: {theirs}"));
        }
        difference(table, expected)
    });
    let count = || format!("{} events, not {}", ours.len(), theirs.len());
    different.into_iter().next().or_else(|| (ours.len() != theirs.len()).then(count))
}

fn watched_tables_are_the_same(scene: &TableFixture) -> Outcome {
    let TableFixture { api, reads, token, space, .. } = scene;
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let limits = format!("/api/v1/namespaces/{space}/limitranges");
    let gadgets = format!("/apis/example.com/v1/namespaces/{space}/gadgets");
    let state = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let since = reads.get(token, &pods)?.json();
    let since = since["metadata"]["resourceVersion"].as_str().ok_or("no version")?.to_owned();
    let mut pairs = Vec::new();
    for (path, query, accept) in [
        (&*pods, String::new(), TABLE),
        (&pods, format!("resourceVersion={since}"), KUBECTL),
        (
            &pods,
            "resourceVersion=0&includeObject=Object&labelSelector=app%3Dweb".to_owned(),
            KUBECTL,
        ),
        (&pods, state.to_owned(), OLD_TABLE),
        (&pods, format!("{state}&includeObject=None"), TABLE),
        (&pods, format!("{state}&labelSelector=app%3Dnone"), TABLE),
        (&limits, state.to_owned(), TABLE),
        (&gadgets, state.to_owned(), TABLE),
        (&gadgets, "resourceVersion=0&includeObject=Object".to_owned(), OLD_TABLE),
        ("/api/v1/nodes", format!("{state}&includeObject=None"), TABLE),
    ] {
        let path = format!("{path}?watch=true&{query}");
        let ours = reads.watch(token, &path, accept)?;
        let theirs = api.watch(token, &path, accept)?;
        assert_eq!((ours.code, theirs.code), (200, 200), "{path}");
        assert_eq!(ours.headers.get("content-type"), theirs.headers.get("content-type"), "{path}");
        pairs.push((format!("{path} ({accept})"), ours, theirs));
    }
    let refused = format!("{pods}?watch=true&includeObject=all");
    let (ours, theirs) =
        (reads.get_as(token, &refused, TABLE)?, api.get_as(token, &refused, TABLE)?);
    assert_eq!((ours.code, ours.json()), (400, theirs.json()));

    kubectl_shows_the_same(scene)?;
    let mut different = Vec::new();
    for (path, ours, theirs) in &pairs {
        let same = eventually(SOON_SAME, || {
            let (ours, theirs) = (events_of(ours), events_of(theirs));
            assert!(
                theirs.iter().all(|event| event["object"]["kind"] == "Table"),
                "{path}: {theirs:?}"
            );
            match first_difference(&ours, &theirs) {
                None if !ours.is_empty() => Ok(()),
                None => Err(format!("{path}: no event was sent").into()),
                Some(difference) => Err(format!("{path}: {difference}").into()),
            }
        });
        different.extend(same.err().map(|error| error.to_string()));
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}

/// Compares the output of `kubectl get -w` during writes.
fn kubectl_shows_the_same(scene: &TableFixture) -> Outcome {
    let TableFixture { world, served, token, space, .. } = scene;
    let mut watching = Vec::new();
    for (name, mut kubectl) in
        [("ours", served.kubectl(world, token)?), ("theirs", api_kubectl(world, token)?)]
    {
        let path = world.cluster.folder().join(format!("watched-{name}"));
        kubectl.args(["get", "pods", "-n", space, "-w", "-o", "wide"]);
        let child = kubectl.stdout(std::fs::File::create(&path)?).spawn()?;
        watching.push((path, child));
    }
    let shown = || -> Result<Vec<String>, Failure> {
        let text =
            |(path, _): &(_, _)| Ok(without_ages(&std::fs::read_to_string::<&PathBuf>(path)?));
        watching.iter().map(text).collect()
    };
    let outcome = eventually(SOON, || {
        let shown = shown()?;
        if shown.iter().all(|text| text.lines().count() >= 4) {
            Ok(())
        } else {
            Err(format!("{shown:?}").into())
        }
    })
    .and_then(|()| {
        for arguments in [
            &["label", "pod", "done", "-n", space, "more=1"] as &[&str],
            &["label", "gadget", "full", "-n", space, "more=1"],
            &["label", "limitrange", "l", "-n", space, "more=1"],
            &["label", "node", "n1", "more=1"],
            &["label", "pod", "states", "-n", space, "app-"],
            &["delete", "pod", "done", "-n", space, "--force"],
            &["delete", "gadget", "full", "-n", space],
        ] {
            world.cluster.run(arguments.iter().copied())?;
        }
        world.cluster.apply(&LATE.replace("NAMESPACE", space))?;
        eventually(SOON_SAME, || {
            let shown = shown()?;
            if shown[0] == shown[1] && shown[0].contains("late ") {
                return Ok(());
            }
            Err(format!("ours:\n{}\ntheirs:\n{}", shown[0], shown[1]).into())
        })
    });
    for (_, mut child) in watching {
        child.kill()?;
        child.wait()?;
    }
    outcome
}
