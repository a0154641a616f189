//! kubewarm with `--watch-namespaces`, whose ServiceAccount has only Roles.

use std::process::Command;

use serde_json::{Value, json};

use crate::accept::TABLE;
use crate::api::{Served, Server, account, let_read};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::{Profile, message};
use crate::world::{Failure, Outcome, SOON, World, eventually};

const PODS: &str = "{targets: [{name: pods, resource: pods}]}";
/// Targets that kubewarm cannot read without a ClusterRole.
const WIDE: &str = "{targets: [
  {name: all, resource: pods, scope: {type: AllNamespaces}},
  {name: nodes, resource: nodes, scope: {type: Cluster}},
  {name: chosen, resource: pods,
   scope: {type: NamespaceSelector, namespaceSelector: {matchLabels: {a: b}}}}]}";

/// A kind with a selectable field and a printer column.
const PAINTS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: paints.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Paint, plural: paints, singular: paint}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {tone: {type: string}}}}
    selectableFields: [{jsonPath: .spec.tone}]
    additionalPrinterColumns: [{name: Tone, type: string, jsonPath: .spec.tone}]
";

/// Applies the Roles for these namespaces that kubewarm ships.
fn grant_roles(world: &World, namespaces: &str) -> Result<(), Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["rbac", "--operator", "--operator-namespace", NAMESPACE]);
    command.args(["--watch-namespaces", namespaces]);
    let printed = command.output()?;
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    world.cluster.apply(&String::from_utf8(printed.stdout)?)?;
    Ok(())
}

/// The `ClusterRoles` and `ClusterRoleBindings` that name kubewarm.
fn cluster_roles(world: &World) -> Result<Vec<String>, Failure> {
    let kinds = "clusterroles,clusterrolebindings";
    let names = world.cluster.run(["get", kinds, "--output=name"])?;
    Ok(names.lines().filter(|name| name.contains("kubewarm")).map(str::to_owned).collect())
}

/// Applies the manifests in the status, and waits until the profile is ready.
fn make_ready(profile: &Profile<'_>) -> Outcome {
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

/// The name of the pod that holds the lease.
fn leader(world: &World) -> Result<String, Failure> {
    let lease = world.get(NAMESPACE, "lease", "kubewarm")?;
    let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str);
    let (pod, _) = holder.unwrap_or_default().rsplit_once('_').unwrap_or_default();
    Ok(pod.to_owned())
}

#[test]
fn without_any_cluster_role_profiles_of_the_named_namespaces_become_ready() -> Outcome {
    let world = World::with_roles()?;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    grant_roles(&world, &format!("{NAMESPACE},{shop}"))?;

    // One namespace has no Role and one does not exist. The other namespaces must work.
    let watched = format!("{NAMESPACE},{shop},{other},nowhere");
    let flag = ["--watch-namespaces", &watched];
    let operator = Operator::launch(&world, "pod-a", &flag)?;
    let profile = Profile::apply(&world, &shop, "web", PODS)?;
    make_ready(&profile)?;
    let status = profile.read()?;
    assert!(status.pointer("/status/access/lastVerifiedTime").is_some(), "{status:#}");

    // A profile in the operator's namespace that names other namespaces, watched or not.
    let two = format!("{{type: Namespaces, namespaces: [{shop}, {other}]}}");
    let two = PODS.replace("}]}", &format!(", scope: {two}}}]}}"));
    make_ready(&Profile::apply(&world, NAMESPACE, "two", &two)?)?;

    // A profile with a ServiceAccount of its own. A Role permits kubewarm to request tokens for it.
    world.cluster.run(["create", "serviceaccount", "reader", "-n", &shop])?;
    let account = PODS.replacen('{', "{serviceAccountName: reader, ", 1);
    make_ready(&Profile::apply(&world, &shop, "account", &account)?)?;
    assert_eq!(cluster_roles(&world)?, Vec::<String>::new());

    let wide = Profile::apply(&world, NAMESPACE, "wide", WIDE)?;
    for target in ["all", "nodes", "chosen"] {
        wide.await_target(target, ("Accepted", "False", "ScopeNotAvailable"), SOON)?;
    }
    let refused = wide.await_condition("Accepted", "False", Some("ScopeNotAvailable"), SOON)?;
    assert!(message(&refused, "Accepted").contains("ClusterRole"), "{refused:#}");

    eventually(SOON, || {
        let (code, page) = operator.ask("/readyz?verbose")?;
        let is_named = |name: &str| {
            page.lines().any(|line| {
                line.contains("cacheprofiles") && line.contains(&format!("namespace {name}:"))
            })
        };
        let as_expected = is_named(&other) && is_named("nowhere") && !is_named(&shop);
        if code == 200 && as_expected { Ok(()) } else { Err(format!("{code}: {page}").into()) }
    })?;
    let log = operator.process.log();
    let is_named = |line: &str| line.contains("cacheprofiles") && line.contains(&other);
    assert!(log.lines().any(is_named), "{log}");

    // A profile has no status while kubewarm may not list profiles in its namespace. kubewarm finds
    // the profile after the grant.
    let late = Profile::apply(&world, &other, "late", PODS)?;
    assert!(late.read()?.get("status").is_none());
    grant_roles(&world, &other)?;
    late.await_that(SOON, |profile| profile.get("status").map(drop))?;
    make_ready(&late)?;

    // Roles are enough for the lease and the Events.
    assert_eq!(leader(&world)?, "pod-a");
    let events = world.cluster.run(["get", "events.events.k8s.io", "-n", &shop, "-o", "name"])?;
    assert!(!events.is_empty(), "no Event");

    // kubewarm notices a revoked permission even without permission to send access reviews.
    world.cluster.run(["delete", "rolebinding", "--all", "-n", &shop])?;
    grant_roles(&world, &shop)?;
    profile.await_condition("Authorized", "False", None, SOON)?;
    assert_eq!(cluster_roles(&world)?, Vec::<String>::new());

    let _second = Operator::launch(&world, "pod-b", &flag)?;
    assert!(operator.process.term()?.success());
    eventually(SOON, || match &*leader(&world)? {
        "pod-b" => Ok(()),
        other => Err(format!("{other:?} leads").into()),
    })
}

