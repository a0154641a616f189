//! metrics-server, which reads the nodes and pods of the whole cluster. It serves measurements of
//! the pods that its informer contains.

use std::collections::BTreeSet;
use std::process::Command;

use jiff::Timestamp;
use serde_json::Value;
use testbed::{eventually, metrics_server};

use crate::injected::audit::{AuditMark, LoggedRequest, RequestTally, assert_no_reads, requests};
use crate::injected::{
    InjectedWorkload, injecting_release, kill_kubewarm, restart_apiserver, roll_kubewarm, served,
};
use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// metrics-server with the permissions and options of its manifests, and a user of its API. The
/// kubelet's certificate is self-signed.
const WORKLOAD: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: metrics-server, namespace: monitoring}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: monitoring}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-server}
rules:
- {apiGroups: [''], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [''], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-server}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: monitoring}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-server-auth-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:auth-delegator'}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: monitoring}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-server-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: monitoring}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{apiGroups: [metrics.k8s.io], resources: [pods, nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: monitoring}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: metrics-server, namespace: monitoring}
spec:
  selector: {matchLabels: {app: metrics-server}}
  template:
    metadata: {labels: {app: metrics-server}}
    spec:
      serviceAccountName: metrics-server
      containers:
      - name: metrics-server
        image: IMAGE
        args: [--cert-dir=/tmp, --secure-port=10250, --kubelet-preferred-address-types=InternalIP,
          --kubelet-use-node-status-port, --kubelet-insecure-tls, --metric-resolution=15s]
        ports: [{name: https, containerPort: 10250}]
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
";

/// metrics-server, and a token of a user who may read its API.
struct Meter<'a> {
    workload: InjectedWorkload<'a>,
    token: String,
}

impl Meter<'_> {
    /// Reads the metrics API of metrics-server's pod.
    fn get(&self, path: &str) -> Result<Value, Failure> {
        let address = self.workload.pod()?.address;
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--insecure", "--max-time", "10"])
            .args(["--header", &format!("Authorization: Bearer {}", self.token)])
            .arg(format!("https://{address}:10250/apis/metrics.k8s.io/v1beta1/{path}"));
        let output = self.workload.world.node.command(&curl).output()?;
        if output.status.success() {
            Ok(serde_json::from_slice(&output.stdout)?)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into())
        }
    }

    /// Waits until metrics-server has measured exactly kubewarm's pods, each after this call.
    fn await_pods(&self, release: &NodeRelease<'_>) -> Outcome {
        let since = Timestamp::now();
        eventually(SOON, || {
            let list = self.get(&format!("namespaces/{NAMESPACE}/pods"))?;
            let items = list["items"].as_array().ok_or("no items")?;
            let mut measured = BTreeSet::new();
            for item in items {
                if text(item, "/timestamp").parse::<Timestamp>()? < since {
                    return Err(format!("measured before: {item}").into());
                }
                measured.insert(text(item, "/metadata/name").to_owned());
            }
            let pods: BTreeSet<_> = release.pods()?.into_iter().map(|pod| pod.name).collect();
            if measured == pods { Ok(()) } else { Err(format!("{measured:?}, {pods:?}").into()) }
        })
    }
}

/// The requests for kinds in the profile. metrics-server also reads one `ConfigMap`, by its name
/// only, and such permissions are no part of a profile.
fn of_declared_kinds(mut requests: Vec<LoggedRequest>) -> Vec<LoggedRequest> {
    requests.retain(|request| request.resource != "configmaps");
    requests
}

#[test]
fn metrics_server_measures_the_present_pods_while_servers_restart() -> Outcome {
    let test = "metrics_server_measures_the_present_pods_while_servers_restart";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let world = &world;
    let image = world.node.import_program("metrics-server", &metrics_server()?)?;
    let release = injecting_release(world)?;
    let begin = AuditMark::now(world)?;
    world.cluster().apply(&WORKLOAD.replace("IMAGE", &image))?;
    let workload =
        InjectedWorkload { world, workload: "deployment/metrics-server", namespace: "monitoring" };
    workload.await_rollout()?;
    let token = world.run("create token reader --namespace=monitoring --duration=2h")?;
    let meter = Meter { workload, token: token.trim().to_owned() };
    meter.await_pods(&release)?;
    let user = meter.workload.user();
    let directly = RequestTally::of(&of_declared_kinds(requests(world, &user, begin)?));
    report(&format!("{test}: {} MiB directly: {directly}", meter.workload.memory_mib()?))?;

    let mark = AuditMark::now(world)?;
    meter.workload.inject("")?;
    meter.await_pods(&release)?;
    let injected = of_declared_kinds(requests(world, &user, mark)?);
    assert_no_reads(&injected);
    report(&format!(
        "{test}: {} MiB injected, {} lists and watches served by kubewarm: {}",
        meter.workload.memory_mib()?,
        served(world, &user)?,
        RequestTally::of(&injected)
    ))?;
    let pod = meter.workload.pod()?;

    roll_kubewarm(world)?;
    meter.await_pods(&release)?;
    kill_kubewarm(world, &release)?;
    meter.await_pods(&release)?;
    restart_apiserver(world)?;
    // metrics-server's informer learns of the new pods after the restart.
    roll_kubewarm(world)?;
    meter.await_pods(&release)?;
    assert_eq!(meter.workload.pod()?, pod, "metrics-server did not restart");

    world.run(&format!("delete cacheprofile monitoring.metrics-server -n {NAMESPACE}"))?;
    world.run("delete namespace monitoring --wait=false")?;
    world.run(
        "delete clusterrolebinding metrics-server metrics-server-auth-delegator metrics-reader",
    )?;
    world.run("delete clusterrole metrics-server metrics-reader")?;
    world.run("delete rolebinding metrics-server-auth-reader --namespace=kube-system")?;
    Ok(())
}
