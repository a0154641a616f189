//! What prevents an injection, as far as the object shows it.

use crate::{
    injection::{MOUNT, VARIABLES, containers},
    manifest_path::ManifestPath,
    workload::WorkloadKind,
};
use kubewarm_api::manifests::API_CA;
use serde_json::Value;

/// Namespace of Kubernetes' own components, which must work while kubewarm does not.
const SYSTEM: &str = "kube-system";
/// Flags with which a program does not use its in-cluster configuration.
const FLAGS: [&str; 4] =
    ["kubeconfig", "master", "client-certificate", "authentication-kubeconfig"];
/// Programs that renew Leases of nodes, or judge nodes by them. If kubewarm were away, they would
/// call all nodes unready.
const NODE_PROGRAMS: [&str; 3] = ["kubelet", "kube-controller-manager", "cloud-controller-manager"];
/// Beginning of the name of the volume that the API server adds to pods.
const TOKEN_VOLUME: &str = "kube-api-access-";
/// Labels and annotations of the programs that write objects from another source.
const MANAGERS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
];

/// Where the object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadOrigin {
    /// A cluster. Some kinds cannot be changed there.
    Cluster,
    /// A file, whose objects can still be created.
    File,
}

/// The reasons why the object, which is not injected, cannot be injected, with what to do. Empty if
/// it can.
pub fn refusals(object: &Value, kind: WorkloadKind, origin: WorkloadOrigin) -> Vec<String> {
    owner_refusal(object, kind, origin).into_iter().chain(pod_refusals(object, kind)).collect()
}

/// The reasons why the API server did not inject this pod of a cluster, as far as the pod shows
/// them. Empty if it would inject a new pod like it.
pub fn live_pod_refusals(pod: &Value) -> Vec<String> {
    let mut pod = pod.clone();
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let mut names = volumes.into_iter().flatten().filter_map(|volume| volume.get("name")?.as_str());
    if !names.any(|name| name.starts_with(TOKEN_VOLUME)) {
        return vec!["it has no token for the API server".to_owned()];
    }
    // The API server's own mount is no reason.
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = pod.pointer_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
                mounts.retain(|mount| {
                    !text(mount, "/name").is_some_and(|name| name.starts_with(TOKEN_VOLUME))
                });
            }
        }
    }
    pod_refusals(&pod, WorkloadKind::Pod)
}

/// The reasons in the pod itself.
fn pod_refusals(object: &Value, kind: WorkloadKind) -> Vec<String> {
    let spec = kind.template().key("spec");
    let pod = spec.find(object).unwrap_or(&Value::Null);
    let mut all = Vec::new();
    if text(object, "/metadata/namespace") == Some(SYSTEM) {
        all.push(format!(
            "it runs in {SYSTEM}, whose programs must work while kubewarm does not; leave it at the API server"
        ));
    }
    let is_windows = text(pod, "/os/name") == Some("windows")
        || text(pod, "/nodeSelector/kubernetes.io~1os") == Some("windows");
    if is_windows {
        all.push(format!("its pods run Windows, which has no {MOUNT}; use a kubeconfig instead"));
    }
    if pod.get("automountServiceAccountToken") == Some(&Value::Bool(false)) {
        all.push(format!(
            "{spec}.automountServiceAccountToken is false, so its programs have no token for the API server; \
             remove that field if they need one"
        ));
    }
    let aliases = pod.get("hostAliases").and_then(Value::as_array).into_iter().flatten();
    let names = aliases.filter_map(|alias| alias.get("hostnames")?.as_array()).flatten();
    if names.filter_map(Value::as_str).any(is_api_server) {
        all.push(format!(
            "{spec}.hostAliases already has a name of the API server; remove that name"
        ));
    }
    for container in containers(object, &spec) {
        if let Some(content) = container.find(object) {
            all.extend(container_refusals(&container, content));
        }
    }
    all
}

fn owner_refusal(object: &Value, kind: WorkloadKind, origin: WorkloadOrigin) -> Option<String> {
    let owner = controller(object);
    let owner = owner.map(|(kind, name)| format!("{}/{name}", kind.to_lowercase()));
    if let (Some(owner), WorkloadKind::ReplicaSet | WorkloadKind::Job | WorkloadKind::Pod) =
        (&owner, kind)
    {
        return Some(format!("{owner} creates it; inject {owner} instead"));
    }
    (origin == WorkloadOrigin::Cluster && kind.is_immutable()).then(|| {
        format!(
            "the API server changes no pod template of an existing {}; inject its manifest with -f FILE, delete \
             the {} and create it from the output",
            kind.name(),
            kind.name()
        )
    })
}

