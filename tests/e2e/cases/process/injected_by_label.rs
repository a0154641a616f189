//! Pods in labelled namespaces, which a real API server injects by kubewarm's admission policy.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::issued_certificates::{CertifiedReplica, prepare};
use crate::operator::NAMESPACE;
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

const ANNOTATION: &str = "kubewarm.io/injected-by-policy";
const VARIABLES: [(&str, &str); 3] = [
    ("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
];
/// ServiceAccounts with a permission that excludes an injection.
const PRIVILEGED: [(&str, &str); 6] = [
    ("binds", "{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]}"),
    (
        "escalates",
        "{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [escalate]}",
    ),
    ("gets-secrets", "{apiGroups: [''], resources: [secrets], verbs: [get]}"),
    ("impersonates", "{apiGroups: ['*'], resources: [users], verbs: [impersonate]}"),
    ("impersonates-pods", "{apiGroups: [''], resources: [serviceaccounts], verbs: [impersonate]}"),
    ("lists-secrets", "{apiGroups: [''], resources: [secrets], verbs: [list]}"),
];
/// A ServiceAccount whose pods have no token.
const WITHOUT_TOKEN: &str = "without-token";

/// A world with the policy, whose API server has it in force, and a namespace with the label.
struct LabelledWorld {
    world: World,
    shop: String,
    /// The cluster IP of the Service that fails open.
    ip: String,
}

impl LabelledWorld {
    fn start() -> Result<Self, Failure> {
        let world = World::alone()?;
        prepare(&world)?;
        for path in ["deploy/inject.yaml", "deploy/inject-policy.yaml"] {
            world.cluster.run(["apply", "-f", &file(path).to_string_lossy()])?;
        }
        let ip =
            world.get(NAMESPACE, "service", "kubewarm-api-failopen")?["spec"]["clusterIP"].clone();
        let ip = ip.as_str().ok_or("no cluster IP")?.to_owned();
        let this = Self { shop: world.namespace("shop")?, world, ip };
        this.label(&this.shop, "pods")?;
        Ok(this)
    }

    fn label(&self, namespace: &str, value: &str) -> Outcome {
        let label = format!("kubewarm.io/inject={value}");
        self.world.cluster.run(["label", "namespace", namespace, &label, "--overwrite"])?;
        eventually(SOON, || {
            Ok(self.world.cluster.run(["get", "serviceaccount", "default", "-n", namespace])?)
        })?;
        Ok(())
    }

    fn leader(&self) -> Result<CertifiedReplica, Failure> {
        let flags = ["--inject", "--inject-policy", "--cluster-domain=cluster.local"];
        let leader = CertifiedReplica::start(&self.world, "first", &flags)?;
        leader.await_ready()?;
        Ok(leader)
    }

    /// Creates a pod, and returns it as the API server has stored it.
    fn create(&self, namespace: &str, pod: &Value) -> Result<Value, Failure> {
        self.send(namespace, pod, "--dry-run=none")
    }

    /// The pod as the API server would store it.
    fn preview(&self, namespace: &str, pod: &Value) -> Result<Value, Failure> {
        self.send(namespace, pod, "--dry-run=server")
    }

    fn send(&self, namespace: &str, pod: &Value, mode: &str) -> Result<Value, Failure> {
        let path = self.world.cluster.folder().join("pod.json");
        fs::write(&path, pod.to_string())?;
        let path = path.to_string_lossy();
        let create = ["create", "-n", namespace, "-f", &path, "-o", "json", mode];
        Ok(serde_json::from_str(&self.world.cluster.run(create)?)?)
    }

    fn await_injection(&self, namespace: &str) -> Outcome {
        eventually(SOON, || {
            let previewed = self.preview(namespace, &pod("preview", &json!({})))?;
            if is_injected(&previewed) { Ok(()) } else { Err(format!("{previewed}").into()) }
        })
    }

    fn await_no_injection(&self, namespace: &str) -> Outcome {
        eventually(SOON, || {
            let previewed = self.preview(namespace, &pod("preview", &json!({})))?;
            if is_injected(&previewed) { Err("it is injected".into()) } else { Ok(()) }
        })
    }

    fn command(&self, words: &[&str]) -> Result<String, Failure> {
        let output = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
            .args(words)
            .args(["--operator-namespace", NAMESPACE, "--kubeconfig"])
            .arg(self.world.cluster.kubeconfig())
            .output()?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Reports a container as running, as a kubelet would.
    fn run(&self, name: &str) -> Outcome {
        let status = json!({"status": {"containerStatuses": [{
            "name": "app", "image": "a", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}},
        }]}});
        let patch = ["patch", "pod", name, "-n", &self.shop, "--subresource=status", "-p"];
        self.world.cluster.run(patch.into_iter().chain([&*status.to_string()]))?;
        Ok(())
    }
}

