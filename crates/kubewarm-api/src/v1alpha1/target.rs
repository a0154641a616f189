//! One entry of `spec.targets`. `kubectl explain` prints the doc comments of the fields.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::schema;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Resource with its namespaces, its selectors and the part of each object to keep.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
#[x_kube(
    validation = Rule::new("self.group == oldSelf.group && self.resource == oldSelf.resource && has(self.version) == has(oldSelf.version) && (!has(self.version) || self.version == oldSelf.version)")
        .message("group, version and resource of an existing target are immutable; delete the target, and add one with another name"),
    validation = Rule::new("!(self.group == '' && self.resource == 'secrets') || self.projection.type == 'Metadata' || self.secretData == 'Allow'")
        .message("secrets are cached as metadata only unless secretData is Allow"),
    validation = Rule::new("self.projection.type != 'Metadata' || !has(self.indexes) || self.indexes.all(i, i.fieldPath.startsWith('metadata.'))")
        .message("with projection Metadata, index paths must start with metadata.")
)]
pub struct TargetSpec {
    /// Name of the target in status and messages, unique within the profile: a DNS label of at most
    /// 63 characters, such as `orders`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// API group of the resource, such as `apps`. Immutable. Default: empty, the core group.
    #[serde(default)]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub group: String,

    /// API version of the resource, such as `v1`. Immutable. Default: the API server's preferred
    /// version, also after it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub version: Option<String>,

    /// Plural name of the resource, as in `kubectl api-resources`, such as `deployments`.
    /// Immutable: to change it, delete the target, and add one with another name. If the API
    /// server does not serve the resource yet, kubewarm waits for it.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub resource: String,

    /// Namespaces to list and watch. Default: `spec.scope`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeSpec>,

    /// Effect on the profile's condition `Ready`. `Required` (the default): `Ready` depends on the
    /// target. `Optional`: the target does not change `Ready`.
    #[serde(default)]
    pub requirement: TargetRequirement,

    /// Order of lists within the profile, 0 to 1000; higher values first. Default: 500.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,

    /// Permission to store the data of Secrets. `Deny` (the default): a target for secrets must set
    /// `projection.type` to `Metadata`. `Allow`: the target can store whole Secrets.
    #[serde(default)]
    pub secret_data: SecretDataPolicy,

    /// Label selector for the objects. Default: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelectorSpec>,

    /// Field selector as in `kubectl --field-selector`, such as `status.phase!=Succeeded`: 1 to 8
    /// requirements, at most 2048 bytes. The API server supports only some fields of each resource.
    /// Default: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub field_selector: Option<String>,

    /// Part of each object to store.
    #[serde(default)]
    pub projection: ProjectionSpec,

    /// Indexes of fields, 1 to 16. Clients of kubewarm select objects with
    /// `fieldSelector=index.kubewarm.io/<name>=<value>`. Labels and the field `spec.nodeName` of
    /// pods are always indexed. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub indexes: Vec<IndexSpec>,
}

/// Value of `spec.scope` and `spec.targets[].scope`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
#[x_kube(
    validation = Rule::new("(self.type == 'Namespaces') == has(self.namespaces)")
        .message("namespaces is required for, and only for, type Namespaces"),
    validation = Rule::new("(self.type == 'NamespaceSelector') == has(self.namespaceSelector)")
        .message("namespaceSelector is required for, and only for, type NamespaceSelector")
)]
pub struct ScopeSpec {
    /// Kind of scope. `OwnNamespace`: the profile's namespace. `Namespaces`: the entries of
    /// `namespaces`. `NamespaceSelector`: all current and future namespaces whose labels match
    /// `namespaceSelector`. `AllNamespaces`: all namespaces, with one watch. `Cluster`: for
    /// cluster-scoped resources, such as `nodes`.
    #[serde(rename = "type")]
    pub type_: ScopeType,

    /// Names of 1 to 64 namespaces; only for type `Namespaces`. kubewarm opens one watch in each
    /// namespace, and needs permissions only in these namespaces. kubewarm reports a namespace that
    /// does not exist, and waits for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub namespaces: Vec<String>,

