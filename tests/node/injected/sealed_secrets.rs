//! Sealed Secrets, whose controller knows only its in-cluster configuration. It decrypts
//! `SealedSecrets` of its namespace to Secrets.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use testbed::{SealedSecrets, eventually};

use super::audit::{AuditMark, RequestTally, assert_created_once, assert_no_reads, requests};
use super::{
    InjectedWorkload, injecting_release, kill_kubewarm, kubewarm, restart_apiserver, roll_kubewarm,
    served,
};
use crate::account::service_account;
use crate::object::{condition, text};
use crate::world::{Failure, NodeWorld, Outcome, SOON, report};

/// The permissions of the controller's chart, restricted to one namespace.
const RULES: &str = "
- {apiGroups: [bitnami.com], resources: [sealedsecrets], verbs: [get, list, watch]}
- {apiGroups: [bitnami.com], resources: [sealedsecrets/status], verbs: [update]}
- {apiGroups: [''], resources: [secrets], verbs: [get, list, create, update, delete, watch]}
- {apiGroups: [''], resources: [events], verbs: [create, patch]}";
/// The controller with the options of its chart. By default, it gives up an object after five
/// failures within a second, also without kubewarm.
const CONTROLLER: &str = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sealed-secrets, namespace: vault}
spec:
  selector: {matchLabels: {app: sealed-secrets}}
  # Two controllers could both create the first key.
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: sealed-secrets}}
    spec:
      serviceAccountName: sealed-secrets
      containers:
      - name: controller
        image: IMAGE
        args: [--update-status, --all-namespaces=false, --key-prefix, sealed-secrets-key,
          --max-unseal-retries, '20', --kubeclient-qps, '50', --kubeclient-burst, '100']
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}}
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
";
/// The number of `SealedSecrets` in each step.
const BATCH: usize = 10;

/// The controller and what the test has sealed.
struct Vault<'a> {
    world: &'a NodeWorld,
    programs: SealedSecrets,
    sealed: usize,
}

