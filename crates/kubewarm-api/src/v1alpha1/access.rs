//! `status.access` of a `CacheProfile`: the permissions that the profile needs or lacks, and the
//! unneeded permissions of its identity.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permissions of the subject with which kubewarm reads for a profile: missing and excess
/// permissions. Also YAML that grants the needed permissions.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct AccessStatus {
    /// User name of the operator, or of the ServiceAccount in `spec.serviceAccountName`, with which
    /// kubewarm reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub subject: Option<String>,

    /// Time since which kubewarm has checked the permissions of each of the profile's informers.
    /// kubewarm writes a new time only together with another change of the status. Absent until
    /// kubewarm has checked every informer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified_time: Option<Time>,

    /// Permissions that the subject needs and lacks, by namespace: at most 128 namespaces, with 128
    /// rules each. Absent if the subject lacks no permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub missing: Vec<NamespaceRules>,

    /// Permissions to list or watch that the subject has, but does not need for any profile.
    /// Contains only the namespaces from which kubewarm reads for this profile: at most 128
    /// namespaces, with 32 rules each. kubewarm omits only `clustertrustbundles`, which every user
    /// can list and watch by default. Only profiles in the operator namespace show excess
    /// permissions of the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into()]))]
    pub excess: Vec<NamespaceRules>,

    /// Completeness of `excess`. `Incomplete`: an authorizer, such as a webhook, cannot list its
    /// rules, or kubewarm cut `excess` at a size limit. Absent while kubewarm does not report
    /// `excess`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_completeness: Option<RulesCompleteness>,

    /// Roles and bindings that grant the needed permissions, as YAML for `kubectl apply -f -`.
    /// `manifestsElevated` contains further grants. With `spec.serviceAccountName`, a Role also
    /// permits kubewarm to request tokens of this ServiceAccount. Absent if `manifests` and
    /// `manifestsElevated` together exceed 64 KiB. In this case, `kubectl warm rbac` prints
    /// the YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub manifests: Option<String>,

    /// YAML that grants access to secrets and, with `spec.serviceAccountName`, access outside the
    /// profile's namespace. Review this YAML before you apply it: anyone who may run pods or
    /// request tokens in the profile's namespace gains this access. Absent if the profile needs no
    /// such access. Also absent if `manifests` and `manifestsElevated` together exceed 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub manifests_elevated: Option<String>,
}

/// Whether a list of permissions is complete.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum RulesCompleteness {
    /// Every authorizer of the API server listed the permissions that it grants.
    Complete,
    /// The list of permissions can be wrong, because webhook authorizers do not list the
    /// permissions that they grant or deny. Or kubewarm cut the list at a size limit.
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

    /// Rules as in a Role, at most 128.
    #[schemars(length(max = 128))]
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

    /// Plural names of the resources, at most 128.
    #[schemars(length(max = 128), inner(length(max = 128)))]
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
