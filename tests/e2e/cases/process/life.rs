//! The quickstart, and the end of the process during a first list.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;

use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Outcome, SOON, World, eventually, file};

#[test]
fn the_quickstart_becomes_ready_and_prints_every_column() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start(&world)?;
    let quickstart = file("deploy/examples/quickstart.yaml");
    let cluster = &world.cluster;
    cluster.run(["apply", "-f", &quickstart.to_string_lossy()])?;
    let all: Value = serde_json::from_str(&cluster.run(["get", "cprof", "-A", "-o", "json"])?)?;
    let metadata = all.pointer("/items/0/metadata").ok_or("no profile in the quickstart")?;
    let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), metadata["name"].as_str())
    else {
        return Err("a profile without a name".into());
    };
    let profile = format!("cprof/{name}");
    cluster.run(["wait", "--for=condition=Ready", &profile, "-n", namespace, "--timeout=60s"])?;

    let table = cluster.run(["get", "cprof", "-n", namespace, "-o", "wide"])?;
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let informers: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    // Of all columns, only the ServiceAccount's is empty, because the profile has none.
    assert_eq!(header.len(), informers.len() + 1, "an empty column:\n{table}");
    assert_eq!(informers.get(..2), Some(&[name, "True"][..]), "{table}");

    assert_eq!(operator.ask("/livez")?.0, 200);
    eventually(SOON, || {
        let (code, body) = operator.ask("/readyz?verbose")?;
        if code == 200 { Ok(()) } else { Err(format!("{code}: {body}").into()) }
    })?;
    let (code, metrics) = operator.ask("/metrics")?;
    assert_eq!(code, 200);
    assert!(metrics.contains("kubewarm_build_info{"), "{metrics}");
    let (code, informers) = operator.ask("/debug/informers")?;
    assert_eq!(code, 200);
    serde_json::from_str::<Value>(&informers)?;
    Ok(())
}

/// The CRD of a kind that etcd stores as v1, and that a webhook at `port` converts to v2.
fn converted(port: u16) -> String {
    let schema = "schema: {openAPIV3Schema: {type: object}}";
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: slowparts.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: SlowPart, plural: slowparts, singular: slowpart}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {{url: 'https://127.0.0.1:{port}/'}}
  versions:
  - {{name: v1, served: true, storage: true, {schema}}}
  - {{name: v2, served: true, storage: false, {schema}}}
"
    )
}

#[test]
fn sigterm_during_the_warm_up_ends_in_time_and_releases_the_lease() -> Outcome {
    let world = World::lease()?;
    let namespace = world.namespace("slow")?;
    // The conversion webhook accepts connections and never answers. So each list takes the
    // webhook's timeout of 10 s.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    world.cluster.apply(&converted(silent.local_addr()?.port()))?;
    let part = format!(
        "{{apiVersion: example.com/v1, kind: SlowPart, \
         metadata: {{name: a, namespace: {namespace}}}}}"
    );
    eventually(SOON, || Ok(world.cluster.apply(&part)?))?;

    // The test grants the permissions in advance, so that the first list starts at once and hangs.
    let resource = "--resource=slowparts.example.com";
    let account = format!("--serviceaccount={NAMESPACE}:kubewarm");
    let role = ["create", "role", "parts", "--verb=list,watch", resource, "-n", &namespace];
    world.cluster.run(role)?;
    world.cluster.run([
        "create",
        "rolebinding",
        "parts",
        "--role=parts",
        &account,
        "-n",
        &namespace,
    ])?;

    let operator = Operator::start(&world)?;
    let spec = "{targets: [{name: parts,
                 group: example.com, version: v2, resource: slowparts}]}";
    let profile = Profile::apply(&world, &namespace, "slow", spec)?;
    profile.await_target("parts", ("Warm", "False", "Syncing"), SOON)?;
    let holder = |lease: &Value| {
        let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str);
        holder.unwrap_or_default().to_owned()
    };
    assert_ne!(holder(&world.get(NAMESPACE, "lease", "kubewarm")?), "", "no pod holds it");

    operator.process.request_end()?;
    let status = operator.process.wait(Duration::from_secs(5))?;
    assert!(status.success(), "{status}\n{}", operator.process.log());
    assert_eq!(holder(&world.get(NAMESPACE, "lease", "kubewarm")?), "", "the lease is still held");
    Ok(())
}
