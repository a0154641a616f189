//! One entry of `spec.targets`; the comments on fields are what `kubectl explain` prints.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::schema;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kind, where to look for it, and what to keep of it.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
#[x_kube(
    validation = Rule::new("self.group == oldSelf.group && self.resource == oldSelf.resource && has(self.version) == has(oldSelf.version) && (!has(self.version) || self.version == oldSelf.version)")
        .message("group, version and resource of an existing target are immutable; add a target with another name"),
    validation = Rule::new("!(self.group == '' && self.resource == 'secrets') || self.projection.type == 'Metadata' || self.secretData == 'Allow'")
        .message("secrets are cached as metadata only unless secretData is Allow"),
    validation = Rule::new("self.projection.type != 'Metadata' || !has(self.indexes) || self.indexes.all(i, i.fieldPath.startsWith('metadata.'))")
        .message("with projection Metadata, index paths must start with metadata.")
)]
pub struct Target {
    /// Name of the target in the profile, its status and messages: a DNS label of at most 63
    /// characters, such as `orders`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// API group of the resource, such as `apps`. Default: empty, the core group. Immutable.
    #[serde(default)]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub group: String,

    /// API version of the resource, such as `v1`. Default: the version that the API server prefers,
    /// also when that changes. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub version: Option<String>,

    /// Plural name of the resource in lower case, such as `deployments`, as
    /// `kubectl api-resources` lists it. If the API server does not serve the resource yet, the
    /// target warms as soon as it does. Immutable: to change the resource, remove the target and
    /// add one with another name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub resource: String,

    /// Namespaces to list and watch. Replaces `spec.scope` for this target. Default: `spec.scope`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,

    /// Effect of the target on `Ready`. `Required`: the profile is `Ready` only while this target is
    /// warm and fresh. `Optional`: the target never blocks `Ready`. Default: `Required`.
    #[serde(default)]
    pub requirement: Requirement,

    /// Priority of the first list within the profile, 0 to 1000. Higher priorities warm first.
    /// Default: 500.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,

    /// Permission to keep the data of Secrets in kubewarm's memory. `Deny`: a target of secrets must
    /// set `projection.type` to `Metadata`. `Allow`: the target may keep whole Secrets. Default:
    /// `Deny`.
    #[serde(default)]
    pub secret_data: SecretData,

    /// Label selector of the objects. The API server filters. Default: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,

    /// Field selector as in `kubectl --field-selector`, such as `status.phase!=Succeeded`, with 1
    /// to 8 requirements and at most 2048 bytes. The API server filters, and the resource decides
    /// which fields are possible. Default: all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub field_selector: Option<String>,

    /// Part of each object to keep.
    #[serde(default)]
    pub projection: Projection,

    /// Indexes of fields, 1 to 16. Readers select with
    /// `fieldSelector=index.kubewarm.io/<name>=<value>`. Labels need no entry: they are always
    /// indexed. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub indexes: Vec<Index>,
}

/// Where to look.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
#[x_kube(
    validation = Rule::new("(self.type == 'Namespaces') == has(self.namespaces)")
        .message("namespaces is required for, and only for, type Namespaces"),
    validation = Rule::new("(self.type == 'NamespaceSelector') == has(self.namespaceSelector)")
        .message("namespaceSelector is required for, and only for, type NamespaceSelector")
)]
pub struct Scope {
    /// Type of the scope. `OwnNamespace`: the profile's namespace. `Namespaces`: the names in
    /// `namespaces`. `NamespaceSelector`: all namespaces whose labels match `namespaceSelector`, also
    /// later ones. `AllNamespaces`: every namespace, by one watch across the cluster. `Cluster`: for
    /// cluster-scoped kinds, such as `nodes`.
    #[serde(rename = "type")]
    pub type_: ScopeType,

    /// Names of the namespaces, 1 to 64, for type `Namespaces` only. kubewarm watches each namespace
    /// separately and needs permissions only there. It reports a missing namespace and waits for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub namespaces: Vec<String>,

    /// Label selector of the namespaces, for type `NamespaceSelector` only. kubewarm watches each
    /// namespace separately. An empty selector matches all namespaces. A target whose selector
    /// matches none is warm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// Where to look.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum ScopeType {
    /// The profile's namespace.
    #[default]
    OwnNamespace,
    /// Listed namespaces.
    Namespaces,
    /// Namespaces by label.
    NamespaceSelector,
    /// Every namespace.
    AllNamespaces,
    /// For kinds that live in no namespace.
    Cluster,
}

/// Whether `Ready` depends on a target.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum Requirement {
    /// It does.
    #[default]
    Required,
    /// It does not.
    Optional,
}

/// Whether the payload of secrets may be held.
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
pub enum SecretData {
    /// Metadata only.
    #[default]
    Deny,
    /// Whole.
    Allow,
}

/// Labels to match; all of `matchLabels` and `matchExpressions`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd, extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels and the value that each must have, at most 16.
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
    pub match_expressions: Vec<LabelSelectorTerm>,
}

/// A requirement on one label.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct LabelSelectorTerm {
    /// Key of the label: `[prefix/]name`, at most 317 characters.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,

    /// Comparison. `In`: the label's value is one of `values`. `NotIn`: the value is none of
    /// `values`, or the label is absent. `Exists`: the label is present. `DoesNotExist`: the label is
    /// absent.
    pub operator: Operator,

    /// Values, at most 32; required for `In` and `NotIn`, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub values: Vec<String>,
}

/// What a requirement asks of a label.
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
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or absent.
    NotIn,
    /// There.
    Exists,
    /// Absent.
    DoesNotExist,
}

/// Which part of each object is kept.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct Projection {
    /// Part of each object to keep. `Full`: the whole object. `Metadata`: only `metadata`, which
    /// kubewarm requests as PartialObjectMetadata; it takes less memory and traffic. Default: `Full`.
    #[serde(rename = "type")]
    pub type_: ProjectionType,

    /// Treatment of `metadata.managedFields`, often a third of an object. `Drop`: kubewarm does not
    /// store it. `Keep`: kubewarm stores it. Default: `Drop`.
    pub managed_fields: ManagedFields,
}

/// Which part of each object is kept.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum ProjectionType {
    /// The whole object.
    #[default]
    Full,
    /// `metadata` only.
    Metadata,
}

/// Whether `metadata.managedFields` is stored.
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
pub enum ManagedFields {
    /// Cut out before storing.
    #[default]
    Drop,
    /// Stored.
    Keep,
}

/// Index of one field.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct Index {
    /// Name of the index, unique within the target: a DNS label of at most 63 characters. Readers
    /// select with `index.kubewarm.io/<name>`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Path of the field from the root of the object, at most 128 characters, such as
    /// `spec.nodeName`. `[*]` stands for every element of a list, as in
    /// `spec.containers[*].image`. With projection `Metadata` it must start with `metadata.`.
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
