//! The status of a `CacheProfile`. `kubectl explain` prints the doc comments of the fields.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use super::{PlanStatus, access::AccessStatus, profile::MAX_TARGETS, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of the profile that kubewarm last observed. The kubewarm replica that holds the Lease
/// writes the status, at most once in 10 seconds unless a condition changes.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct CacheProfileStatus {
    /// Conditions of the profile. `Ready` summarizes the other conditions. `Accepted`: kubewarm can
    /// carry out the spec. `Authorized`: the API server allows every list and watch. `Warm`:
    /// kubewarm has a complete list of every required target. `Fresh`: kubewarm has confirmed
    /// within `freshness.maxStalenessSeconds` that the stores are current. `WithinLimits`: no limit
    /// stopped a target. `WarmupDeadlineMet`: all required targets were warm within
    /// `warmup.deadlineSeconds`. `Stalled`: the profile has a problem that only an edit of the spec
    /// resolves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Number of warm targets (those with a complete list), and number of all targets, such as
    /// `2/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub warm_targets: Option<String>,

    /// Number of objects in the profile's stores. Includes objects in stores that other profiles
    /// share. kubewarm updates the number at most once a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub objects: Option<i64>,

    /// Memory of the profile's objects and indexes, in steps of 1 MiB, such as `24Mi`. Includes
    /// memory of stores that other profiles of the namespace share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub memory: Option<String>,

    /// Time until all required targets were warm, in milliseconds. Measured from the time at which
    /// kubewarm accepted the current spec, or from a later start of the process. Absent until all
    /// required targets are warm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub time_to_warm_milliseconds: Option<i64>,

    /// State of each target, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_TARGETS))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<TargetStatus>,

    /// Permissions that this profile needs, and YAML manifests that grant exactly these
    /// permissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessStatus>,

    /// Expected cost of warming the profile. Absent unless `spec.mode` is `Plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
}

/// The state of one target.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct TargetStatus {
    /// Name of the target in the spec.
    #[schemars(length(max = 63))]
    pub name: String,

    /// Conditions of the target: `Accepted`, `Warm`, `Fresh` and `WithinLimits`, with the same
    /// meanings as the conditions of the profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The profile's `metadata.generation` to which the served objects belong. While an edited
    /// target warms, this is an older generation. Absent before the first complete list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub serving_generation: Option<i64>,

    /// Number of objects in the target's stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub objects: Option<i64>,

    /// Memory of the target's objects and indexes, in steps of 1 MiB, such as `24Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub memory: Option<String>,

    /// Time until the target was warm, in milliseconds. Measured from the time at which kubewarm
    /// accepted the current spec, or from a later start of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub time_to_warm_milliseconds: Option<i64>,

    /// Last time at which kubewarm confirmed that the target's stores are current. Absent unless
    /// the condition `Fresh` is `False`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_confirmed_time: Option<Time>,

    /// Problems of the target, at most 16, the most severe problem first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".into(), "reason".into(), "object".into()]))]
    pub problems: Vec<TargetProblem>,

    /// The API server's description of the target's resource, from discovery. Absent while the API
    /// server does not serve the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedResourceStatus>,

    /// Number of the target's informers, by state. An informer is one list and one watch, in one
    /// namespace or across the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub informers: Option<InformerCounts>,

    /// Latencies over the last 5 minutes. Absent if kubewarm measured no latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_milliseconds: Option<LatencyStatus>,

    /// The most recent list by an informer that was already warm. Absent if no warm informer has
    /// listed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_relist: Option<RelistStatus>,
}

/// A problem of a target.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct TargetProblem {
    /// Namespace with the problem. Empty for a watch of all namespaces, and for cluster-scoped
    /// resources.
    #[schemars(length(max = 63))]
    pub namespace: String,

    /// Reason, as one word, such as `Forbidden`.
    #[schemars(length(max = 63))]
    pub reason: String,

    /// Object with the problem, as `namespace/name`. Empty if the problem does not concern a single
    /// object.
    #[schemars(length(max = 253))]
    pub object: String,

    /// Explanation of the problem: the verb, the resource, the API server's message, and what to
    /// do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,

    /// Time of kubewarm's next attempt to resolve the problem. Absent while an attempt is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_time: Option<Time>,
}

