//! Tests clients that send all requests to kubewarm, with the kubeconfig of `kubewarm kubeconfig`.
//! kubewarm forwards requests for pods to the API server with the caller's identity.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testbed::{Process, eventually};

use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease};
use crate::world::{Failure, NodeWorld, Outcome, SOON};

/// Objects of the test: the caller's ServiceAccount, which has all rights in its namespace, a
/// profile and three pods. One pod prints changes of the profile, one reads its standard input, and
/// one reads from kubewarm. All use kubewarm's image.
const SCENE: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: whole, namespace: orders}}
---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: told, namespace: orders}
spec: {targets: [{name: settings, resource: configmaps}]}
---
apiVersion: v1
kind: Pod
metadata: {name: prints, namespace: orders}
spec:
  serviceAccountName: whole
  containers: [{name: c, image: 'localhost/kubewarm:dev', args: [status, told, --watch]}]
---
apiVersion: v1
kind: Pod
metadata: {name: reads, namespace: orders}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: 'localhost/kubewarm:dev', stdin: true, stdinOnce: true, args: [plan, -f, '-']}
---
apiVersion: v1
kind: Pod
metadata: {name: inside, namespace: orders}
spec:
  serviceAccountName: whole
  restartPolicy: Never
  # The node has no names.
  hostAliases: [{ip: ADDRESS, hostnames: [kubewarm.kubewarm-system.svc]}]
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - name: kubeconfig
    image: localhost/kubewarm:dev
    args: [kubeconfig, --operator-namespace, kubewarm-system, --output-file, /shared/in-cluster.kubeconfig]
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: c
    image: localhost/kubewarm:dev
    args: [get, configmaps, --namespace=shop, --compare, --cache-kubeconfig=/shared/in-cluster.kubeconfig]
    volumeMounts: [{name: shared, mountPath: /shared}]
";
/// Applied once for each namespace.
const RIGHTS: &str = "---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: whole, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: whole, namespace: orders}]
";
/// The user name of the caller at the API server.
const CALLER: &str = "system:serviceaccount:orders:whole";
/// Subresources of pods that a kubelet or a pod answers.
const SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
/// The number of profiles in the input of a container. Their text is larger than the buffers of a
/// forwarded connection.
const PROFILES: usize = 500;
/// Environment variables that make kubectl use SPDY. Its default is a `WebSocket`.
const SPDY: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
struct ExecOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

/// kubectl with a kubeconfig. It uses a `WebSocket` or SPDY for connections that carry streams.
struct Client<'a> {
    world: &'a NodeWorld,
    kubeconfig: &'a Path,
    is_spdy: bool,
}

impl Client<'_> {
    fn command(&self, arguments: &str) -> Command {
        let mut command = self.world.cluster().kubectl();
        command.arg("--kubeconfig").arg(self.kubeconfig).args(arguments.split_whitespace());
        if self.is_spdy {
            command.envs(SPDY.map(|name| (name, "false")));
        }
        command
    }

    /// Runs kubectl to its end, with `input` as standard input.
    fn say(&self, arguments: &str, input: &str) -> Result<ExecOutput, Failure> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or("nothing to write to")?;
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // A program that ends early does not read all of its input, so a failed write is no
                // error.
                let _all_or_not = stdin.write_all(input.as_bytes());
            });
            child.wait_with_output()
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(ExecOutput {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        })
    }

    fn run(&self, arguments: &str) -> Result<String, Failure> {
        match self.say(arguments, "")? {
            ExecOutput { code: Some(0), out, .. } => Ok(out),
            said => Err(format!("{arguments}: {said:?}").into()),
        }
    }

    /// Starts kubectl and waits until it has printed `first`. kubectl runs until the result is
    /// dropped.
    fn begin(&self, name: &str, arguments: &str, first: &'static str) -> Result<Process, Failure> {
        let command = self.command(arguments);
        let process = self.world.cluster().process(name, &command, move |log| log.contains(first));
        process.start()?;
        Ok(process)
    }

    /// Starts a port-forward and returns its process and the port on this host.
    fn forward(&self, name: &str, what: &str) -> Result<(Process, u16), Failure> {
        const OPEN: &str = "Forwarding from 127.0.0.1:";
        let open = self.begin(name, &format!("port-forward {what}"), OPEN)?;
        let log = open.log();
        let (_, at) = log.split_once(OPEN).ok_or("no port in the log")?;
        let port = at.split(' ').next().unwrap_or_default().parse()?;
        Ok((open, port))
    }
}

