//! Tests that kubewarm and the API server derive the same access review from a request's path.
//! Otherwise, kubewarm could authorize another object than it returns.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::{env, thread};

use fastrand::Rng;
use kubewarm_wire::{AccessAttributes, ForwardPlan, RequestInfo, RequestTarget, WriteTarget};
use serde_json::{Value, json};
use testbed::GoClients;

use crate::api::{Served, Server, account};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Outcome, SOON, World, eventually};

const TARGETS: usize = 100_000;
const GROUPS: [&str; 7] = [
    "/api",
    "/apis/apps",
    "/apis/cloud.example",
    "/apis/namespaces",
    "/apis/status",
    "/apis",
    "/x",
];
/// Path segments that mean something special in one position of a path and are ordinary names in
/// another: plural names, names and verbs.
const SEGMENTS: [&str; 20] = [
    "namespaces",
    "namespaces",
    "namespaces",
    "pods",
    "pods",
    "nodes",
    "status",
    "finalize",
    "watch",
    "proxy",
    "scale",
    "log",
    "profiles",
    "a",
    "a",
    "b",
    "kube-system",
    "system%3Anode",
    "web.1",
    "",
];
const PARAMETERS: [&str; 16] = [
    "watch=1",
    "watch=true",
    "watch=0",
    "watch=false",
    "watch",
    "watch=",
    "fieldSelector=metadata.name%3Dweb",
    "fieldSelector=metadata.name%3D%3Dweb,metadata.namespace%3Da",
    "fieldSelector=metadata.name!%3Dweb",
    "fieldSelector=metadata.name%3D..",
    "fieldSelector=metadata.name%3Da%252Fb",
    "fieldSelector=metadata.namespace%3Db",
    "labelSelector=app",
    "limit=5",
    "resourceVersion=0",
    "timeoutSeconds=3",
];

/// Subresources whose requests can last as long as the client wants.
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A random DNS label.
fn label(random: &mut Rng) -> String {
    let inner: String = (0..random.usize(..10))
        .map(|_| if random.u8(..8) == 0 { '-' } else { random.lowercase() })
        .collect();
    format!("{}{inner}{}", random.lowercase(), random.lowercase())
}

/// A group of [`GROUPS`] or a random group, with a version.
fn base(random: &mut Rng) -> String {
    if random.u8(..3) > 0 {
        return format!("{}/v1", GROUPS[random.usize(..GROUPS.len())]);
    }
    let group: Vec<_> = (0..random.usize(1..4)).map(|_| label(random)).collect();
    let version = ["v1", "v1", "v2beta1", "pods"][random.usize(..4)];
    format!("/apis/{}/{version}", group.join("."))
}

fn target(random: &mut Rng) -> String {
    let mut target = base(random);
    for _ in 0..random.usize(..6) {
        target.push('/');
        if random.u8(..4) == 0 {
            target.push_str(&label(random));
        } else {
            target.push_str(SEGMENTS[random.usize(..SEGMENTS.len())]);
        }
    }
    for n in 0..random.usize(..3) {
        target.push(if n == 0 { '?' } else { '&' });
        target.push_str(PARAMETERS[random.usize(..PARAMETERS.len())]);
    }
    target
}

/// The attributes of kubewarm's access review for this target, printed as the Go program prints the
/// API server's attributes. `None` if kubewarm serves no such request from a store.
fn attributes(target: &str) -> Option<String> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let info = RequestInfo::parse("GET", path, query, None).ok()?;
    let RequestTarget::Objects(objects) = info.target else { return None };
    let AccessAttributes { verb, group, version, resource, namespace, name } =
        objects.access_attributes();
    Some(format!("{verb}\t{group:?}\t{version:?}\t{namespace:?}\t{resource:?}\t\"\"\t{name:?}"))
}

/// Compares what kubewarm reads from the path of a forwarded request with the API server's
/// attributes. Returns whether both find a subresource in the path.
fn is_same_subresource(target: &str, expected: &str, seed: u64) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let [_, group, version, namespace, resource, subresource, _] =
        expected.split('\t').collect::<Vec<_>>()[..]
    else {
        return false;
    };
    // In a path below `/watch/` or `/proxy/`, kubewarm does not look for the resource.
    let first = path.split('/').nth(if path.starts_with("/api/") { 3 } else { 4 });
    if subresource == "\"\"" || matches!(first, Some("watch" | "proxy")) {
        return false;
    }
    let Ok(ForwardPlan { resource: Some(found), writes, is_long_running, .. }) =
        ForwardPlan::parse("PUT", path, None)
    else {
        return false;
    };
    let quoted = |text: &str| format!("{text:?}");
    let names = [found.group(), found.version(), found.resource()].map(quoted);
    assert_eq!(names, [group, version, resource], "SEED={seed}: {target}");
    if let Some(WriteTarget { resource, namespace: written }) = writes {
        assert_eq!(resource, *found.group_resource(), "SEED={seed}: {target}");
        let written = quoted(written.as_deref().unwrap_or_default());
        assert_eq!(written, namespace, "SEED={seed}: {target}");
    }
    let is_lasting = LASTING.iter().any(|lasting| quoted(lasting) == subresource);
    assert_eq!(is_long_running, is_lasting, "SEED={seed}: {target}");
    true
}

