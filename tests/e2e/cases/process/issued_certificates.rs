//! The certificates that kubewarm issues to its replicas: their creation, their renewal, the change
//! of the CA, and a Secret that nobody can use.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::free_address;
use crate::operator::{NAMESPACE, Operator};
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

/// The shortest lifetime that the flag accepts is 10 s, so a CA is valid for 10 minutes, and its
/// successor is published for 30 s. Longer lifetimes leave the processes of a slow machine time.
pub(crate) const LIFETIME: Duration = Duration::from_secs(20);

/// A name of the API server, which programs in pods connect to.
const NAME: &str = "kubernetes.default.svc";

/// A replica that serves with an issued certificate.
pub(crate) struct CertifiedReplica {
    pub(crate) operator: Operator,
    address: String,
}

impl CertifiedReplica {
    pub(crate) fn start(world: &World, pod: &str, more: &[&str]) -> Result<Self, Failure> {
        let address = free_address()?;
        let lifetime = format!("{}s", LIFETIME.as_secs());
        let flags = [
            "--api-addr",
            &address,
            "--certificate-secret=kubewarm-ca",
            "--certificate-lifetime",
            &lifetime,
        ];
        let operator = Operator::launch(world, pod, &[&flags[..], more].concat())?;
        Ok(Self { operator, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn await_ready(&self) -> Outcome {
        eventually(SOON, || {
            let (code, body) = self.operator.ask("/readyz?verbose")?;
            if code == 200 { Ok(()) } else { Err(body.into()) }
        })
    }

    /// Whether an unmodified curl with this CA file accepts the replica as `name`.
    pub(crate) fn is_accepted(&self, authority: &Path, name: &str) -> Result<bool, Failure> {
        let (address, port) = self.address.rsplit_once(':').ok_or("no port")?;
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "10", "--noproxy", "*"])
            .args(["--resolve", &format!("{name}:{port}:{address}")])
            .arg("--cacert")
            .arg(authority)
            .arg(format!("https://{name}:{port}/version"))
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || error.contains("certificate") || error.contains("SSL"),
            "{error}"
        );
        Ok(output.status.success())
    }
}

fn secret(world: &World) -> Result<Value, Failure> {
    let get = ["get", "secret", "kubewarm-ca", "-n", NAMESPACE, "-o", "json"];
    Ok(serde_json::from_str(&world.cluster.run(get)?)?)
}

/// Fails unless kubewarm has created the next CA.
pub(crate) fn has_next_ca(world: &World) -> Outcome {
    let has_next = secret(world)?["data"]["next-ca.crt"].is_string();
    if has_next { Ok(()) } else { Err("no next CA".into()) }
}

/// Writes the CA that clients can read to a file.
pub(crate) fn write_authority(world: &World, name: &str) -> Result<std::path::PathBuf, Failure> {
    let path = world.cluster.folder().join(name);
    let get = ["get", "configmap", "kubewarm-ca", "-n", NAMESPACE, "-o"];
    let get = get.into_iter().chain(["jsonpath={.data.ca\\.crt}"]);
    fs::write(&path, world.cluster.run(get)?)?;
    Ok(path)
}

/// Creates a pod that mounts the CAs, whose container has run since `started_at`.
fn run_reader(world: &World, namespace: &str, name: &str, started_at: &str) -> Outcome {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [{"name": "a", "image": "a"}],
            "volumes": [{"name": "ca", "configMap": {"name": "kubewarm-api-ca"}}],
        },
    });
    world.cluster.apply(&pod.to_string())?;
    let status = json!({"status": {"containerStatuses": [{
        "name": "a", "image": "a", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": started_at}},
    }]}});
    let patch = ["patch", "pod", name, "-n", namespace, "--subresource=status", "-p"];
    world.cluster.run(patch.into_iter().chain([&*status.to_string()]))?;
    Ok(())
}

pub(crate) fn prepare(world: &World) -> Outcome {
    Operator::grant_rights(world)?;
    for path in ["deploy/read-api.yaml", "deploy/certificate.yaml"] {
        world.cluster.run(["apply", "-f", &file(path).to_string_lossy()])?;
    }
    Ok(())
}

