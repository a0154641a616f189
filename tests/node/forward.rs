//! A whole client pointed at kubewarm, by what `kubewarm kubeconfig` writes: what kubectl has a kubelet do goes there
//! through kubewarm, as the caller.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use testbed::{Process, eventually};

use crate::object::text;
use crate::release::{NAMESPACE, Release};
use crate::world::{Failure, Outcome, SOON, World};

/// Whoever calls, with all rights where it looks; a profile; a pod that tells its changes, one that reads what it is
/// told, and one that finds its way to kubewarm by itself. For what it is in there the image has all.
const SCENE: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: whole, namespace: orders}}
---
apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: told, namespace: orders}
spec: {targets: [{name: settings, resource: {resource: configmaps}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tells, namespace: orders}
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
    args: [kubeconfig, --output, /shared/in-cluster.kubeconfig]
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: c
    image: localhost/kubewarm:dev
    args: [get, configmaps, --namespace=shop, --compare, --cache-kubeconfig=/shared/in-cluster.kubeconfig]
    volumeMounts: [{name: shared, mountPath: /shared}]
";
/// Once for each namespace.
const RIGHTS: &str = "---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: whole, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: whole, namespace: orders}]
";
/// What the API server knows them as.
const CALLER: &str = "system:serviceaccount:orders:whole";
/// What only a kubelet, or a pod, answers.
const SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
/// More of them than are held on their way.
const PROFILES: usize = 500;
/// Of kubectl: its connections are those of a `WebSocket` where nothing is said, and with these of SPDY.
const SPDY: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

/// What a command said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// kubectl by a kubeconfig, in one of its ways to have connections carry more than requests.
struct Client<'a> {
    world: &'a World,
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

    /// Runs it to its end, with this to read.
    fn say(&self, arguments: &str, input: &str) -> Result<Said, Failure> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or("nothing to write to")?;
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // Whoever ends before has heard enough.
                let _all_or_not = stdin.write_all(input.as_bytes());
            });
            child.wait_with_output()
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        })
    }

    fn run(&self, arguments: &str) -> Result<String, Failure> {
        match self.say(arguments, "")? {
            Said { code: Some(0), out, .. } => Ok(out),
            said => Err(format!("{arguments}: {said:?}").into()),
        }
    }

    /// Runs it until what is returned goes, which is once it has said `first`.
    fn begin(&self, name: &str, arguments: &str, first: &'static str) -> Result<Process, Failure> {
        let command = self.command(arguments);
        let process = self.world.cluster().process(name, &command, move |log| log.contains(first));
        process.start()?;
        Ok(process)
    }

    /// Opens a way to a port, and answers at which port of this host.
    fn forward(&self, name: &str, what: &str) -> Result<(Process, u16), Failure> {
        const OPEN: &str = "Forwarding from 127.0.0.1:";
        let open = self.begin(name, &format!("port-forward {what}"), OPEN)?;
        let log = open.log();
        let (_, at) = log.split_once(OPEN).ok_or("it said so")?;
        let port = at.split(' ').next().unwrap_or_default().parse()?;
        Ok((open, port))
    }
}

/// A release with `--forward` that serves what is in the namespaces `shop` and `orders`.
pub(crate) fn pods_are_reached_through_kubewarm(world: &World, release: &Release<'_>) -> Outcome {
    let service = world.get(&format!("service kubewarm --namespace={NAMESPACE}"))?;
    let address = text(&service, "/spec/clusterIP");
    let rights = ["orders", "shop", NAMESPACE].map(|name| RIGHTS.replace("NAMESPACE", name));
    world.cluster().apply(&rights.concat())?;
    world.cluster().apply(&SCENE.replace("ADDRESS", address))?;
    let own = world.cluster().service_account_kubeconfig("orders", "whole")?;
    let name = "--tls-server-name=kubewarm.kubewarm-system.svc";
    let through = kubeconfig(world, &own, "whole-client", &[&format!("https://{address}"), name])?;
    let client = |kubeconfig, is_spdy| Client { world, kubeconfig, is_spdy };
    let direct = client(&own, false);
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
    what_a_container_says_is_heard(&ours)?;
    the_kubelet_is_asked_as_the_caller(world)?;
    a_kubeconfig_leads_there(world, &direct)?;
    world.run("delete pods --all --namespace=orders --wait=false")?;
    Ok(())
}