/// A pod with two containers, changed by a merge patch.
fn pod(name: &str, change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": "none",
            "initContainers": [{"name": "first", "image": "localhost/none"}],
            "containers": [{"name": "app", "image": "localhost/none", "env": [{"name": "LEVEL", "value": "high"}]}],
        },
    });
    merge(&mut pod, change);
    pod
}

fn merge(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    for (key, change) in change {
        merge(&mut value[key], change);
    }
}

/// A change of the container.
fn container(fields: &Value) -> Value {
    let mut container = json!({"name": "app", "image": "localhost/none"});
    merge(&mut container, fields);
    json!({"spec": {"containers": [container]}})
}

fn is_injected(pod: &Value) -> bool {
    let shown = pod.to_string();
    let parts = [ANNOTATION, "kubewarm-api-ca", r#""expirationSeconds":3600"#]
        .map(|part| shown.contains(part));
    assert!(parts.iter().all(|part| *part == parts[0]), "a part of the injection: {pod:#}");
    parts[0]
}

/// The manifest after `kubewarm inject -f`, or `None` if the command refuses it.
fn injected_by_command(pod: &Value, ip: &str) -> Result<Option<Value>, Failure> {
    let name = format!("pod/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .args(["inject", "-f", "-", "--offline", "--cluster-ip", ip, &name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or("no standard input")?.write_all(pod.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(Some(serde_json::from_slice(&output.stdout)?));
    }
    assert!(error.contains("cannot be injected"), "{error}");
    Ok(None)
}

#[test]
fn the_api_server_injects_pods_of_labelled_namespaces() -> Outcome {
    let labelled = LabelledWorld::start()?;
    let LabelledWorld { world, shop, ip } = &labelled;
    // The leader has written no parameters.
    assert!(!is_injected(&labelled.create(shop, &pod("before", &json!({})))?));
    let _leader = labelled.leader()?;
    labelled.await_injection(shop)?;

    let plain = pod("plain", &json!({}));
    let by_command = injected_by_command(&plain, ip)?.ok_or("refused")?;
    let stored = labelled.create(shop, &plain)?;
    assert!(is_injected(&stored));
    let (spec, expected) = (&stored["spec"], &by_command["spec"]);
    assert_eq!(spec["hostAliases"], expected["hostAliases"], "as the command");
    for list in ["containers", "initContainers"] {
        assert_eq!(spec[list][0]["env"], expected[list][0]["env"], "as the command");
    }
    let variables = VARIABLES.map(|(name, value)| json!({"name": name, "value": value}));
    assert_eq!(spec["initContainers"][0]["env"], json!(variables));
    let volume = &spec["volumes"][0];
    assert!(volume["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-")));
    let sources = &volume["projected"]["sources"];
    let expected = &expected["volumes"][0]["projected"]["sources"];
    assert_eq!(sources, expected, "the same token, CAs and namespace");
    let annotation = stored["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    let annotation: Value = serde_json::from_str(annotation)?;
    assert_eq!(annotation, json!({"version": env!("CARGO_PKG_VERSION"), "ips": [ip]}));

    // Pods of a DaemonSet use another Service. Each of them would list at the API server.
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "1", "controller": true}]);
    let agent = pod("agent", &json!({"metadata": {"ownerReferences": owner}}));
    let agent = labelled.preview(shop, &agent)?;
    let service = world.get(NAMESPACE, "service", "kubewarm-api")?["spec"]["clusterIP"].clone();
    assert!(service.is_string() && service != ip.as_str(), "{service}");
    assert_eq!(agent["spec"]["hostAliases"][0]["ip"], service);

    // Other annotations, aliases and words stay, also those that only look like a reason.
    let other = json!({
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db", "kubernetes.example.com"]}],
            "containers": [{
                "name": "app", "image": "localhost/kubelet-stats:1", "args": ["--masters=1", "kubelet"],
                "volumeMounts": [{"name": "data", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccounts"}],
            }],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    });
    let other = pod("other", &other);
    let stored = labelled.create(shop, &other)?;
    assert!(is_injected(&stored) && injected_by_command(&other, ip)?.is_some());
    assert_eq!(stored["metadata"]["annotations"]["a"], "b");
    let aliases = stored["spec"]["hostAliases"].as_array().ok_or("no aliases")?;
    assert_eq!((aliases.len(), &aliases[0]["hostnames"][0]), (2, &json!("db")));

    // Pods that the command injected stay as they are.
    let mut by_hand = injected_by_command(&pod("by-command", &json!({})), ip)?.ok_or("refused")?;
    let stored = labelled.create(shop, &by_hand)?;
    by_hand["spec"]["containers"][0].take();
    for pointer in ["/metadata/annotations", "/spec/hostAliases", "/spec/volumes"] {
        assert_eq!(stored.pointer(pointer), by_hand.pointer(pointer), "{pointer}");
    }

    // Other namespaces, although kubewarm publishes its CAs there.
    let published = world.namespace("published")?;
    labelled.label(&published, "")?;
    for namespace in ["kube-system", NAMESPACE] {
        labelled.label(namespace, "pods")?;
    }
    for namespace in [&published, "kube-system", NAMESPACE] {
        let get = ["get", "configmap", "kubewarm-api-ca", "-n", namespace];
        eventually(SOON, || Ok(world.cluster.run(get)?))?;
        assert!(!is_injected(&labelled.preview(namespace, &pod("a", &json!({})))?), "{namespace}");
    }
    Ok(())
}

#[test]
fn the_api_server_refuses_what_the_command_refuses() -> Outcome {
    let labelled = LabelledWorld::start()?;
    let LabelledWorld { world, shop, ip } = &labelled;
    let _leader = labelled.leader()?;
    labelled.await_injection(shop)?;
    let mount = |path: &str| {
        let mounts = json!([{"name": "own", "mountPath": path}]);
        let mut pod = container(&json!({"volumeMounts": mounts}));
        pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
        pod
    };
    let env = |name: &str| container(&json!({"env": [{"name": name, "value": "other"}]}));
    let alias = |name: &str| json!({"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db", name]}]}});
    let first = |fields: &Value| {
        let mut first = json!({"name": "first", "image": "localhost/none"});
        merge(&mut first, fields);
        json!({"spec": {"initContainers": [first]}})
    };
    let refused = [
        ("windows", json!({"spec": {"os": {"name": "windows"}}})),
        ("windows-node", json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}})),
        ("no-token", json!({"spec": {"automountServiceAccountToken": false}})),
        ("alias", alias("kubernetes")),
        ("long-alias", alias("kubernetes.default.svc.cluster.local")),
        ("mount", mount("/var/run/secrets/kubernetes.io/serviceaccount/")),
        ("mount-below", mount("/var/run/secrets/kubernetes.io/serviceaccount/extra")),
        ("host", env("KUBERNETES_SERVICE_HOST")),
        ("port", env("KUBERNETES_SERVICE_PORT_HTTPS")),
        ("kubeconfig-variable", env("KUBECONFIG")),
        ("kubeconfig", container(&json!({"args": ["run", "--kubeconfig=/etc/kubeconfig"]}))),
        ("master", container(&json!({"command": ["program", "-master", "https://a"]}))),
        ("certificate", first(&json!({"args": ["--client-certificate=/etc/tls.crt"]}))),
        ("kubelet", container(&json!({"image": "registry.example.com:5000/kubelet:v1@sha256:0"}))),
        ("manager", container(&json!({"command": ["/usr/bin/kube-controller-manager"]}))),
        ("cloud", container(&json!({"args": ["cloud-controller-manager"]}))),
    ];
    for (name, change) in &refused {
        let pod = pod(name, change);
        assert!(injected_by_command(&pod, ip)?.is_none(), "{name} by the command");
        assert!(!is_injected(&labelled.create(shop, &pod)?), "{name}");
    }

    // What only the cluster shows.
    world.cluster.run(["create", "serviceaccount", WITHOUT_TOKEN, "-n", shop])?;
    let mount = r#"{"automountServiceAccountToken": false}"#;
    world.cluster.run(["patch", "serviceaccount", WITHOUT_TOKEN, "-n", shop, "-p", mount])?;
    for (name, rule) in PRIVILEGED {
        world.cluster.apply(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {shop}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules: [{rule}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {name}, namespace: {shop}}}]