#[test]
fn two_replicas_show_one_certificate_and_renew_it_without_a_failed_client() -> Outcome {
    let world = World::alone()?;
    prepare(&world)?;
    let replicas = ["first", "second"].map(|pod| CertifiedReplica::start(&world, pod, &[]));
    let [first, second] = replicas;
    let replicas = [first?, second?];
    for replica in &replicas {
        replica.await_ready()?;
    }
    let authority = write_authority(&world, "issued-ca.crt")?;
    let serial = || -> Result<String, Failure> {
        Ok(secret(&world)?["data"]["tls.crt"].as_str().unwrap_or_default().to_owned())
    };
    let (first_leaf, began) = (serial()?, Instant::now());
    let mut leaves = vec![first_leaf];
    while began.elapsed() < LIFETIME * 3 {
        for replica in &replicas {
            for name in [NAME, "kubewarm", "kubewarm.kubewarm-system.svc", "localhost"] {
                assert!(
                    replica.is_accepted(&authority, name)?,
                    "{name} after {:?}",
                    began.elapsed()
                );
            }
            assert!(!replica.is_accepted(&authority, "example.com")?);
        }
        leaves.push(serial()?);
        sleep(Duration::from_millis(200));
    }
    leaves.dedup();
    assert!(leaves.len() > 2, "{} certificates", leaves.len());
    Ok(())
}

#[test]
fn a_rotation_signs_with_another_ca_at_once_and_a_new_name_waits_for_its_ca() -> Outcome {
    let world = World::alone()?;
    prepare(&world)?;
    let replica = CertifiedReplica::start(&world, "first", &[])?;
    replica.await_ready()?;
    let before = write_authority(&world, "before-ca.crt")?;
    let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["rotate-ca", "--operator-namespace", NAMESPACE, "--kubeconfig"])
        .arg(world.cluster.kubeconfig())
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(printed.contains("another CA signs kubewarm's certificate"), "{printed}");
    let became = |expected: bool, authority: &Path, name: &str| {
        eventually(SOON, || {
            let is_accepted = replica.is_accepted(authority, name)?;
            if is_accepted == expected { Ok(()) } else { Err(format!("{is_accepted}").into()) }
        })
    };
    became(false, &before, NAME)?;
    let after = eventually(SOON, || {
        let after = write_authority(&world, "after-ca.crt")?;
        let (old, new) = (fs::read_to_string(&before)?, fs::read_to_string(&after)?);
        if new.ends_with(&old) && new != old { Ok(after) } else { Err(new.into()) }
    })?;
    assert!(replica.is_accepted(&after, NAME)?);
    let annotations = &secret(&world)?["metadata"]["annotations"];
    assert!(annotations["kubewarm.io/rotate-ca"].is_null(), "the request is done: {annotations}");

    // Another name: its CA is published first, and signs after three lifetimes.
    drop(replica);
    let replica =
        CertifiedReplica::start(&world, "second", &["--certificate-names=warm.example.com"])?;
    replica.await_ready()?;
    let restarted = Instant::now();
    eventually(SOON, || has_next_ca(&world))?;
    assert!(
        !replica.is_accepted(&after, "warm.example.com")? && replica.is_accepted(&after, NAME)?
    );
    let next = eventually(SOON, || {
        let next = write_authority(&world, "next-ca.crt")?;
        if fs::read(&next)? == fs::read(&after)? { Err("not published".into()) } else { Ok(next) }
    })?;
    eventually(LIFETIME * 3 + SOON, || {
        assert!(replica.is_accepted(&next, NAME)?, "a client that read the bundle since then");
        let is_new = replica.is_accepted(&next, "warm.example.com")?;
        if is_new { Ok(()) } else { Err("the new CA does not sign yet".into()) }
    })?;
    assert!(restarted.elapsed() > LIFETIME * 2, "{:?}", restarted.elapsed());
    Ok(())
}

#[test]
fn a_leader_that_does_not_know_the_secret_keeps_no_replica_waiting() -> Outcome {
    let world = World::alone()?;
    prepare(&world)?;
    // In an upgrade, the old replica leads until the new one is ready.
    let old = Operator::launch(&world, "old", &[])?;
    eventually(SOON, || {
        let is_leader = old.process.log().contains("leading");
        if is_leader { Ok(()) } else { Err("it does not lead".into()) }
    })?;
    let replica = CertifiedReplica::start(&world, "new", &[])?;
    replica.await_ready()?;
    assert!(replica.is_accepted(&write_authority(&world, "upgrade-ca.crt")?, NAME)?);
    Ok(())
}

