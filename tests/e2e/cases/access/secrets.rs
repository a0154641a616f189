//! kubewarm's output and memory never reveal the contents of the Secrets that it stores.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::accept::METADATA_LIST;
use crate::api::{Served, account, let_read};
use crate::figures::informers;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// The password, and its base64 form on the API server.
const PAYLOADS: [&str; 2] = ["correct-horse-battery", "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"];
const SPEC: &str = "{targets: [
  {name: names, resource: secrets, projection: {type: Metadata}},
  {name: whole, resource: secrets, secretData: Allow}]}";

fn secret(name: &str, tier: &str) -> String {
    let [password, _] = PAYLOADS;
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{tier: {tier}}}}}
stringData: {{password: {password}}}
"
    )
}

#[test]
fn no_output_of_kubewarm_contains_the_payload_of_a_secret() -> Outcome {
    let world = World::lease()?;
    let operator = Operator::start_with(&world, &["--log", "trace"])?;
    Operator::grant_reading(&world)?;
    world.cluster.apply(&secret("listed", "a"))?;
    let profile = Profile::apply(&world, NAMESPACE, "keys", SPEC)?;
    // The status shows new object counts only once a minute, so this function reads the counts from
    // `/debug/informers`.
    let await_objects = |count: u64| {
        eventually(SOON, || {
            let mut informers = informers(&operator)?;
            informers.retain(|informer| informer["resource"] == "secrets");
            let all = informers.iter().all(|informer| informer["objects"].as_u64() >= Some(count));
            if informers.len() == 2 && all { Ok(()) } else { Err(format!("{informers:#?}").into()) }
        })
    };
    profile.await_condition("Ready", "True", None, SOON)?;
    // Objects also arrive by watch: added, changed and deleted.
    world.cluster.apply(&secret("watched", "a"))?;
    await_objects(2)?;
    world.cluster.apply(&secret("watched", "b"))?;
    world.cluster.run(["delete", "secret", "listed", "-n", NAMESPACE])?;

    let texts = [
        operator.process.log(),
        operator.ask("/debug/informers")?.1,
        operator.ask("/readyz?verbose")?.1,
        operator.ask("/metrics")?.1,
        world.cluster.run(["get", "events.events.k8s.io", "-A", "-o", "yaml"])?,
        world.cluster.run(["get", "cprof", "-A", "-o", "yaml"])?,
    ];
    for (at, text) in texts.iter().enumerate() {
        assert!(!text.is_empty(), "{at}");
        for payload in PAYLOADS {
            assert!(!text.contains(payload), "{at} contains {payload}");
        }
    }
    Ok(())
}

/// In managedFields, the API server records each key of a Secret's data, for instance as
/// `f:password`. So managedFields reveal the names of the keys.
#[test]
fn the_key_names_of_secrets_are_served_only_with_secret_data_allow() -> Outcome {
    let world = World::lease()?;
    let served = Served::start(&world, &[])?;
    Operator::grant_reading(&world)?;
    world.cluster.apply(&secret("listed", "a"))?;
    let team = world.namespace("team")?;
    let token = account(&world, &team, "reader")?;
    let_read(&world, (&team, "reader"), None)?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    for (name, data, is_named) in [("denied", "Deny", false), ("allowed", "Allow", true)] {
        let spec = format!(
            "{{targets: [{{name: names, resource: secrets, secretData: {data},
               projection: {{type: Metadata, managedFields: Keep}}}}]}}"
        );
        let profile = Profile::apply(&world, NAMESPACE, name, &spec)?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let through = format!("/profiles/{NAMESPACE}/{name}{path}");
        let reply = served.server()?.get_as(&token, &through, METADATA_LIST)?;
        assert!(reply.code == 200 && reply.text.contains(r#""listed""#), "{reply:?}");
        assert_eq!(reply.text.contains("f:password"), is_named, "{reply:?}");
    }
    Ok(())
}

/// A process that ends with the test.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// An unprivileged user. kubewarm never runs as root, whose access the kernel does not restrict.
const UNPRIVILEGED_UID: u32 = 65_534;

#[test]
fn the_operators_memory_cannot_be_dumped_and_its_process_metrics_work() -> Outcome {
    let folder = tempfile::tempdir()?;
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    };
    open(folder.path())?;
    // The test runs a copy of the program, because other users may have no access to the build
    // folder.
    let binary = folder.path().join("kubewarm");
    fs::copy(env!("CARGO_BIN_EXE_kubewarm"), &binary)?;
    open(&binary)?;
    let kubeconfig = folder.path().join("config");
    fs::write(
        &kubeconfig,
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}],
          clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}",
    )?;
    open(&kubeconfig)?;
    let log = folder.path().join("log");
    let is_root = folder.path().metadata()?.uid() == 0;
    let start = |args: &[&str]| -> Result<ChildGuard, Failure> {
        let mut command = Command::new(&binary);
        command.args(args).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        if is_root {
            command.uid(UNPRIVILEGED_UID);
        }
        Ok(ChildGuard(command.spawn()?))
    };
    let kubeconfig = kubeconfig.to_string_lossy().into_owned();
    let address = ["--admin-addr", "127.0.0.1:0", "--api-addr=", "--log-format", "json"];
    let run = start(&[&["run", "--kubeconfig", &kubeconfig][..], &address].concat())?;
    let proc = format!("/proc/{}", run.0.id());
    // If the kernel may dump a process, the process's files in `/proc` belong to its user,
    // otherwise to root.
    eventually(SOON, || {
        let owner = fs::metadata(format!("{proc}/environ"))?.uid();
        let text = fs::read_to_string(&log)?;
        if owner == 0 && crate::operator::admin_address(&text).is_some() {
            Ok(())
        } else {
            Err(format!("its memory belongs to {owner}: {text}").into())
        }
    })?;
    let text = fs::read_to_string(&log)?;
    let address = crate::operator::admin_address(&text).ok_or("no address")?;
    let (_, metrics) = crate::operator::ask(address, "/metrics")?;
    for name in ["process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds"]
    {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        assert!(value.is_some_and(|value: f64| value > 0.0), "{name}: {value:?}");
    }
    Ok(())
}
