//! `kubewarm inject` with objects that a real API server accepts, stores and completes.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::operator::Running;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const WORKLOADS: &str = "# all kinds
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      serviceAccountName: shop
      initContainers:
      - name: first
        image: localhost/none
      containers:
      - name: app # the program
        image: localhost/none
        env:
        - name: LEVEL
          value: high
        volumeMounts: [{name: data, mountPath: /data}]
      volumes:
      - name: data
        emptyDir: {}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: app, image: localhost/none}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}, annotations: {a: b}}
    spec:
      hostNetwork: true
      serviceAccountName: shop
      hostAliases:
      - ip: 10.0.0.1
        hostnames: [db]
      containers:
      - {name: app, image: localhost/none, env: []}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: shop}
spec:
  schedule: '0 0 1 1 *'
  suspend: true
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: app
            image: localhost/none
---
apiVersion: batch/v1
kind: Job
metadata: {name: shop}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: app
        image: localhost/none
---
apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  schedulerName: none
  serviceAccountName: shop
  containers:
  - name: app
    image: localhost/none
";

/// Runs `kubewarm inject` with this standard input.
fn run(args: &[&str], input: &str) -> Result<Output, Failure> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubewarm"))
        .arg("inject")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    // A command that fails early does not read its input.
    let _ = writer.join();
    Ok(output)
}

fn injected(args: &[&str], input: &str) -> Result<String, Failure> {
    let output = run(args, input)?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{args:?}: {error}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

const OFFLINE: [&str; 5] = ["-f", "-", "--offline", "--cluster-ip", "10.96.0.99"];

#[test]
fn injected_manifests_are_accepted_and_undone() -> Outcome {
    let world = World::shared()?;
    let namespace = world.namespace("injected")?;
    let text = injected(&OFFLINE, WORKLOADS)?;
    assert_eq!(injected(&OFFLINE, &text)?, text, "twice is as once");
    assert_eq!(injected(&["-f", "-", "--undo"], &text)?, WORKLOADS);
    let kinds = "deployments,statefulsets,daemonsets,cronjobs,jobs,pods";
    let apply = |text: &str| -> Outcome {
        let file = world.cluster.folder().join(format!("{namespace}.yaml"));
        fs::write(&file, text)?;
        world.cluster.run(["apply", "-n", &namespace, "-f", &file.to_string_lossy()])?;
        Ok(())
    };
    apply(&text)?;

    // After kustomize, which writes all YAML in its own format.
    let folder = world.cluster.folder().join(format!("{namespace}-kustomize"));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("all.yaml"), WORKLOADS)?;
    fs::write(folder.join("kustomization.yaml"), "resources: [all.yaml]\n")?;
    let built = world.cluster.run(["kustomize", &folder.to_string_lossy()])?;
    let kustomized = injected(&OFFLINE, &built)?;
    let [kustomized, text] =
        [&kustomized, &text].map(|text| text.matches("kubewarm-api-ca").count());
    assert_eq!(kustomized, text);

    // The API server adds no field to what inject added, so the live objects can be undone too.
    let live = world.cluster.run(["get", kinds, "shop", "-n", &namespace, "-o", "yaml"])?;
    let live_count = live.matches("kubewarm-api-access").count();
    assert!(live_count >= 2 * 6, "{live_count}");
    let undone = injected(&["-f", "-", "--undo"], &live)?;
    assert!(!spec_of(&undone)?.contains("kubewarm"), "{undone}");
    let pod = world.get(&namespace, "pod", "shop")?;
    let volumes = pod["spec"]["volumes"].as_array().ok_or("no volumes")?;
    assert_eq!(volumes.len(), 1, "the ServiceAccount plugin adds no volume: {volumes:?}");

    // The original file removes the injection from a Deployment, and nothing else changes.
    world.cluster.run([
        "delete",
        "jobs,pods",
        "shop",
        "-n",
        &namespace,
        "--wait=false",
        "--now",
    ])?;
    let arguments = ["deployment/shop", "-n", &namespace, "--kubeconfig"];
    let kubeconfig = world.cluster.kubeconfig().to_string_lossy().into_owned();
    let arguments = [&arguments[..], &[kubeconfig.as_str()]].concat();
    let printed = injected(&[&arguments[..], &["--undo"]].concat(), "")?;
    for absent in ["kubewarm.io/inject", "status:", "managedFields", "uid:", "resourceVersion"] {
        assert!(!printed.contains(absent), "{absent} in {printed}");
    }
    let before = world.get(&namespace, "deployment", "shop")?;
    injected(&[&arguments[..], &["--undo", "--apply", "--yes"]].concat(), "")?;
    let after = world.get(&namespace, "deployment", "shop")?;
    assert_ne!(before["spec"], after["spec"]);
    let deployment = WORKLOADS.split("---\n").nth(1).ok_or("no Deployment")?;
    let plain = world.namespace("plain")?;
    let file = world.cluster.folder().join(format!("{plain}.yaml"));
    fs::write(&file, deployment)?;
    world.cluster.run(["create", "-n", &plain, "-f", &file.to_string_lossy()])?;
    assert_eq!(after["spec"], world.get(&plain, "deployment", "shop")?["spec"]);
    let again = run(&[&arguments[..], &["--undo"]].concat(), "")?;
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not injected"));

    // A field that somebody changed is named, and nothing changes.
    let one = injected(&[&OFFLINE[..], &["deployment/shop"]].concat(), WORKLOADS)?;
    apply(&one)?;
    let patch = r#"[{"op": "replace", "path": "/spec/template/spec/hostAliases/0/ip", "value": "10.0.0.9"}]"#;
    world.cluster.run([
        "patch",
        "deployment",
        "shop",
        "-n",
        &namespace,
        "--type=json",
        "-p",
        patch,
    ])?;
    let refused = run(&[&arguments[..], &["--undo", "--apply", "--yes"]].concat(), "")?;
    let error = String::from_utf8_lossy(&refused.stderr);
    let is_named = error.contains("spec.template.spec.hostAliases was changed");
    assert!(refused.status.code() == Some(2) && is_named, "{error}");
    Ok(())
}