#[test]
fn a_replica_without_a_usable_secret_is_not_ready_and_says_why() -> Outcome {
    let world = World::alone()?;
    prepare(&world)?;
    let replica = CertifiedReplica::start(&world, "first", &[])?;
    replica.await_ready()?;
    let leaf =
        || -> Result<Value, Failure> { Ok(secret(&world)?["data"]["signing-ca.crt"].clone()) };
    let before = leaf()?;
    // A damaged Secret is not replaced, because clients have its CA. The running replica goes on.
    let remove = r#"[{"op": "remove", "path": "/data/tls.key"}]"#;
    let patch = ["patch", "secret", "kubewarm-ca", "-n", NAMESPACE, "--type=json", "-p", remove];
    world.cluster.run(patch)?;
    let other = CertifiedReplica::start(&world, "second", &[])?;
    eventually(SOON, || {
        let log = other.operator.process.log();
        let is_told = log.contains("its key tls.key is missing");
        if is_told { Ok(()) } else { Err(log.into()) }
    })?;
    eventually(SOON, || {
        let (code, body) = other.operator.ask("/readyz")?;
        assert_eq!(code, 503, "{body}");
        if body.contains("no certificate yet") { Ok(()) } else { Err(body.into()) }
    })?;
    assert_eq!(replica.operator.ask("/readyz")?.0, 200);
    assert_eq!(leaf()?, before, "the CA is kept");

    // An empty Secret gets a new CA.
    let remove = r#"[{"op": "remove", "path": "/data"}]"#;
    let patch = ["patch", "secret", "kubewarm-ca", "-n", NAMESPACE, "--type=json", "-p", remove];
    world.cluster.run(patch)?;
    other.await_ready()?;
    assert_ne!(leaf()?, before);
    Ok(())
}

#[test]
fn labelled_namespaces_get_the_cas_of_kubewarm_and_of_the_api_server() -> Outcome {
    let world = World::alone()?;
    let cluster = &world.cluster;
    prepare(&world)?;
    cluster.run(["apply", "-f", &file("deploy/inject.yaml").to_string_lossy()])?;
    let (shop, other) = (world.namespace("shop")?, world.namespace("other")?);
    cluster.run(["label", "namespace", &shop, "kubewarm.io/inject="])?;
    let replica = CertifiedReplica::start(&world, "first", &["--inject"])?;
    replica.await_ready()?;
    let path = cluster.folder().join("api-ca.crt");
    let get = |namespace: &str| -> Result<Value, Failure> {
        let get = ["get", "configmap", "kubewarm-api-ca", "-n", namespace, "-o", "json"];
        Ok(serde_json::from_str(&cluster.run(get)?)?)
    };
    let verify = || {
        eventually(SOON, || {
            let bundle = get(&shop)?["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
            fs::write(&path, bundle)?;
            let server = cluster.server_url();
            let accepted = Command::new("curl")
                .args(["--silent", "--max-time", "10", "--noproxy", "*", "--cacert"])
                .arg(&path)
                .arg(format!("{server}/version"))
                .output()?;
            let both = (replica.is_accepted(&path, NAME)?, accepted.status.success());
            if both == (true, true) { Ok(()) } else { Err(format!("{both:?}").into()) }
        })
    };
    verify()?;

    // An edit, a deletion and another CA: the leader keeps the bundle right.
    let edit = r#"{"data": {"ca.crt": "nothing", "more": "text"}}"#;
    cluster.run(["patch", "configmap", "kubewarm-api-ca", "-n", &shop, "-p", edit])?;
    verify()?;
    assert!(get(&shop)?["data"]["more"].is_null());
    cluster.run(["delete", "configmap", "kubewarm-api-ca", "-n", &shop])?;
    verify()?;
    // Two pods mount the CAs, as a kubelet would report them. One started before the rotation.
    run_reader(&world, &shop, "before", "2020-01-01T00:00:00Z")?;
    run_reader(&world, &shop, "after", "2030-01-01T00:00:00Z")?;
    let command = |words: &[&str]| -> Result<String, Failure> {
        let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
            .args(words)
            .args(["--operator-namespace", NAMESPACE, "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .output()?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let before = fs::read(&path)?;
    let printed = command(&["rotate-ca"])?;
    let advice =
        format!("Restart these pods, which mount ConfigMap kubewarm-api-ca: {shop}/before\n");
    assert!(printed.contains(&advice), "{printed}");
    let checked = command(&["check"])?;
    assert!(
        checked.contains(&format!("unless they read the CAs again: {shop}/before\n")),
        "{checked}"
    );
    eventually(SOON, || {
        verify()?;
        if fs::read(&path)? == before { Err("the same bundle".into()) } else { Ok(()) }
    })?;

    // Other namespaces get nothing, and kubewarm may write nothing else.
    assert!(get(&other).is_err());
    let account = cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
    for (namespace, name) in [(&shop, "other"), (&other, "kubewarm-api-ca")] {
        eventually(SOON, || {
            let output = Command::new(cluster.kubectl_program())
                .args(["create", "configmap", name, "-n", namespace, "--dry-run=server"])
                .arg("--kubeconfig")
                .arg(&account)
                .output()?;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            if error.contains("may write the ConfigMap") { Ok(()) } else { Err(error.into()) }
        })?;
    }
    Ok(())
}