/// What `kubewarm kubeconfig` writes for whoever has `own`, for a client of this server.
fn kubeconfig(world: &World, own: &Path, name: &str, server: &[&str]) -> Result<PathBuf, Failure> {
    let path = world.cluster().folder().join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubewarm"));
    command.args(["kubeconfig", "--overwrite", "--server"]).args(server);
    command.arg("--output").arg(&path).arg("--kubeconfig").arg(own);
    let output = world.node.command(&command).output()?;
    if output.status.success() {
        return Ok(path);
    }
    Err(String::from_utf8_lossy(&output.stderr).into())
}

/// Profiles for a container to read.
fn profiles() -> String {
    let of = |number| {
        format!(
            "{{apiVersion: kubewarm.io/v1alpha1, kind: CacheProfile, \
             metadata: {{name: planned-{number}, namespace: orders}}, \
             spec: {{targets: [{{name: all, resource: {{resource: configmaps}}}}]}}}}\n---\n"
        )
    };
    (0..PROFILES).map(of).collect()
}

/// What goes in, what comes out, and how it ends is the same by every way.
fn commands_run_in_a_container(ours: &[Client<'_>], direct: &Client<'_>, pod: &str) -> Outcome {
    let profiles = profiles();
    let last = format!("planned-{}", PROFILES - 1);
    for (command, input, code, says) in [
        ("plan -f -", &*profiles, 0, &*last),
        ("completion bash", "", 0, "kubewarm"),
        ("nonsense", "", 2, "nonsense"),
    ] {
        let exec = format!("exec -i {pod} --namespace={NAMESPACE} -- kubewarm {command}");
        let expected = direct.say(&exec, input)?;
        assert_eq!(expected.code, Some(code), "{expected:?}");
        assert!([&expected.out, &expected.err].iter().any(|it| it.contains(says)), "{expected:?}");
        for client in ours {
            assert_eq!(client.say(&exec, input)?, expected, "{command}, SPDY: {}", client.is_spdy);
        }
    }
    Ok(())
}

/// While it says it, and until it ends.
fn what_a_container_says_is_heard(client: &Client<'_>) -> Outcome {
    let is_running = |pod: &Value| text(pod, "/status/phase") == "Running";
    for pod in ["tells", "reads"] {
        client.world.await_that(&format!("pod {pod} --namespace=orders"), SOON, is_running)?;
    }
    let logs = client.begin("logs", "logs --follow tells --namespace=orders", "orders/told")?;
    let attached = client.begin("attach", "attach tells --namespace=orders", "")?;
    let mut seconds = 600;
    eventually(SOON, || {
        // Again and again: who is attached hears what comes after that.
        seconds += 1;
        let spec = format!(r#"{{"spec":{{"freshness":{{"maxStalenessSeconds":{seconds}}}}}}}"#);
        client.run(&format!("patch cprof told --namespace=orders --type=merge --patch={spec}"))?;
        let heard = |process: &Process| {
            let log = process.log();
            log.lines().any(|line| {
                line.starts_with("profile=orders/told ")
                    && line.contains(" generation=")
                    && !line.contains(" generation=1 ")
            })
        };
        if heard(&logs) && heard(&attached) { Ok(()) } else { Err("not heard".into()) }
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

/// By what the API server writes down: of requests that somebody has sent on it knows more than one address.
fn the_kubelet_is_asked_as_the_caller(world: &World) -> Outcome {
    let expected: BTreeSet<_> =
        SUBRESOURCES.map(|name| (name.to_owned(), CALLER.to_owned())).into();
    eventually(SOON, || {
        let mut found = BTreeSet::new();
        for line in std::fs::read_to_string(world.cluster().audit_log())?.lines() {
            // The last one may not be whole yet.
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let subresource = text(&entry, "/objectRef/subresource");
            let is_sent_on = entry["sourceIPs"].as_array().is_some_and(|all| all.len() > 1);
            if is_sent_on && SUBRESOURCES.contains(&subresource) {
                found.insert((subresource.to_owned(), text(&entry, "/user/username").to_owned()));
            }
        }
        if found == expected { Ok(()) } else { Err(format!("{found:?}").into()) }
    })
}

/// In the cluster, and through a port-forward, as docs/reading.md shows.
fn a_kubeconfig_leads_there(world: &World, direct: &Client<'_>) -> Outcome {
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
    let told = cache.say(&format!("{read} -v=8"), "")?;
    assert!(told.err.contains("Kubewarm-Cell"), "not from the cache: {told:?}");
    Ok(())
}