"
        ))?;
    }
    for name in PRIVILEGED.map(|(name, _)| name).into_iter().chain([WITHOUT_TOKEN]) {
        let pod = pod(name, &json!({"spec": {"serviceAccountName": name}}));
        eventually(SOON, || {
            let is_injected = is_injected(&labelled.preview(shop, &pod)?);
            if is_injected { Err(format!("{name} is injected").into()) } else { Ok(()) }
        })?;
    }

    // A pod can opt out, and cannot opt in.
    let label = |value: &str| json!({"metadata": {"labels": {"kubewarm.io/inject": value}}});
    let out = pod("opted-out", &label("disabled"));
    assert!(!is_injected(&labelled.create(shop, &out)?));
    let other = world.namespace("other")?;
    eventually(SOON, || {
        Ok(world.cluster.run(["get", "serviceaccount", "default", "-n", &other])?)
    })?;
    assert!(!is_injected(&labelled.create(&other, &pod("opted-in", &label("pods")))?));

    // The command names the running pods, except those that opted out.
    for name in ["kubeconfig", "kubelet", "opted-out"] {
        labelled.run(name)?;
    }
    let checked = labelled.command(&["check"])?;
    let reason = format!(
        "to accept this, set their label kubewarm.io/inject=disabled: {shop}/kubeconfig (spec.containers[app] has \
         the flag --kubeconfig), {shop}/kubelet (spec.containers[app] runs kubelet)\n"
    );
    assert!(checked.contains(&reason), "{checked}");
    Ok(())
}

