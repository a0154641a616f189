//! cert-manager's controllers, which read the Secrets of all namespaces.

use serde_json::Value;
use testbed::{CertManager, eventually};

use crate::injected::audit::{AuditMark, RequestTally, assert_no_reads, requests};
use crate::injected::{
    InjectedWorkload, injecting_release, kill_kubewarm, kubewarm, restart_apiserver, roll_kubewarm,
    served,
};
use crate::object::{condition, text};
use crate::release::NAMESPACE;
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// The controllers with the permissions of the chart that they use, and a self-signed issuer.
const WORKLOAD: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: cert-manager}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: certificates}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cert-manager, namespace: cert-manager}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cert-manager}
rules:
- apiGroups: [cert-manager.io]
  resources: [certificates, certificaterequests, issuers, clusterissuers]
  verbs: [get, list, watch, create, delete, update, patch]
- apiGroups: [cert-manager.io]
  resources: [certificates/status, certificaterequests/status, issuers/status, clusterissuers/status]
  verbs: [update, patch]
- apiGroups: [cert-manager.io]
  resources: [certificates/finalizers, certificaterequests/finalizers]
  verbs: [update]
- {apiGroups: [cert-manager.io], resources: [signers], verbs: [approve]}
- {apiGroups: [acme.cert-manager.io], resources: [orders, challenges], verbs: [get, list, watch]}
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, list, watch, create, update, delete, patch]
- {apiGroups: [''], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cert-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cert-manager}
subjects: [{kind: ServiceAccount, name: cert-manager, namespace: cert-manager}]
---
{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: own}, spec: {selfSigned: {}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cert-manager, namespace: cert-manager}
spec:
  selector: {matchLabels: {app: cert-manager}}
  # Without leader election, two controllers would issue each certificate twice.
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: cert-manager}}
    spec:
      serviceAccountName: cert-manager
      containers: [{name: controller, image: IMAGE}]
";
/// The number of certificates in the steps without a restart, and in the others.
const MANY: usize = 50;
const FEW: usize = 10;

/// The certificates of the test.
struct Certificates<'a> {
    world: &'a NodeWorld,
    count: usize,
}

impl Certificates<'_> {
    fn create(&mut self, count: usize) -> Outcome {
        let certificate = |number| {
            format!(
                "{{apiVersion: cert-manager.io/v1, kind: Certificate, \
                 metadata: {{name: c-{number}, namespace: certificates}}, \
                 spec: {{secretName: c-{number}, dnsNames: [c-{number}.example.com], \
                 issuerRef: {{name: own, kind: ClusterIssuer}}}}}}\n---\n"
            )
        };
        let certificates: String = (self.count..self.count + count).map(certificate).collect();
        // The API server may be away.
        eventually(SOON, || Ok(self.world.cluster().apply(&certificates).map(drop)?))?;
        self.count += count;
        Ok(())
    }

    /// Waits until each certificate is issued and in its Secret. Returns the revisions.
    fn await_issued(&self) -> Result<Vec<u64>, Failure> {
        eventually(SOON, || {
            let certificates = self.world.list("certificates --namespace=certificates")?;
            let is_ready = |certificate: &&Value| condition(certificate, "Ready") == "True";
            let ready = certificates.iter().filter(is_ready).count();
            let secrets = self.world.list("secrets --namespace=certificates")?;
            let has_chain = |secret: &&Value| !text(secret, "/data/tls.crt").is_empty();
            let secrets = secrets.iter().filter(has_chain).count();
            if (ready, secrets) != (self.count, self.count) {
                return Err(format!("{ready} ready, {secrets} Secrets of {}", self.count).into());
            }
            let revision = |one: &Value| one["status"]["revision"].as_u64().unwrap_or_default();
            Ok(certificates.iter().map(revision).collect())
        })
    }
}

#[test]
fn cert_manager_issues_each_certificate_while_servers_restart() -> Outcome {
    let test = "cert_manager_issues_each_certificate_while_servers_restart";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let world = &world;
    let programs = CertManager::locate_or_build()?;
    let image = world.node.import_program("cert-manager", &programs.controller())?;
    let release = injecting_release(world)?;
    world.cluster().apply(&programs.crds()?)?;
    world.run("wait --for=condition=Established crds --all --timeout=60s")?;
    let begin = AuditMark::now(world)?;
    world.cluster().apply(&WORKLOAD.replace("IMAGE", &image))?;
    let workload =
        InjectedWorkload { world, workload: "deployment/cert-manager", namespace: "cert-manager" };
    workload.await_rollout()?;
    let mut certificates = Certificates { world, count: 0 };
    certificates.create(MANY)?;
    let first = certificates.await_issued()?;
    let user = workload.user();
    let directly = RequestTally::of(&requests(world, &user, begin)?);
    report(&format!("{test}: {} MiB directly: {directly}", workload.memory_mib()?))?;

    let command = format!("inject deployment/cert-manager --operator-namespace {NAMESPACE}");
    let refused = kubewarm(world, "cert-manager", &command);
    assert!(refused.is_err_and(|error| error.to_string().contains("--allow-privileged")));
    let mark = AuditMark::now(world)?;
    workload.inject("--allow-privileged")?;
    certificates.create(MANY)?;
    let second = certificates.await_issued()?;
    let injected = requests(world, &user, mark)?;
    assert_no_reads(&injected);
    report(&format!(
        "{test}: {} MiB injected, {} lists and watches served by kubewarm: {}",
        workload.memory_mib()?,
        served(world, &user)?,
        RequestTally::of(&injected)
    ))?;
    let reviews = requests(world, "system:serviceaccount:kubewarm-system:", mark)?;
    report(&format!("{test}: kubewarm itself: {}", RequestTally::of(&reviews)))?;
    let pod = workload.pod()?;

    std::thread::scope(|scope| {
        let rolling = scope.spawn(|| roll_kubewarm(world).map_err(|error| error.to_string()));
        certificates.create(FEW)?;
        rolling.join().map_err(|_panic| "the rollout panicked")??;
        Ok::<_, Failure>(())
    })?;
    let rolled = certificates.await_issued()?;
    certificates.create(FEW)?;
    kill_kubewarm(world, &release)?;
    let killed = certificates.await_issued()?;
    certificates.create(FEW)?;
    restart_apiserver(world)?;
    certificates.create(FEW)?;
    let restarted = certificates.await_issued()?;
    // cert-manager issues some certificates again when its informers disagree, also directly.
    let repeats = |revisions: &[u64]| revisions.iter().filter(|revision| **revision > 1).count();
    report(&format!(
        "{test}: {} certificates; issued again: {} directly, {} with the injection, {} after a rollout \
         of kubewarm, {} after it was killed, {} after a restart of the API server",
        certificates.count,
        repeats(&first),
        repeats(&second),
        repeats(&rolled),
        repeats(&killed),
        repeats(&restarted)
    ))?;
    assert_eq!(workload.pod()?, pod, "the controller did not restart");

    world.run(&format!("delete cacheprofile cert-manager.cert-manager -n {NAMESPACE}"))?;
    world.run("delete namespace certificates cert-manager --wait=false")?;
    world.run("delete clusterrole,clusterrolebinding cert-manager")?;
    Ok(())
}