/// The API server's description of a target's resource, from discovery.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct ResolvedResourceStatus {
    /// API version that kubewarm reads: the version in the spec, or by default the API server's
    /// preferred version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,

    /// Kind, such as `Deployment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,

    /// Scope of the kind: `Namespaced` if its objects are in namespaces, else `Cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ResourceScope>,

    /// Number of namespaces from which kubewarm reads for the target now. Absent unless the scope
    /// type is `Namespaces` or `NamespaceSelector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub namespace_count: Option<i32>,
}

/// Whether objects of a kind are in namespaces: value of `status.targets[].resolved.scope`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum ResourceScope {
    /// Each object of the kind is in a namespace.
    Namespaced,
    /// The kind is cluster-scoped.
    Cluster,
}

/// Informers by state. Each informer counts once, in the first state that applies, in the order
/// `limited`, `forbidden`, `missing`, `failing`, `syncing`, `stale`, `synced`.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_status)]
pub struct InformerCounts {
    /// Number of declared informers.
    #[schemars(range(min = 0))]
    pub total: i32,
    /// Informers with a complete list whose stores are fresh.
    #[schemars(range(min = 0))]
    pub synced: i32,
    /// Informers before or during their first list.
    #[schemars(range(min = 0))]
    pub syncing: i32,
    /// Informers with a complete list whose stores are stale.
    #[schemars(range(min = 0))]
    pub stale: i32,
    /// Informers without the permission to list or watch.
    #[schemars(range(min = 0))]
    pub forbidden: i32,
    /// Informers whose kind or namespace does not exist in the cluster now.
    #[schemars(range(min = 0))]
    pub missing: i32,
    /// Informers that a limit stopped.
    #[schemars(range(min = 0))]
    pub limited: i32,
    /// Informers without a complete list whose last request failed for a reason other than
    /// `forbidden` or `missing`.
    #[schemars(range(min = 0))]
    pub failing: i32,
}

/// Latencies over the last 5 minutes, in milliseconds.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_crd)]
pub struct LatencyStatus {
    /// Latency of a list, or of one page of a paged list, from the request to the last byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_page: Option<QuantilesStatus>,
    /// Latency of a watch event, from its last byte until the store contains the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<QuantilesStatus>,
    /// Latency of a client's read, from the permission check to the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<QuantilesStatus>,
}

/// Median and 99th percentile of a latency, in milliseconds.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_status)]
pub struct QuantilesStatus {
    /// Median.
    #[schemars(range(min = 0))]
    pub p50: i32,
    /// 99th percentile.
    #[schemars(range(min = 0))]
    pub p99: i32,
}

/// The most recent list by an informer that was already warm: its time, its reason, and the numbers
/// of replaced and deleted objects.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, transform = schema::for_status)]
pub struct RelistStatus {
    /// Time at which the list was complete.
    pub time: Time,
    /// Reason for the list, as one word, such as `Gone`.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// Number of objects that were deleted and created again with the same name while no watch was
    /// open. The new object has another UID.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replaced_objects: i64,
    /// Number of objects that were deleted, and not created again with the same name, while no
    /// watch was open.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub deleted_objects: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    #[test]
    fn an_empty_status_is_an_empty_object() {
        assert_eq!(serde_json::to_value(CacheProfileStatus::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_relist_that_lost_nothing_says_so() {
        let relist = RelistStatus {
            time: Time(Timestamp::UNIX_EPOCH),
            reason: "Gone".to_owned(),
            replaced_objects: 0,
            deleted_objects: 0,
        };
        let expected = json!({
            "time": "1970-01-01T00:00:00Z",
            "reason": "Gone",
            "replacedObjects": 0,
            "deletedObjects": 0,
        });
        assert_eq!(serde_json::to_value(&relist).unwrap(), expected);
    }
}