#[test]
fn a_namespace_that_cannot_be_listed_any_more_keeps_its_profiles_and_delays_no_other() -> Outcome {
    let world = World::with_roles()?;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    let watched = format!("{shop},{other}");
    grant_roles(&world, &watched)?;
    let operator = Operator::launch(&world, "pod-a", &["--watch-namespaces", &watched])?;
    let kept = Profile::apply(&world, &other, "kept", PODS)?;
    make_ready(&kept)?;
    world.cluster.run(["delete", "rolebinding", "kubewarm:operator", "-n", &other])?;
    // An open watch continues after its Role is deleted, so the restart closes the connection.
    world.cluster.apiserver().kill()?;
    world.cluster.apiserver().start()?;
    eventually(SOON, || {
        let (_, page) = operator.ask("/readyz?verbose")?;
        if page.contains("profiles not listed: 1 ") { Ok(()) } else { Err(page.into()) }
    })?;

    make_ready(&Profile::apply(&world, &shop, "new", PODS)?)?;
    let (_, informers) = operator.ask("/debug/informers")?;
    let page: Value = serde_json::from_str(&informers)?;
    let is_kept =
        |informer: &Value| informer["resource"] == "pods" && informer["namespace"] == *other;
    let is_kept = page["informers"].as_array().into_iter().flatten().any(is_kept);
    assert!(is_kept, "{informers}");
    Ok(())
}

/// A Role cannot grant access to a `CustomResourceDefinition`, so kubewarm learns about the kind
/// from discovery only.
#[test]
fn custom_resources_are_served_after_their_group_is_configured() -> Outcome {
    let world = World::with_roles()?;
    world.cluster.apply(PAINTS)?;
    world.cluster.run(["wait", "--for=condition=Established", "crd/paints.example.com"])?;
    eventually(SOON, || Ok(world.cluster.run(["get", "paints", "-A"])?))?;
    let shop = world.namespace("shop")?;
    let paint = format!(
        "{{apiVersion: example.com/v1, kind: Paint, metadata: {{name: wall, namespace: {shop}}}, \
         spec: {{tone: red}}}}"
    );
    world.cluster.apply(&paint)?;
    grant_roles(&world, &format!("{NAMESPACE},{shop}"))?;
    let token = account(&world, &shop, "reader")?;
    let_read(&world, (&shop, "reader"), Some(&shop))?;
    let all = format!("/apis/example.com/v1/namespaces/{shop}/paints");
    let (one, selected) = (format!("{all}/wall"), format!("{all}?fieldSelector=spec.tone%3Dred"));
    let api = Server::api(&world)?;
    eventually(SOON, || match api.get(&token, &selected)?.code {
        200 => Ok(()),
        code => Err(format!("{code}").into()),
    })?;

    let watched = ["--watch-namespaces", &*format!("{NAMESPACE},{shop}")];
    let served = Served::start_as_granted(&world, "pod-a", &watched)?;
    let spec = "{targets: [{name: paints, group: example.com, resource: paints}]}";
    let profile = Profile::apply(&world, &shop, "paints", spec)?;
    make_ready(&profile)?;
    let reads = served.server()?;
    for path in [&all, &one] {
        let reply = reads.get(&token, path)?;
        assert_eq!((reply.code, &reply.json()["reason"]), (421, &json!("NotCached")), "{reply:?}");
    }
    assert!(served.operator.process.term()?.success());

    let named = [&watched[..], &["--serve-aggregated-groups=example.com"]].concat();
    let served = Served::start_as_granted(&world, "pod-b", &named)?;
    let reads = served.server()?;
    let list = eventually(SOON, || {
        let reply = reads.get(&token, &all)?;
        if reply.code == 200 { Ok(reply.json()) } else { Err(format!("{reply:?}").into()) }
    })?;
    assert_eq!(
        (&list["apiVersion"], &list["kind"]),
        (&json!("example.com/v1"), &json!("PaintList"))
    );
    let items = list["items"].as_array().ok_or("no items")?;
    assert_eq!((items.len(), &items[0]["spec"]["tone"]), (1, &json!("red")), "{list}");
    let of_kind = ["apiVersion", "kind"].map(|field| items[0].get(field));
    assert_eq!(of_kind, [None, None], "{list}");
    assert_eq!(reads.get(&token, &one)?.json()["kind"], "Paint");
    for path in [&all, &one] {
        let table = reads.get_as(&token, path, TABLE)?.json();
        let columns = table["columnDefinitions"].as_array().into_iter().flatten();
        let columns: Vec<_> = columns.map(|column| &column["name"]).collect();
        assert_eq!(columns, ["Name", "Age"], "{table}");
        assert_eq!(table["rows"][0]["cells"][0], "wall", "{table}");
    }
    let reply = reads.get(&token, &selected)?;
    assert_eq!((reply.code, &reply.json()["reason"]), (400, &json!("BadRequest")), "{reply:?}");
    Ok(())
}
