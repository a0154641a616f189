//! The kinds with pods that can be injected.

use crate::manifest_path::ManifestPath;
use serde_json::Value;
use std::collections::BTreeMap;

/// A kind whose objects contain a pod or a pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// `apps/v1`
    Deployment,
    /// `apps/v1`
    StatefulSet,
    /// `apps/v1`
    DaemonSet,
    /// `apps/v1`
    ReplicaSet,
    /// `batch/v1`
    Job,
    /// `batch/v1`
    CronJob,
    /// `v1`
    Pod,
}

/// Each kind with its API version, its plural, and its short name in kubectl.
const KINDS: [(WorkloadKind, &str, &str, &str, &str); 7] = [
    (WorkloadKind::Deployment, "apps/v1", "Deployment", "deployments", "deploy"),
    (WorkloadKind::StatefulSet, "apps/v1", "StatefulSet", "statefulsets", "sts"),
    (WorkloadKind::DaemonSet, "apps/v1", "DaemonSet", "daemonsets", "ds"),
    (WorkloadKind::ReplicaSet, "apps/v1", "ReplicaSet", "replicasets", "rs"),
    (WorkloadKind::Job, "batch/v1", "Job", "jobs", ""),
    (WorkloadKind::CronJob, "batch/v1", "CronJob", "cronjobs", "cj"),
    (WorkloadKind::Pod, "v1", "Pod", "pods", "po"),
];

impl WorkloadKind {
    /// The kind of `object`, or `None` if the object contains no pod.
    pub fn of_object(object: &Value) -> Option<Self> {
        let version = object.get("apiVersion")?.as_str()?;
        let kind = object.get("kind")?.as_str()?;
        let is_it = |of: &&(Self, &str, &str, &str, &str)| (of.1, of.2) == (version, kind);
        KINDS.iter().find(is_it).map(|of| of.0)
    }

    /// The kind with this name, plural or short name, as kubectl accepts it.
    pub fn of_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let is_it = |of: &&(Self, &str, &str, &str, &str)| {
            let names = [of.2.to_lowercase(), of.3.to_owned(), of.4.to_owned()];
            !word.is_empty() && names.contains(&word)
        };
        KINDS.iter().find(is_it).map(|of| of.0)
    }

    /// The kind's name, such as `Deployment`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The API group, which is empty for Pods.
    pub fn group(self) -> &'static str {
        self.row().1.split_once('/').map_or("", |(group, _)| group)
    }

    /// The plural name in URLs, such as `deployments`.
    pub fn plural(self) -> &'static str {
        self.row().3
    }

    /// Path of the pod template, which is the object itself for a Pod.
    pub(crate) fn template(self) -> ManifestPath {
        ManifestPath::parse(match self {
            Self::Pod => "",
            Self::CronJob => "spec.jobTemplate.spec.template",
            Self::Deployment
            | Self::StatefulSet
            | Self::DaemonSet
            | Self::ReplicaSet
            | Self::Job => "spec.template",
        })
    }

    /// Whether the API server rejects a change of the pod template of an existing object.
    pub fn is_immutable(self) -> bool {
        matches!(self, Self::Job | Self::Pod)
    }

    fn row(self) -> (Self, &'static str, &'static str, &'static str, &'static str) {
        KINDS.into_iter().find(|of| of.0 == self).unwrap_or(KINDS[0])
    }
}

/// The pod's spec in a workload, or null.
pub fn pod_spec(object: &Value, kind: WorkloadKind) -> &Value {
    kind.template().key("spec").find(object).unwrap_or(&Value::Null)
}

/// The pod's ServiceAccount. Without a name, Kubernetes uses `default`.
pub fn service_account(object: &Value, kind: WorkloadKind) -> &str {
    let spec = pod_spec(object, kind);
    let mut names = ["serviceAccountName", "serviceAccount"]
        .into_iter()
        .filter_map(|key| spec.get(key).and_then(Value::as_str));
    // Kubernetes uses the deprecated field if the other one is empty.
    names.find(|name| !name.is_empty()).unwrap_or("default")
}

/// The labels of the pods.
pub fn pod_labels(object: &Value, kind: WorkloadKind) -> BTreeMap<String, String> {
    let labels = kind.template().key("metadata").key("labels");
    let labels = labels.find(object).and_then(Value::as_object).into_iter().flatten();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_objects_and_paths_name_a_kind() {
        for word in ["deploy", "Deployment", "deployments"] {
            assert_eq!(WorkloadKind::of_word(word), Some(WorkloadKind::Deployment));
        }
        assert_eq!((WorkloadKind::of_word(""), WorkloadKind::of_word("service")), (None, None));
        for (kind, version, name, plural, _) in KINDS {
            let object = json!({"apiVersion": version, "kind": name});
            assert_eq!(WorkloadKind::of_object(&object), Some(kind));
            assert_eq!(kind.name(), name);
            assert_eq!(kind.plural(), plural);
        }
        assert_eq!((WorkloadKind::Pod.group(), WorkloadKind::Job.group()), ("", "batch"));
        let account = |spec| {
            let object = json!({ "spec": spec });
            service_account(&object, WorkloadKind::Pod).to_owned()
        };
        assert_eq!(account(json!({"serviceAccountName": "", "serviceAccount": "old"})), "old");
        assert_eq!(account(json!({"serviceAccountName": "a", "serviceAccount": "old"})), "a");
        assert_eq!(account(json!({})), "default");
        let other = json!({"apiVersion": "example.com/v1", "kind": "Deployment"});
        assert_eq!(WorkloadKind::of_object(&other), None);
    }
}