/// Tests a release with `--forward` and profiles in the namespaces `shop` and `orders`.
pub(crate) fn pods_are_reached_through_kubewarm(
    world: &NodeWorld,
    release: &NodeRelease<'_>,
) -> Outcome {
    let service = world.get(&format!("service kubewarm --namespace={NAMESPACE}"))?;
    let address = text(&service, "/spec/clusterIP");
    let rights = ["orders", "shop", NAMESPACE].map(|name| RIGHTS.replace("NAMESPACE", name));
    world.cluster().apply(&rights.concat())?;
    world.cluster().apply(&SCENE.replace("ADDRESS", address))?;
    let file = world.cluster().service_account_kubeconfig("orders", "whole")?;
    let name = "--cache-tls-server-name=kubewarm.kubewarm-system.svc";
    let through = kubeconfig(world, &file, "whole-client", &[&format!("https://{address}"), name])?;
    let client = |kubeconfig, is_spdy| Client { world, kubeconfig, is_spdy };
    let direct = client(&file, false);
    let ours = [client(&through, false), client(&through, true)];
    let pods = release.pods()?;
    let pod = &pods.first().ok_or("no pods")?.name;

    commands_run_in_a_container(&ours, &direct, pod)?;
    for (nth, client) in ours.iter().enumerate() {
        let what = format!("pod/{pod} :9090 --namespace={NAMESPACE}");
        let (_open, port) = client.forward(&format!("port-forward-{nth}"), &what)?;
        let (code, page) = world.ask(&format!("127.0.0.1:{port}"), "/metrics")?;
        assert!(code == 200 && page.contains("kubewarm_objects{"), "{code} {page}");
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9090/proxy/livez");
    let [ours, _] = ours;
    let page = ours.run(&format!("get --raw {path}"))?;
    assert_eq!(page, direct.run(&format!("get --raw {path}"))?);
    output_of_a_container_arrives_at_once(&ours)?;
    requests_reach_the_kubelet_as_the_caller(world)?;
    a_kubeconfig_leads_there(world, &direct)?;
    world.run("delete pods --all --namespace=orders --wait=false")?;
    Ok(())
}

/// The kubeconfig that `kubewarm kubeconfig` writes for the user of `source` and for this server.
fn kubeconfig(
    world: &NodeWorld,
    source: &Path,
    name: &str,
    server: &[&str],
) -> Result<PathBuf, Failure> {
    let path = world.cluster().folder().join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["kubeconfig", "--overwrite", "--cache-server"]).args(server);
    command.args(["--operator-namespace", NAMESPACE]);
    command.arg("--output-file").arg(&path).arg("--kubeconfig").arg(source);
    let output = world.node.command(&command).output()?;
    if output.status.success() {
        return Ok(path);
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}

/// Profiles as input for a container.
fn profiles() -> String {
    let profile = |number| {
        format!(
            "{{apiVersion: kubewarm.io/v1alpha1, kind: CacheProfile, \
             metadata: {{name: planned-{number}, namespace: orders}}, \
             spec: {{targets: [{{name: all, resource: configmaps}}]}}}}\n---\n"
        )
    };
    (0..PROFILES).map(profile).collect()
}

/// Input, output and exit code of `kubectl exec` are the same with and without kubewarm.
fn commands_run_in_a_container(ours: &[Client<'_>], direct: &Client<'_>, pod: &str) -> Outcome {
    let profiles = profiles();
    let last = format!("planned-{}", PROFILES - 1);
    for (command, input, code, word) in [
        ("plan -f -", &*profiles, 0, &*last),
        ("completion bash", "", 0, "kubewarm"),
        ("nonsense", "", 2, "nonsense"),
    ] {
        let exec = format!("exec -i {pod} --namespace={NAMESPACE} -- kubewarm {command}");
        let expected = direct.say(&exec, input)?;
        assert_eq!(expected.code, Some(code), "{expected:?}");
        assert!(
            [&expected.out, &expected.err].iter().any(|output| output.contains(word)),
            "{expected:?}"
        );
        for client in ours {
            assert_eq!(client.say(&exec, input)?, expected, "{command}, SPDY: {}", client.is_spdy);
        }
    }
    Ok(())
}

/// `kubectl logs` and `kubectl attach` receive output at once, and end with the container.
fn output_of_a_container_arrives_at_once(client: &Client<'_>) -> Outcome {
    let is_running = |pod: &Value| text(pod, "/status/phase") == "Running";
    for pod in ["prints", "reads"] {
        client.world.await_that(&format!("pod {pod} --namespace=orders"), SOON, is_running)?;
    }
    let logs = client.begin("logs", "logs --follow prints --namespace=orders", "profile=told")?;
    let attached = client.begin("attach", "attach prints --namespace=orders", "")?;
    let mut seconds = 600;
    eventually(SOON, || {
        // The test repeats the write, because `attach` shows only output after its start.
        seconds += 1;
        let spec = format!(r#"{{"spec":{{"freshness":{{"maxStalenessSeconds":{seconds}}}}}}}"#);
        client.run(&format!("patch cprof told --namespace=orders --type=merge --patch={spec}"))?;
        let is_shown = |process: &Process| {
            let log = process.log();
            log.lines().any(|line| {
                line.starts_with("profile=told namespace=orders ")
                    && line.contains(" generation=")
                    && !line.contains(" generation=1 ")
            })
        };
        if is_shown(&logs) && is_shown(&attached) { Ok(()) } else { Err("no output yet".into()) }
    })?;

    let attach = "attach -i reads --namespace=orders";
    let said = client.say(attach, &profiles())?;
    assert!(said.code == Some(0) && said.out.contains("planned-1"), "{said:?}");
    let logs = client.run("logs --follow reads --namespace=orders")?;
    assert_eq!(logs, said.out);
    client.world.await_that("pod reads --namespace=orders", SOON, |pod| {
        text(pod, "/status/phase") == "Succeeded"
    })?;
    Ok(())
}

/// Checks by the audit log that requests reached the API server through kubewarm and as the caller.
/// A forwarded request has more than one source address.
fn requests_reach_the_kubelet_as_the_caller(world: &NodeWorld) -> Outcome {
    let expected: BTreeSet<_> =
        SUBRESOURCES.map(|name| (name.to_owned(), CALLER.to_owned())).into();
    eventually(SOON, || {
        let mut calls = BTreeSet::new();
        for line in std::fs::read_to_string(world.cluster().audit_log())?.lines() {
            // The last line can be incomplete.
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let subresource = text(&entry, "/objectRef/subresource");
            let is_sent_on = entry["sourceIPs"].as_array().is_some_and(|all| all.len() > 1);
            if is_sent_on && SUBRESOURCES.contains(&subresource) {
                calls.insert((subresource.to_owned(), text(&entry, "/user/username").to_owned()));
            }
        }
        if calls == expected { Ok(()) } else { Err(format!("{calls:?}").into()) }
    })
}

/// Reads from the cache in a pod, and from elsewhere through a port-forward of kubectl and of
/// `kubewarm get`.
fn a_kubeconfig_leads_there(world: &NodeWorld, direct: &Client<'_>) -> Outcome {
    let ended = world.await_that("pod inside --namespace=orders", SOON, |pod| {
        ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
    })?;
    let log = world.run("logs inside --namespace=orders --all-containers")?;
    assert_eq!(text(&ended, "/status/phase"), "Succeeded", "{log}");
    assert!(log.contains("equal: "), "{log}");

    let what = format!("service/kubewarm :443 --namespace={NAMESPACE}");
    let (_open, port) = direct.forward("port-forward-service", &what)?;
    let server = format!("https://localhost:{port}");
    let cache = kubeconfig(world, direct.kubeconfig, "cache", &[&server])?;
    let cache = Client { world, kubeconfig: &cache, is_spdy: false };
    let read = "get configmaps --namespace=shop --output=name";
    assert_eq!(cache.run(read)?, direct.run(read)?);
    let output = cache.say(&format!("{read} -v=8"), "")?;
    assert!(output.err.contains("Kubewarm-Informer"), "not from the cache: {output:?}");

    // Without an address, `kubewarm get` opens a port-forward of its own.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(read.split(' ')).arg("--kubeconfig").arg(direct.kubeconfig);
    command.args(["--operator-namespace", NAMESPACE]);
    let output = world.node.command(&command).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), direct.run(read)?, "{stderr}");

    // No profile declares roles, so kubewarm forwards this read.
    cache.run("get roles --namespace=shop --output=name")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["forwarded", "--output=json", "--kubeconfig"]).arg(direct.kubeconfig);
    command.args(["--operator-namespace", NAMESPACE]);
    let output = world.node.command(&command).output()?;
    let shown: Value = serde_json::from_slice(&output.stdout)?;
    let entries = shown["forwarded"].as_array().ok_or("no list")?;
    let of_roles = entries.iter().find(|entry| entry["resource"] == "roles");
    assert_eq!(of_roles.ok_or_else(|| format!("{shown:#}"))?["user"], CALLER, "{shown:#}");
    assert_eq!((output.status.code(), &shown["unread"]), (Some(0), &json!({})));

    // A profile of what this user read. It may read everything in its namespaces.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["profile", "--for", CALLER, "--from", "forwarded", "--kubeconfig"]);
    // Only an administrator may impersonate the user.
    command.arg(world.cluster().kubeconfig()).args(["--operator-namespace", NAMESPACE]);
    let output = world.node.command(&command).output()?;
    let profile = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(profile.contains("resource: roles"), "{profile}{error}");
    assert!(!profile.contains("resource: secrets"), "{profile}");
    Ok(())
}