impl Vault<'_> {
    /// Creates [`BATCH`] `SealedSecrets`.
    fn seal(&mut self, certificate: &[u8]) -> Outcome {
        let file = self.world.cluster().folder().join("sealed-secrets.pem");
        fs::write(&file, certificate)?;
        let numbers = self.sealed..self.sealed + BATCH;
        let secrets = numbers.map(|number| {
            format!(
                "{{apiVersion: v1, kind: Secret, metadata: {{name: {}, namespace: vault}}, \
                 stringData: {{value: value-{number}}}}}\n---\n",
                name(number)
            )
        });
        let mut command = Command::new(self.programs.kubeseal());
        command.args(["--format", "yaml", "--cert"]).arg(file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().ok_or("nothing to write to")?;
        stdin.write_all(secrets.collect::<String>().as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        assert!(output.status.success(), "{output:?}");
        let sealed = String::from_utf8(output.stdout)?;
        // The API server may be away.
        eventually(SOON, || Ok(self.world.cluster().apply(&sealed).map(drop)?))?;
        self.sealed += BATCH;
        Ok(())
    }

    /// Waits until all `SealedSecrets` have their Secrets, with the right values.
    fn await_secrets(&self) -> Outcome {
        let expected: BTreeMap<_, _> =
            (0..self.sealed).map(|number| (name(number), format!("value-{number}"))).collect();
        eventually(SOON, || {
            let secrets = self.world.list("secrets --namespace=vault")?;
            let secrets = secrets.iter().filter(|secret| !is_key(text(secret, "/metadata/name")));
            let value = |secret| -> Result<String, Failure> {
                Ok(String::from_utf8(STANDARD.decode(text(secret, "/data/value"))?)?)
            };
            let secrets: Result<BTreeMap<_, _>, Failure> = secrets
                .map(|secret| Ok((text(secret, "/metadata/name").to_owned(), value(secret)?)))
                .collect();
            let secrets = secrets?;
            if secrets == expected { Ok(()) } else { Err(format!("{secrets:?}").into()) }
        })
    }
}

fn name(number: usize) -> String {
    format!("sealed-{number}")
}

fn is_key(name: &str) -> bool {
    name.starts_with("sealed-secrets-key")
}

#[test]
fn sealed_secrets_loses_nothing_while_servers_restart() -> Outcome {
    let test = "sealed_secrets_loses_nothing_while_servers_restart";
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let world = &world;
    let programs = SealedSecrets::locate_or_build()?;
    let image = world.node.import_program("sealed-secrets", &programs.controller())?;
    let release = injecting_release(world)?;
    world.cluster().apply(&programs.crd()?)?;
    let begin = AuditMark::now(world)?;
    world.run("create namespace vault")?;
    let account = service_account("vault", "sealed-secrets", RULES);
    world.cluster().apply(&(account + &CONTROLLER.replace("IMAGE", &image)))?;
    let workload =
        InjectedWorkload { world, workload: "deployment/sealed-secrets", namespace: "vault" };
    workload.await_rollout()?;
    let before = world.get("deployment sealed-secrets --namespace=vault")?;
    let certificate = || {
        let address = workload.pod()?.address;
        let (code, page) = world.ask(&format!("{address}:8080"), "/v1/cert.pem")?;
        if code == 200 { Ok(page) } else { Err(format!("{code} {page}").into()) }
    };
    let certificate = eventually(SOON, certificate)?;
    let mut vault = Vault { world, programs, sealed: 0 };

    vault.seal(certificate.as_bytes())?;
    vault.await_secrets()?;
    let user = workload.user();
    let directly = RequestTally::of(&requests(world, &user, begin)?);
    report(&format!("{test}: {} MiB directly: {directly}", workload.memory_mib()?))?;

    let mark = AuditMark::now(world)?;
    workload.inject("")?;
    vault.seal(certificate.as_bytes())?;
    vault.await_secrets()?;
    let count = served(world, &user)?;
    let injected = requests(world, &user, mark)?;
    assert_no_reads(&injected);
    let injected = RequestTally::of(&injected);
    report(&format!(
        "{test}: {} MiB injected, {count} lists and watches served by kubewarm: {injected}",
        workload.memory_mib()?
    ))?;
    let reviews = requests(world, "system:serviceaccount:kubewarm-system:", mark)?;
    report(&format!("{test}: kubewarm itself: {}", RequestTally::of(&reviews)))?;
    assert!(count >= 3, "the list of keys, and lists or watches of two informers: {count}");
    let pod = workload.pod()?;

    std::thread::scope(|scope| {
        let rolling = scope.spawn(|| roll_kubewarm(world).map_err(|error| error.to_string()));
        vault.seal(certificate.as_bytes())?;
        rolling.join().map_err(|_panic| "the rollout panicked")??;
        vault.await_secrets()
    })?;
    vault.seal(certificate.as_bytes())?;
    kill_kubewarm(world, &release)?;
    vault.await_secrets()?;
    vault.seal(certificate.as_bytes())?;
    restart_apiserver(world)?;
    vault.seal(certificate.as_bytes())?;
    vault.await_secrets()?;

    let all = requests(world, &user, begin)?;
    assert_created_once(&all, "secrets", (0..vault.sealed).map(name));
    for number in 0..vault.sealed {
        let sealed = format!("sealedsecret {} --namespace=vault", name(number));
        world.await_that(&sealed, SOON, |sealed| condition(sealed, "Synced") == "True")?;
    }
    let secrets = world.list("secrets --namespace=vault")?;
    let keys = secrets.iter().filter(|secret| is_key(text(secret, "/metadata/name"))).count();
    assert_eq!(keys, 1, "the injected controller has found its first key");
    assert_eq!(workload.pod()?, pod, "the controller did not restart");
    let all = RequestTally::of(&all);
    report(&format!("{test}: {} Secrets, in total: {all}", vault.sealed))?;

    kubewarm(world, "vault", "inject deployment/sealed-secrets --undo --apply --yes")?;
    let undone = world.get("deployment sealed-secrets --namespace=vault")?;
    assert_eq!(undone["spec"], before["spec"]);
    world.run("delete cacheprofile sealed-secrets --namespace=vault")?;
    world.run("delete namespace vault --wait=false")?;
    world.run("delete crd sealedsecrets.bitnami.com --wait=false")?;
    Ok(())
}
