//! `status.access`: the permissions that a profile needs, and what is known of them.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The permissions that a profile needs.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct AccessStatus {
    /// Who needs them: the user name that the API server knows whoever reads by, which is kubewarm
    /// itself, or the ServiceAccount that the profile names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub subject: Option<String>,

    /// Since when at least each cell's permissions have been known as they are shown here. Written
    /// along with other changes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified_time: Option<Time>,

    /// Permissions that the API server refuses, by namespace: at most 128 namespaces, with 32 rules
    /// each. Absent while none is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub missing: Vec<NamespaceRules>,

    /// What the subject may list and watch in the namespaces of this profile although no profile
    /// with this subject needs it. Left out is only `clustertrustbundles`, which the default roles
    /// of Kubernetes let everybody read; what other roles grant to everybody is shown. That of the
    /// operator itself is shown in profiles of its own namespace only. At most 128 namespaces, with
    /// 32 rules each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub excess: Vec<NamespaceRules>,

    /// Whether `excess` is all there is. `Incomplete` where the API server cannot say, as with a
    /// webhook for authorization, and where it is more than fits. Absent while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_completeness: Option<Completeness>,

    /// YAML that grants the permissions, for `kubectl apply -f -`: roles and bindings, except those in
    /// `manifestsElevated`. With `spec.serviceAccountName` it has the Role that lets kubewarm request
    /// tokens of that account. Absent if both texts have more than 64 KiB together;
    /// `kubectl warm rbac NAME -n NAMESPACE` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub manifests: Option<String>,

    /// YAML that grants access to secrets and, with `spec.serviceAccountName`, outside the profile's
    /// namespace. Review these grants: anyone who may run pods or request tokens in that namespace
    /// gains them. Absent if there are none, and wherever `manifests` is left out for its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub manifests_elevated: Option<String>,
}

/// Whether a list of permissions is all there is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum Completeness {
    /// Every authorizer listed what it allows.
    Complete,
    /// The list may lack permissions, or hold some that are refused: webhooks list none.
    Incomplete,
}

/// Rules of one namespace.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct NamespaceRules {
    /// The namespace; empty for the whole cluster.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// The rules, at most 32, as in a Role.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rules: Vec<PolicyRule>,
}

/// A rule, as in a Role.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct PolicyRule {
    /// The API groups, at most 4; the empty one is the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub api_groups: Vec<String>,

    /// The kinds, by their plural names, at most 32.
    #[schemars(length(max = 32), inner(length(max = 128)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resources: Vec<String>,

    /// Only objects of these names, at most 64. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resource_names: Vec<String>,

    /// What must be allowed, at most 8 verbs.
    #[schemars(length(max = 8), inner(length(max = 16)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub verbs: Vec<String>,
}