/// The `spec` of all objects in a List.
fn spec_of(list: &str) -> Result<String, Failure> {
    let list: Value = serde_saphyr::from_str(list)?;
    let items = list["items"].as_array().ok_or("no items")?;
    Ok(items.iter().map(|item| item["spec"].to_string()).collect())
}

#[test]
fn files_say_what_is_not_injected() -> Outcome {
    let windows = WORKLOADS.replace(
        "      serviceAccountName: shop\n      init",
        "      os: {name: windows}\n      init",
    );
    let output = run(&OFFLINE, &windows)?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    for part in [
        "offline: not checked",
        "deployment/shop in namespace default cannot be injected:",
        "kubectl label namespace default kubewarm.io/inject=",
        "kubectl warm profile --for system:serviceaccount:default:shop",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let named = run(&[&OFFLINE[..], &["deployment/shop"]].concat(), &windows)?;
    assert_eq!((named.status.code(), named.stdout.len()), (Some(2), 0));
    let missing = run(&[&OFFLINE[..], &["deployment/other"]].concat(), WORKLOADS)?;
    assert!(String::from_utf8_lossy(&missing.stderr).contains("holds no deployment/other"));
    // Names stand in URLs and in printed commands.
    let accounts = ["serviceAccountName: $(id)", "serviceAccountName: a/b"];
    for account in accounts {
        let text = WORKLOADS.replacen("serviceAccountName: shop", account, 1);
        let refused = run(&OFFLINE, &text)?;
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && error.contains("is invalid"), "{error}");
    }
    let system = run(&[&OFFLINE[..], &["-n", "kube-system"]].concat(), WORKLOADS)?;
    let error = String::from_utf8_lossy(&system.stderr);
    assert!(error.contains("it runs in kube-system") && error.contains("is injected"), "{error}");
    assert_eq!(String::from_utf8_lossy(&system.stdout), WORKLOADS);
    let other = "# only this\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: a}";
    assert_eq!(injected(&OFFLINE, other)?, other);
    let broken = run(&OFFLINE, "a: [")?;
    assert!(String::from_utf8_lossy(&broken.stderr).contains("standard input"));
    assert_eq!(broken.status.code(), Some(2));
    Ok(())
}

/// A Service as the chart creates it, with a pod behind it.
const KUBEWARM: &str = "apiVersion: v1
kind: Service
metadata: {name: kubewarm-api-failopen, namespace: kubewarm-system}
spec:
  selector: {app: injected-reads}
  ports: [{name: api, port: 443, targetPort: api}]
---
apiVersion: v1
kind: Service
metadata: {name: kubewarm-api, namespace: kubewarm-system}
spec:
  selector: {app: injected-reads}
  ports: [{name: api, port: 443, targetPort: api}]
---
apiVersion: v1
kind: Pod
metadata: {name: injected-reads, namespace: kubewarm-system, labels: {app: injected-reads}}
spec:
  schedulerName: none
  automountServiceAccountToken: false
  containers:
  - {name: kubewarm, image: localhost/none, ports: [{name: api, containerPort: 6443}]}
";

const STRICT: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: strict}
spec: {podSelector: {matchLabels: {app: shop}}, policyTypes: [Egress], egress: []}
";

const DROPPING: &str = "apiVersion: kubewarm.io/v1alpha1
kind: CacheProfile
metadata: {name: dropping}
spec: {mode: Plan, targets: [{name: all, resource: configmaps, projection: {managedFields: Drop}}]}
";

