//! `status.access` of a `CacheProfile`: the permissions that the profile needs, lacks or has in
//! excess.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permissions of the subject that reads for a profile: missing and excess permissions, and YAML
/// that grants the needed permissions.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct AccessStatus {
    /// User name of the reader at the API server: kubewarm's own, or that of the ServiceAccount in
    /// `spec.serviceAccountName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub subject: Option<String>,

    /// Time of the oldest check that these facts rest on. It is written only along with other
    /// changes. Absent until every informer has been checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified_time: Option<Time>,

    /// Permissions that the API server refuses, by namespace: at most 128 namespaces, with 32 rules
    /// each. Absent while none is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub missing: Vec<NamespaceRules>,

    /// Excess permissions: what the subject may list and watch in the profile's namespaces although
    /// no profile with this subject needs it. At most 128 namespaces, with 32 rules each. Left out is
    /// only `clustertrustbundles`, which Kubernetes lets every user read. The operator's own excess
    /// is shown in profiles of its namespace alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub excess: Vec<NamespaceRules>,

    /// Completeness of `excess`. `Incomplete` where an authorizer, such as a webhook, cannot list its
    /// rules, and where `excess` is cut. Absent while the rules are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_completeness: Option<RulesCompleteness>,

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

/// Whether a list of permissions is complete.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum RulesCompleteness {
    /// Every authorizer listed the permissions that it grants.
    Complete,
    /// The list can lack permissions, or contain permissions that an authorizer denies, because
    /// webhook authorizers list no rules. Or the list is cut at a limit.
    Incomplete,
}

/// Rules of one namespace.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct NamespaceRules {
    /// Namespace; empty for the whole cluster.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Rules as in a Role, at most 32.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rules: Vec<PolicyRule>,
}

/// A rule, as in a Role.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct PolicyRule {
    /// API groups, at most 4. The empty string is the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub api_groups: Vec<String>,

    /// Plural names of the kinds, at most 32.
    #[schemars(length(max = 32), inner(length(max = 128)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resources: Vec<String>,

    /// Names of the objects, at most 64. Empty for all objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub resource_names: Vec<String>,

    /// Verbs, at most 8.
    #[schemars(length(max = 8), inner(length(max = 16)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub verbs: Vec<String>,
}
