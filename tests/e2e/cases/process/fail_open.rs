//! The `EndpointSlice` with which injected pods reach the API server while no replica is ready.
//! `tests/node` shows the slice at work; here are the slices that kubewarm must not write.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::issued_certificates::{CertifiedReplica, prepare};
use crate::operator::NAMESPACE;
use crate::world::{Outcome, SOON, World, eventually, file};

/// The slice that the API server writes in a real cluster, with an address where nobody listens.
const KUBERNETES: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}}]
ports: [{name: https, port: 6443, protocol: TCP}]
";

/// A slice of the Service `service`, whose endpoint has these conditions.
fn slice(name: &str, service: &str, conditions: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": conditions}],
        "ports": [{"name": "api", "port": 6443, "protocol": "TCP"}],
    })
}

#[test]
fn kubewarm_writes_only_verified_addresses_that_terminate() -> Outcome {
    let world = World::alone()?;
    let cluster = &world.cluster;
    prepare(&world)?;
    cluster.run(["apply", "-f", &file("deploy/inject.yaml").to_string_lossy()])?;
    let replica = CertifiedReplica::start(&world, "first", &["--inject"])?;
    replica.await_ready()?;
    let is_logged = |text: &str| {
        eventually(SOON, || {
            let log = replica.operator.process.log();
            if log.contains(text) { Ok(()) } else { Err(log.into()) }
        })
    };
    is_logged("cannot keep the EndpointSlice of kubewarm-api-failopen")?;
    cluster.apply(KUBERNETES)?;
    is_logged(
        "192.0.2.1 of /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes presents no certificate",
    )?;
    let slices = cluster.run(["get", "endpointslices", "-n", NAMESPACE, "-o", "name"])?;
    assert!(!slices.contains("kubewarm-apiserver"), "{slices}");

    let account = cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    let (name, service) = ("kubewarm-apiserver-ipv4", "kubewarm-api-failopen");
    for (number, (slice, is_accepted)) in [
        (slice(name, service, &terminating), true),
        (slice(name, service, &json!({"ready": true})), false),
        (slice(name, service, &json!({})), false),
        (slice(name, "kubernetes", &terminating), false),
        (slice("other", service, &terminating), false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = cluster.folder().join(format!("slice-{number}.json"));
        fs::write(&path, slice.to_string())?;
        eventually(SOON, || {
            let output = Command::new(cluster.kubectl_program())
                .args(["create", "--dry-run=server", "--kubeconfig"])
                .arg(&account)
                .arg("-f")
                .arg(&path)
                .output()?;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_refused = error.contains("may write only the EndpointSlices");
            if output.status.success() == is_accepted && is_refused != is_accepted {
                return Ok(());
            }
            Err(format!("{slice}: {error}").into())
        })?;
    }
    Ok(())
}