#[test]
fn pods_start_unchanged_where_an_injected_pod_would_not_start() -> Outcome {
    let labelled = LabelledWorld::start()?;
    let LabelledWorld { world, shop, .. } = &labelled;
    labelled.create(shop, &pod("before", &json!({})))?;
    labelled.run("before")?;
    let leader = labelled.leader()?;
    labelled.await_injection(shop)?;
    let checked = labelled.command(&["check"])?;
    let missed =
        format!("restart them, unless their ServiceAccount is privileged: {shop}/before\n");
    assert!(checked.contains(&missed), "{checked}");

    // The quota of this namespace permits no further ConfigMap, so a pod could not mount the CAs.
    let full = world.namespace("full")?;
    let root = ["get", "configmap", "kube-root-ca.crt", "-n", &full];
    eventually(SOON, || Ok(world.cluster.run(root)?))?;
    let quota = ["create", "quota", "full", "--hard=count/configmaps=1", "-n", &full];
    world.cluster.run(quota)?;
    eventually(SOON, || {
        let quota = world.get(&full, "resourcequota", "full")?;
        let used = &quota["status"]["used"]["count/configmaps"];
        if used == "1" { Ok(()) } else { Err(quota.to_string().into()) }
    })?;
    labelled.label(&full, "pods")?;
    let next = world.namespace("next")?;
    labelled.label(&next, "pods")?;
    labelled.await_injection(&next)?;
    assert!(!is_injected(&labelled.create(&full, &pod("a", &json!({})))?));
    let checked = labelled.command(&["check"])?;
    let unpublished = format!("or read why the leader cannot write: {full}\n");
    assert!(checked.contains(&unpublished), "{checked}");
    world.cluster.run(["delete", "quota", "full", "-n", &full])?;
    labelled.await_injection(&full)?;

    // Without a Service, kubewarm has no address. An edit does not last.
    world.cluster.run(["delete", "service", "kubewarm-api", "-n", NAMESPACE])?;
    labelled.await_no_injection(shop)?;
    let edit = r#"{"data": {"ips": "10.0.0.9", "hostnames": "a", "namespaces": "a"}}"#;
    world.cluster.run(["patch", "configmap", "kubewarm-inject", "-n", NAMESPACE, "-p", edit])?;
    eventually(SOON, || {
        let data = world.get(NAMESPACE, "configmap", "kubewarm-inject")?["data"].clone();
        if data.is_null() { Ok(()) } else { Err(data.to_string().into()) }
    })?;
    // Parameters that the API server would reject in a pod. Nobody corrects them.
    drop(leader);
    let write = |ips: &str, hostnames: &str| {
        let data = json!({
            "ips": ips, "daemonSetIps": "10.0.0.8", "hostnames": hostnames, "namespaces": shop, "version": "1",
        });
        let edit = json!({ "data": data }).to_string();
        let patch = ["patch", "configmap", "kubewarm-inject", "-n", NAMESPACE, "-p", &edit];
        world.cluster.run(patch)
    };
    for (ips, hostnames) in [("10.0.0.9,10.0.0", "kubernetes"), ("10.0.0.9", "kubernetes,a_b")] {
        write("10.0.0.9,fd00::9", "kubernetes")?;
        labelled.await_injection(shop)?;
        write(ips, hostnames)?;
        labelled.await_no_injection(shop)?;
    }
    write("10.0.0.9", "kubernetes")?;
    labelled.await_injection(shop)?;
    // Without the parameters' ConfigMap, pods start too.
    world.cluster.run(["delete", "configmap", "kubewarm-inject", "-n", NAMESPACE])?;
    labelled.await_no_injection(shop)?;
    Ok(())
}