#[test]
fn access_reviews_have_the_attributes_that_the_api_server_authorizes() -> Outcome {
    let seed = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let mut random = Rng::with_seed(seed);
    let targets: Vec<_> = (0..TARGETS).map(|_| target(&mut random)).collect();
    let mut program = Command::new(GoClients::locate_or_build()?.program("requestinfo"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = program.stdin.take().ok_or("no standard input")?;
    let lines = targets.join("\n");
    let writer = thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = program.wait_with_output()?;
    writer.join().map_err(|_| "the writer panicked")??;
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout)?;
    let expected: Vec<_> = output.lines().collect();
    assert_eq!(expected.len(), TARGETS);
    let (mut compared, mut subresources) = (0, 0);
    for (target, expected) in targets.iter().zip(expected) {
        if let Some(actual) = attributes(target) {
            assert_eq!(actual, expected, "SEED={seed}: {target}");
            compared += 1;
        }
        subresources += usize::from(is_same_subresource(target, expected, seed));
    }
    assert!(compared > TARGETS / 10, "SEED={seed}: only {compared} targets were compared");
    assert!(subresources > TARGETS / 20, "SEED={seed}: only {subresources} subresources");
    Ok(())
}

/// A namespaced kind with the plural name `namespaces`, which is also a segment of paths.
const NAMESAKES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: namespaces.cloud.example}
spec:
  group: cloud.example
  scope: Namespaced
  names: {kind: CloudNamespace, plural: namespaces, singular: cloudnamespace}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A reply without the version of a list, which depends on the time of the request.
fn listed(mut reply: Value) -> Value {
    if reply.get("items").is_some()
        && let Some(metadata) = reply.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("resourceVersion");
    }
    reply
}

#[test]
fn a_kind_with_the_plural_name_namespaces_is_read_in_the_reviewed_namespace() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &[])?;
    Operator::grant_reading(&world)?;
    let (reads, api) = (served.server()?, Server::api(&world)?);
    world.cluster.apply(NAMESAKES)?;
    let definition = "crd/namespaces.cloud.example";
    world.cluster.run(["wait", "--for=condition=Established", definition])?;
    let (a, b) = (world.namespace("a")?, world.namespace("b")?);
    // One object has the name of another namespace: an access review in the namespace of this name
    // would wrongly permit its get.
    for (namespace, name) in [(&a, &*b), (&a, &*a), (&b, "own")] {
        let object = json!({
            "apiVersion": "cloud.example/v1", "kind": "CloudNamespace",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"secret": format!("of {namespace}")},
        });
        world.cluster.apply(&object.to_string())?;
    }
    let spec = "{targets: [
        {name: clouds, resource: namespaces, group: cloud.example, scope: {type: AllNamespaces},
         projection: {managedFields: Keep}},
        {name: namespaces, resource: namespaces, scope: {type: Cluster}, projection: {managedFields: Keep}}]}";
    let profile = Profile::apply(&world, NAMESPACE, "namesakes", spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let tenant = account(&world, &b, "tenant")?;
    world.cluster.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: tenant, namespace: {b}}}
rules: [{{apiGroups: ['', cloud.example], resources: [namespaces], verbs: [get, list, watch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: tenant, namespace: {b}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}
subjects: [{{kind: ServiceAccount, name: tenant, namespace: {b}}}]
"
    ))?;
    let root = "/apis/cloud.example/v1/namespaces";
    eventually(SOON, || match reads.get(&tenant, &format!("{root}/{b}/namespaces"))?.code {
        200 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;
    for (path, code) in [
        // The attack: the object's name is a namespace in which the tenant has the permission. An
        // access review in this namespace would permit the read.
        (format!("{root}/{a}/namespaces/{b}"), 403),
        (format!("{root}/{a}/namespaces/{a}"), 403),
        (format!("{root}/{a}/namespaces"), 403),
        (format!("{root}/{a}"), 403),
        (root.to_owned(), 403),
        (format!("{root}/{b}/namespaces/own"), 200),
        (format!("{root}/{b}/namespaces/none"), 404),
        (format!("{root}/{b}/namespaces"), 200),
        // This path names an object `b` in the namespace `b`, which does not exist.
        (format!("{root}/{b}"), 404),
        (format!("/api/v1/namespaces/{b}"), 200),
        (format!("/api/v1/namespaces/{a}"), 403),
        ("/api/v1/namespaces".to_owned(), 403),
    ] {
        let (ours, theirs) = (reads.get(&tenant, &path)?, api.get(&tenant, &path)?);
        assert_eq!((ours.code, theirs.code), (code, code), "{path}: {ours:?}");
        assert!(!ours.text.contains(&format!("of {a}")), "{path}: {ours:?}");
        assert_eq!(listed(ours.json()), listed(theirs.json()), "{path}");
    }
    let administrator = account(&world, &a, "administrator")?;
    let role = "--clusterrole=cluster-admin";
    let account = format!("--serviceaccount={a}:administrator");
    world.cluster.run(["create", "clusterrolebinding", "clouds", role, &account])?;
    for path in [format!("{root}/{a}/namespaces/{b}"), format!("{root}/{a}")] {
        let ours = eventually(SOON, || match reads.get(&administrator, &path)? {
            reply if reply.code == 200 => Ok(reply),
            reply => Err(format!("{reply:?}").into()),
        })?;
        let theirs = api.get(&administrator, &path)?;
        assert_eq!(ours.json(), theirs.json(), "{path}");
    }
    Ok(())
}