fn container_refusals(path: &ManifestPath, container: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let list = |key: &str| container.get(key).and_then(Value::as_array).into_iter().flatten();
    for mount in list("volumeMounts") {
        let at = mount.get("mountPath").and_then(Value::as_str).unwrap_or_default();
        let at = at.trim_end_matches('/');
        if at == MOUNT || at.strip_prefix(MOUNT).is_some_and(|rest| rest.starts_with('/')) {
            all.push(format!(
                "{path}.volumeMounts already has a volume at {at}; remove that mount, or add the ConfigMap {API_CA} \
                 to its volume yourself"
            ));
        }
    }
    for variable in list("env") {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
        let value = variable.get("value").and_then(Value::as_str);
        let wanted = VARIABLES.iter().find(|(known, _)| *known == name);
        if wanted.is_some_and(|(_, wanted)| value != Some(wanted)) {
            all.push(format!("{path}.env sets {name} to another value; remove that variable"));
        }
        if name == "KUBECONFIG" {
            all.push(format!(
                "{path}.env sets KUBECONFIG, so the program does not use its in-cluster configuration; remove that \
                 variable, or write the kubeconfig with `kubectl warm kubeconfig`"
            ));
        }
    }
    let words = || list("command").chain(list("args")).filter_map(Value::as_str);
    let is_flag = |word: &&str| {
        let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        word.starts_with('-') && FLAGS.contains(&name)
    };
    if let Some(flag) = words().find(is_flag) {
        let flag = flag.split('=').next().unwrap_or_default();
        all.push(format!(
            "{path} has the flag {flag}, so the program does not use its in-cluster configuration; remove that \
             flag, or write the kubeconfig with `kubectl warm kubeconfig`"
        ));
    }
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let image = image.split('@').next().and_then(|image| image.rsplit('/').next());
    let image = image.and_then(|image| image.split(':').next()).unwrap_or_default();
    let program = words().next().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if let Some(name) = NODE_PROGRAMS.iter().find(|name| [program, image].contains(*name)) {
        all.push(format!(
            "{path} runs {name}, which renews or judges Leases of nodes; leave it at the API server"
        ));
    }
    all
}

/// What a user should know about the injection of the object, although it is possible.
pub fn remarks(object: &Value, kind: WorkloadKind) -> Vec<String> {
    let mut all = Vec::new();
    let has = |key: &str| {
        ["labels", "annotations"].iter().any(|list| {
            object.pointer(&format!("/metadata/{list}")).is_some_and(|all| all.get(key).is_some())
        })
    };
    let managers: Vec<_> =
        MANAGERS.iter().filter(|(key, _)| has(key)).map(|(_, name)| *name).collect();
    let owner = controller(object).map(|(kind, name)| format!("{kind} {name}"));
    let managers = managers.first().map(|name| (*name).to_owned());
    for manager in managers.into_iter().chain(owner) {
        all.push(format!(
            "{manager} manages it, and can undo the injection at its next sync; inject the source with -f instead"
        ));
    }
    if text(object, "/spec/updateStrategy/type") == Some("OnDelete") {
        all.push(
            "its update strategy is OnDelete, so the injection is not yet in effect; delete its pods".to_owned(),
        );
    }
    if kind == WorkloadKind::Deployment
        && object.pointer("/spec/paused") == Some(&Value::Bool(true))
    {
        all.push("it is paused, so the injection is not yet in effect; resume it".to_owned());
    }
    if kind == WorkloadKind::ReplicaSet {
        all.push(
            "a ReplicaSet does not replace its pods, so the injection is not yet in effect; delete its pods"
                .to_owned(),
        );
    }
    all
}

/// Kind and name of the object that controls this one.
fn controller(object: &Value) -> Option<(&str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    Some((owner.get("kind")?.as_str()?, owner.get("name")?.as_str()?))
}

fn is_api_server(name: &str) -> bool {
    let labels: Vec<_> = name.trim_end_matches('.').split('.').collect();
    matches!(
        &*labels,
        ["kubernetes"] | ["kubernetes", "default"] | ["kubernetes", "default", "svc", ..]
    )
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}