#[test]
fn live_workloads_are_printed_or_refused_with_the_reason() -> Outcome {
    let world = &Running::shared()?.world;
    let namespace = world.namespace("inject")?;
    world.cluster.apply(KUBEWARM)?;
    let create = |text: &str| -> Outcome {
        let file = world.cluster.folder().join(format!("{namespace}.yaml"));
        fs::write(&file, text)?;
        world.cluster.run(["apply", "-n", &namespace, "-f", &file.to_string_lossy()])?;
        Ok(())
    };
    create(WORKLOADS)?;
    let subject = format!("--serviceaccount={namespace}:shop");
    let verbs = ["--verb=list,watch", "--resource=configmaps"];
    world.cluster.run([&["create", "role", "reads", "-n", &namespace][..], &verbs].concat())?;
    let binding = ["create", "rolebinding", "reads", "-n", &namespace, "--role=reads"];
    world.cluster.run([&binding[..], &[&subject]].concat())?;
    let kubeconfig = world.cluster.kubeconfig().to_string_lossy().into_owned();
    let command = |workload: &str| {
        let line = format!(
            "{workload} -n {namespace} --operator-namespace kubewarm-system --kubeconfig {kubeconfig}"
        );
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        run(&words, "")
    };
    let stream = eventually(SOON, || {
        let output = command("deployment/shop")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout)?)
        } else {
            Err(error.into())
        }
    })?;
    let address = |service: &str| -> Result<String, Failure> {
        let service = world.get("kubewarm-system", "service", service)?;
        Ok(service["spec"]["clusterIP"].as_str().ok_or("no address")?.to_owned())
    };
    let (open, closed) = (address("kubewarm-api-failopen")?, address("kubewarm-api")?);
    for part in [open.as_str(), "kind: Namespace", "kind: CacheProfile", "serviceaccounts/token"] {
        assert!(stream.contains(part), "{part} in {stream}");
    }
    let live = world.get(&namespace, "deployment", "shop")?;
    assert!(!live.to_string().contains("kubewarm.io/inject"), "printing changes nothing");

    let refused = |parts: &[&str]| {
        eventually(SOON, || {
            let output = command("deployment/shop")?;
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_whole = parts.iter().all(|part| error.contains(part));
            if output.status.code() == Some(2) && output.stdout.is_empty() && is_whole {
                return Ok(());
            }
            Err(format!("{parts:?} in {error}").into())
        })
    };
    // The pods of a DaemonSet could overload the API server.
    for (workload, expected) in [
        ("daemonset/shop", &closed),
        ("daemonset/shop --fail-open", &open),
        ("deployment/shop --fail-open=false", &closed),
    ] {
        let output = command(workload)?;
        let stream = String::from_utf8_lossy(&output.stdout);
        assert!(stream.contains(expected.as_str()), "{workload}: {stream}");
    }
    let error_of = |workload: &str| -> Result<String, Failure> {
        let output = command(workload)?;
        assert_eq!(output.status.code(), Some(2));
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let error = error_of("pod/shop")?;
    assert!(error.contains("inject its manifest with -f FILE"), "{error}");
    create(STRICT)?;
    refused(&["/strict", r#""port":6443"#])?;
    world.cluster.run(["delete", "networkpolicy", "strict", "-n", &namespace])?;
    let patch = r#"{"automountServiceAccountToken": false}"#;
    world.cluster.run(["patch", "serviceaccount", "shop", "-n", &namespace, "-p", patch])?;
    refused(&["automountServiceAccountToken of ServiceAccount", "pod template"])?;
    let patch = r#"{"automountServiceAccountToken": true}"#;
    world.cluster.run(["patch", "serviceaccount", "shop", "-n", &namespace, "-p", patch])?;

    create(DROPPING)?;
    let binding = format!("patches-{namespace}");
    let role = ["create", "clusterrole", &binding, "--verb=patch", "--resource=configmaps"];
    world.cluster.run(role)?;
    let role = format!("--clusterrole={binding}");
    world.cluster.run(["create", "clusterrolebinding", &binding, &role, &subject])?;
    refused(&["drops managedFields of configmaps", "managedFields: Keep"])?;
    world.cluster.run(["delete", "cacheprofile", "dropping", "-n", &namespace])?;

    let binding = format!("admin-{namespace}");
    let role = "--clusterrole=cluster-admin";
    world.cluster.run(["create", "clusterrolebinding", &binding, role, &subject])?;
    refused(&["do anything in all namespaces", "--allow-privileged"])?;
    let unnamed = format!("deployment/shop -n {namespace} --kubeconfig {kubeconfig}");
    let unnamed = run(&unnamed.split_whitespace().collect::<Vec<_>>(), "")?;
    assert!(String::from_utf8_lossy(&unnamed.stderr).contains("pass --operator-namespace"));
    Ok(())
}
