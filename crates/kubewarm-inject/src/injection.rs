//! What an injection changes in an object, and how it is undone.

use crate::{
    field_change::{ChangedField, FieldChange, Removal, RemovedPart},
    manifest_path::ManifestPath,
    workload::WorkloadKind,
};
use kubewarm_api::manifests::API_CA;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;

/// The annotation of injected pod templates, and so of injected pods. Its value is the injection as
/// JSON, from which `--undo` restores the object.
pub const INJECTION: &str = "kubewarm.io/inject";
/// Where client libraries read the token and the CA. Source: "Accessing the API from within a Pod",
/// and the same constant in client-go's `rest.InClusterConfig`.
pub(crate) const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Name of the volume with the token and the CAs.
const VOLUME: &str = "kubewarm-api-access";
/// The API server's host name in a cluster. kubewarm's certificate contains it.
pub const API_SERVER_HOST: &str = "kubernetes.default.svc";
/// Lifetime of the token, in seconds. With 3,607, the value of the volume that Kubernetes adds
/// itself, the API server would issue a token that is valid for a year.
const TOKEN_SECONDS: u32 = 3_600;

/// Maximum number of changes in an annotation. A hundred containers need about 500.
const MAX_CHANGES: usize = 512;

/// Variables that in-cluster configurations read.
pub(crate) const VARIABLES: [(&str, &str); 3] = [
    ("KUBERNETES_SERVICE_HOST", API_SERVER_HOST),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
];

/// Where injected pods reach kubewarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedAddress {
    /// The cluster IPs of kubewarm's Service, one of each address family.
    pub ips: Vec<IpAddr>,
    /// The cluster's DNS domain, such as `cluster.local`.
    pub domain: String,
}

impl InjectedAddress {
    /// The four names of the API server.
    pub fn names(&self) -> [String; 4] {
        let names = ["kubernetes", "kubernetes.default", API_SERVER_HOST].map(str::to_owned);
        let [short, namespaced, host] = names;
        let long = format!("{host}.{}", self.domain);
        [short, namespaced, host, long]
    }
}

/// The changes of an injected object, as the annotation contains them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// The version of kubewarm that changed the object.
    pub version: String,
    /// The addresses in the host aliases.
    pub ips: Vec<IpAddr>,
    changes: Vec<FieldChange>,
    /// What the annotation needed: the template's metadata, or the annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<CreatedParent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CreatedParent {
    Metadata,
    Annotations,
    /// The annotations were null.
    NullAnnotations,
}

impl Injection {
    /// Plans the injection of `object`, whose refusals the caller has checked. The plan omits what
    /// the object already has.
    pub(crate) fn plan(object: &Value, kind: WorkloadKind, address: &InjectedAddress) -> Self {
        let template = kind.template();
        let spec = template.key("spec");
        let mut changes = Vec::new();
        let aliases = address.ips.iter();
        let aliases = aliases.map(|ip| json!({"ip": ip, "hostnames": address.names()})).collect();
        changes.extend(FieldChange::of_list(object, &spec, "hostAliases", aliases));
        changes.extend(FieldChange::of_list(object, &spec, "volumes", vec![volume()]));
        for container in containers(object, &spec) {
            let has = |name| is_set(container.find(object), name);
            let missing = VARIABLES.into_iter().filter(|(name, _)| !has(name));
            let variables = missing.map(|(name, value)| json!({"name": name, "value": value}));
            changes.extend(FieldChange::of_list(object, &container, "env", variables.collect()));
            let mount = json!({"name": VOLUME, "mountPath": MOUNT, "readOnly": true});
            changes.extend(FieldChange::of_list(object, &container, "volumeMounts", vec![mount]));
        }
        let metadata = template.key("metadata");
        let created = match (metadata.find(object), metadata.key("annotations").find(object)) {
            (None | Some(Value::Null), _) => Some(CreatedParent::Metadata),
            (_, None) => Some(CreatedParent::Annotations),
            (_, Some(Value::Null)) => Some(CreatedParent::NullAnnotations),
            _ => None,
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, ips: address.ips.clone(), changes, created }
    }

    /// The injection of `object`, or `None` if the object is not injected.
    ///
    /// # Errors
    ///
    /// [`ChangedField`] if the annotation cannot be read.
    pub fn of_object(object: &Value, kind: WorkloadKind) -> Result<Option<Self>, ChangedField> {
        let annotations = kind.template().key("metadata").key("annotations");
        let Some(text) = annotations.find(object).and_then(|all| all.get(INJECTION)) else {
            return Ok(None);
        };
        let field = || format!("{annotations}.{INJECTION}");
        let parsed = text.as_str().and_then(|text| serde_json::from_str::<Self>(text).ok());
        // Anybody can write an annotation, which must not name other fields for removal.
        let parsed = parsed.filter(|parsed| parsed.is_of_inject(kind));
        parsed.map(Some).ok_or_else(|| ChangedField { field: field() })
    }

