//! Each refusal and remark, with what to do.

use crate::{WorkloadKind, WorkloadOrigin, refusals, remarks};
use serde_json::{Value, json};

fn object(kind: &str, change: impl FnOnce(&mut Value)) -> (Value, WorkloadKind) {
    let kind = WorkloadKind::of_word(kind).unwrap();
    let pod = json!({"containers": [{"name": "app", "image": "registry/shop:1"}]});
    let mut object = json!({"metadata": {"name": "shop", "namespace": "shop"}});
    let is_pod = kind == WorkloadKind::Pod;
    object["spec"] = if is_pod { pod } else { json!({"template": {"spec": pod}}) };
    change(&mut object);
    (object, kind)
}

fn refused(kind: &str, origin: WorkloadOrigin, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let (object, kind) = object(kind, change);
    refusals(&object, kind, origin)
}

#[test]
fn what_cannot_be_injected_is_refused_with_a_next_step() {
    let at = |pointer: &'static str, value: Value| {
        move |object: &mut Value| {
            let spec = object.pointer_mut("/spec/template/spec").unwrap();
            match pointer.strip_prefix('@') {
                Some(key) => spec["containers"][0][key] = value,
                None => spec[pointer] = value,
            }
        }
    };
    let mount = "/var/run/secrets/kubernetes.io/serviceaccount";
    for (field, value, parts) in [
        ("os", json!({"name": "windows"}), ["Windows", "use a kubeconfig"]),
        ("nodeSelector", json!({"kubernetes.io/os": "windows"}), ["Windows", "use a kubeconfig"]),
        ("automountServiceAccountToken", json!(false), ["no token", "remove that field"]),
        (
            "hostAliases",
            json!([{"ip": "1.2.3.4", "hostnames": ["a", "kubernetes.default.svc.other.domain"]}]),
            ["spec.template.spec.hostAliases", "remove that name"],
        ),
        ("@volumeMounts", json!([{"mountPath": mount}]), ["containers[app]", "remove that mount"]),
        (
            "@volumeMounts",
            json!([{"mountPath": format!("{mount}/ca.crt"), "subPath": "ca.crt"}]),
            [mount, "remove that mount"],
        ),
        (
            "@env",
            json!([{"name": "KUBERNETES_SERVICE_HOST", "value": "other"}]),
            ["containers[app].env sets KUBERNETES_SERVICE_HOST", "remove that variable"],
        ),
        ("@env", json!([{"name": "KUBECONFIG"}]), ["KUBECONFIG", "kubectl warm kubeconfig"]),
        ("@args", json!(["a", "--kubeconfig=/a"]), ["--kubeconfig", "kubectl warm kubeconfig"]),
        ("@command", json!(["a", "-master", "b"]), ["-master", "kubectl warm kubeconfig"]),
        ("@args", json!(["--client-certificate=/a"]), ["--client-certificate", "remove that flag"]),
        ("@command", json!(["/bin/kubelet"]), ["kubelet", "leave it"]),
        (
            "@image",
            json!("registry.k8s.io:443/kube-controller-manager:v1@sha256:0"),
            ["kube-controller-manager", "leave it"],
        ),
    ] {
        let found = refused("deploy", WorkloadOrigin::File, at(field, value));
        assert_eq!(found.len(), 1, "{field}: {found:?}");
        assert!(parts.iter().all(|part| found[0].contains(part)), "{found:?}");
    }
    let system = |object: &mut Value| object["metadata"]["namespace"] = "kube-system".into();
    assert!(refused("ds", WorkloadOrigin::File, system)[0].contains("leave it at the API server"));
}

#[test]
fn ordinary_workloads_are_not_refused() {
    for kind in ["deploy", "sts", "ds", "rs"] {
        for origin in [WorkloadOrigin::File, WorkloadOrigin::Cluster] {
            assert_eq!(refused(kind, origin, |_| {}), [""; 0]);
        }
    }
    for kind in ["job", "pod"] {
        assert_eq!(refused(kind, WorkloadOrigin::File, |_| {}), [""; 0]);
        let live = refused(kind, WorkloadOrigin::Cluster, |_| {});
        assert!(live[0].contains("-f FILE") && live.len() == 1, "{live:?}");
    }
    let usual = |object: &mut Value| {
        object["spec"]["template"]["spec"] = json!({
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["kubernetes.example.com", "db"]}],
            "containers": [{
                "name": "app", "image": "example.com/kubelet-exporter", "args": ["--masters=2", "kubeconfig"],
                "env": [{"name": "KUBERNETES_SERVICE_PORT", "value": "443"}],
                "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccounts"}],
            }],
        });
    };
    assert_eq!(refused("deploy", WorkloadOrigin::File, usual), [""; 0]);
}

#[test]
fn owned_objects_name_their_owner() {
    let owned = |object: &mut Value| {
        object["metadata"]["ownerReferences"] =
            json!([{"kind": "Deployment", "name": "shop", "controller": true}]);
    };
    for kind in ["rs", "pod", "job"] {
        let found = refused(kind, WorkloadOrigin::Cluster, owned);
        assert_eq!(found, ["deployment/shop creates it; inject deployment/shop instead"]);
    }
    assert_eq!(refused("deploy", WorkloadOrigin::Cluster, owned), [""; 0]);
    let (object, kind) = object("deploy", owned);
    assert!(remarks(&object, kind)[0].starts_with("Deployment shop manages it"));
}

#[test]
fn remarks_name_managers_and_what_is_not_yet_in_effect() {
    for (kind, pointer, value, part) in [
        ("deploy", "/metadata/labels", json!({"argocd.argoproj.io/instance": "a"}), "Argo CD"),
        ("deploy", "/metadata/annotations", json!({"meta.helm.sh/release-name": "a"}), "Helm"),
        ("deploy", "/metadata/labels", json!({"kustomize.toolkit.fluxcd.io/name": "a"}), "Flux"),
        ("ds", "/spec/updateStrategy", json!({"type": "OnDelete"}), "delete its pods"),
        ("deploy", "/spec/paused", json!(true), "resume it"),
        ("rs", "/spec/replicas", json!(1), "delete its pods"),
    ] {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let (object, kind) =
            object(kind, |object| object.pointer_mut(parent).unwrap()[key] = value);
        let found = remarks(&object, kind);
        assert!(found.len() == 1 && found[0].contains(part), "{pointer}: {found:?}");
    }
    let (object, kind) = object("deploy", |_| {});
    assert_eq!(remarks(&object, kind), [""; 0]);
}