    /// Label selector for namespaces; only for type `NamespaceSelector`. kubewarm opens one watch
    /// in each matching namespace. An empty selector matches all namespaces. Without a match, the
    /// target is warm without objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelectorSpec>,
}

/// Value of `scope.type`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum ScopeType {
    /// The namespace of the profile.
    #[default]
    OwnNamespace,
    /// The namespaces that `scope.namespaces` lists.
    Namespaces,
    /// The namespaces whose labels match `scope.namespaceSelector`.
    NamespaceSelector,
    /// All namespaces, by one cluster-wide watch.
    AllNamespaces,
    /// The cluster, for cluster-scoped resources.
    Cluster,
}

/// Value of `spec.targets[].requirement`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum TargetRequirement {
    /// The condition `Ready` depends on the target.
    #[default]
    Required,
    /// The condition `Ready` ignores the target.
    Optional,
}

/// Value of `spec.targets[].secretData`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    JsonSchema,
    Serialize,
)]
#[schemars(inline)]
pub enum SecretDataPolicy {
    /// kubewarm stores only the metadata of Secrets.
    #[default]
    Deny,
    /// kubewarm can store whole Secrets.
    Allow,
}

/// Label selector. An object matches if it matches all of `matchLabels` and all of
/// `matchExpressions`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd, extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelectorSpec {
    /// Required labels and their values, at most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 16,
        "additionalProperties" = { "type": "string", "maxLength": 63 }
    ))]
    pub match_labels: BTreeMap<String, String>,

    /// Requirements on labels, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Requirement on one label.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct LabelSelectorRequirement {
    /// Key of the label, `[prefix/]name`, at most 317 characters.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,

    /// Comparison. `In`: the value is one of `values`. `NotIn`: the value is not one of `values`,
    /// or the label is absent. `Exists`: the label is present. `DoesNotExist`: the label is absent.
    pub operator: LabelSelectorOperator,

    /// Values, at most 32; required for `In` and `NotIn`, otherwise not allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub values: Vec<String>,
}

/// Comparison of a label's value with `values`, as in `metav1.LabelSelectorOperator`.
#[derive(
    Clone,
    Copy,
    Debug,
    Eq,
    PartialEq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    JsonSchema,
    Serialize,
    strum::Display,
)]
#[schemars(inline)]
pub enum LabelSelectorOperator {
    /// The label's value is in `values`.
    In,
    /// The label's value is not in `values`, or the label is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Value of `spec.targets[].projection`.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct ProjectionSpec {
    /// Part of each object to store. `Full` (the default): the whole object. `Metadata`: only
    /// `metadata`, which needs less memory and traffic.
    #[serde(rename = "type")]
    pub type_: ProjectionType,

    /// Storage of `metadata.managedFields`. `Keep` (the default): stored. `Drop`: not stored, which
    /// saves memory; a client that reads an object and applies what it extracts then removes its
    /// own fields. For secrets without `secretData: Allow`, kubewarm stores no managedFields.
    pub managed_fields: ManagedFieldsPolicy,
}

/// Value of `projection.type`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum ProjectionType {
    /// kubewarm stores the whole object.
    #[default]
    Full,
    /// kubewarm requests and stores only `metadata`.
    Metadata,
}

/// Value of `projection.managedFields`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    JsonSchema,
    Serialize,
)]
#[schemars(inline)]
pub enum ManagedFieldsPolicy {
    /// kubewarm removes `metadata.managedFields` before it stores an object.
    Drop,
    /// kubewarm stores `metadata.managedFields`.
    #[default]
    Keep,
}

/// A field to index, and the name with which clients select objects by this field.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct IndexSpec {
    /// Name of the index, unique within the target: a DNS label of at most 63 characters.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Path of the field from the object's root, at most 128 characters, such as `spec.nodeName`.
    /// `[*]` stands for every list element, as in `spec.containers[*].image`. With projection
    /// `Metadata`, the path must start with `metadata.`.
    #[schemars(
        length(min = 1, max = 128),
        regex(
            pattern = r"^[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?)*$"
        )
    )]
    pub field_path: String,
}

fn default_priority() -> i32 {
    500
}