    /// Whether an injection can have made the changes. An injection changes only the pod template,
    /// and adds only its own names.
    fn is_of_inject(&self, kind: WorkloadKind) -> bool {
        let spec = format!("{}.", kind.template().key("spec"));
        let has = |value: &Value, key: &str, names: &[&str]| {
            value.get(key).and_then(Value::as_str).is_some_and(|name| names.contains(&name))
        };
        let is_ours = |change: &FieldChange| {
            let (field, values) = change.additions();
            let is_added = |value: &Value| match field {
                Some("hostAliases") => {
                    let names = value.get("hostnames").and_then(Value::as_array);
                    names.is_some_and(|names| names.iter().any(|name| name == API_SERVER_HOST))
                }
                Some("volumes" | "volumeMounts") => has(value, "name", &[VOLUME]),
                Some("env") => has(value, "name", &VARIABLES.map(|(name, _)| name)),
                Some(_) | None => false,
            };
            format!("{}.", change.at).starts_with(&spec)
                && !values.is_empty()
                && values.iter().all(is_added)
        };
        self.changes.len() <= MAX_CHANGES && self.changes.iter().all(is_ours)
    }

    /// A line for each added field, with its path and value. The annotation is not among them.
    pub fn lines(&self) -> Vec<String> {
        let line = |change: &FieldChange| match &change.set {
            Some(key) => format!("{}: {}", change.at.key(key), change.value),
            None => format!("{}[]: {}", change.at, change.value),
        };
        self.changes.iter().map(line).collect()
    }

    /// All changes, with the annotation as the last one.
    pub(crate) fn additions(&self, kind: WorkloadKind) -> Vec<FieldChange> {
        let text = serde_json::to_string(self).unwrap_or_default();
        let annotation = json!({ INJECTION: text });
        let template = kind.template();
        let metadata = template.key("metadata");
        let (at, key, value) = match self.created {
            Some(CreatedParent::Metadata) => {
                (template, "metadata", json!({ "annotations": annotation }))
            }
            Some(CreatedParent::Annotations | CreatedParent::NullAnnotations) => {
                (metadata, "annotations", annotation)
            }
            None => (metadata.key("annotations"), INJECTION, Value::String(text)),
        };
        let was_null = self.created == Some(CreatedParent::NullAnnotations);
        let annotation = FieldChange { at, set: Some(key.to_owned()), value, was_null };
        self.changes.iter().cloned().chain([annotation]).collect()
    }

    /// Changes `object`.
    pub(crate) fn apply(&self, object: &mut Value, kind: WorkloadKind) {
        for change in self.additions(kind) {
            change.apply(object);
        }
    }

    /// Removes the injection from a copy of `object`. Returns the copy and the removals, in order.
    ///
    /// # Errors
    ///
    /// [`ChangedField`] with the first field that somebody changed since.
    pub(crate) fn undo(
        &self,
        object: &Value,
        kind: WorkloadKind,
    ) -> Result<(Value, Vec<Removal>), ChangedField> {
        let (mut restored, mut all) = (object.clone(), Vec::new());
        let mut remove = |removal: Removal, restored: &mut Value| {
            removal.apply(restored);
            all.push(removal);
        };
        for change in self.changes.iter().rev() {
            for removal in change.removals(&restored)? {
                remove(removal, &mut restored);
            }
        }
        let template = kind.template();
        let metadata = template.key("metadata");
        let annotations = metadata.key("annotations");
        let key = |at: &ManifestPath, key: &str| Removal {
            at: at.clone(),
            what: RemovedPart::Key(key.to_owned()),
        };
        remove(key(&annotations, INJECTION), &mut restored);
        // Others can have added annotations or labels since.
        let is_empty = |path: &ManifestPath, object: &Value| match path.find(object) {
            Some(Value::Object(mapping)) => mapping.is_empty(),
            Some(_) => false,
            None => true,
        };
        if self.created == Some(CreatedParent::NullAnnotations) && is_empty(&annotations, &restored)
        {
            let what = RemovedPart::Value("annotations".to_owned());
            remove(Removal { at: metadata.clone(), what }, &mut restored);
        } else if self.created.is_some() && is_empty(&annotations, &restored) {
            remove(key(&metadata, "annotations"), &mut restored);
        }
        if self.created == Some(CreatedParent::Metadata) && is_empty(&metadata, &restored) {
            remove(key(&template, "metadata"), &mut restored);
        }
        Ok((restored, all))
    }
}

/// Paths of the containers and init containers with a name.
pub(crate) fn containers(object: &Value, spec: &ManifestPath) -> Vec<ManifestPath> {
    let lists = ["initContainers", "containers"].into_iter();
    let of_list = lists.flat_map(|key| {
        let list = spec.key(key);
        let items = list.find(object).and_then(Value::as_array);
        let names = items.into_iter().flatten().filter_map(|item| item.get("name")?.as_str());
        names.map(|name| spec.named(key, name)).collect::<Vec<_>>()
    });
    of_list.collect()
}

/// Whether the container sets the environment variable.
fn is_set(container: Option<&Value>, name: &str) -> bool {
    let variables = container.and_then(|container| container.get("env")?.as_array());
    variables.into_iter().flatten().any(|one| one.get("name").and_then(Value::as_str) == Some(name))
}

/// The volume contains all values that the API server would add as defaults, so that a live object
/// still contains exactly this volume.
fn volume() -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({"name": VOLUME, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": API_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]}})
}
