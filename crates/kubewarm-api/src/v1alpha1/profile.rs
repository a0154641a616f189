//! `CacheProfile` and its spec. `kubectl explain` prints the doc comments of the fields.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]
#![expect(clippy::duplicated_attributes, reason = "print columns share types and priorities")]

use super::{LimitsSpec, ScopeSpec, TargetSpec, schema, status::CacheProfileStatus};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of entries in `spec.targets`. A program that reads 57 kinds was seen, and a
/// status with 128 targets fits into etcd's limit on objects.
pub const MAX_TARGETS: usize = 128;

/// Resources to keep warm, and settings for lists, freshness, reads and limits.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "kubewarm.io",
    version = "v1alpha1",
    kind = "CacheProfile",
    plural = "cacheprofiles",
    namespaced,
    doc = "A CacheProfile lists resources that kubewarm keeps in memory. kubewarm lists and watches them, and reports their state, their size and the required permissions in status.",
    status = "CacheProfileStatus",
    derive = "PartialEq",
    shortname = "cprof",
    category = "kubewarm",
    selectable = ".spec.serviceAccountName",
    selectable = ".spec.mode",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "Whether every required target is warm and fresh"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Reason of the condition Ready"
    ),
    printcolumn(
        name = "Warm",
        type_ = "string",
        json_path = ".status.warmTargets",
        description = "Warm targets out of all targets"
    ),
    printcolumn(
        name = "Objects",
        type_ = "integer",
        json_path = ".status.objects",
        description = "Number of objects in the profile's stores"
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.memory",
        description = "Memory of these objects"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Fresh",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Fresh')].status",
        description = "Whether the data is known to be current",
        priority = 1
    ),
    printcolumn(
        name = "Authorized",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Authorized')].status",
        description = "Whether the API server allows every list and watch",
        priority = 1
    ),
    printcolumn(
        name = "ServiceAccount",
        type_ = "string",
        json_path = ".spec.serviceAccountName",
        description = "ServiceAccount that reads; empty for the operator itself",
        priority = 1
    ),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "Mode of the profile: Active, Plan or Paused",
        priority = 1
    ),
    printcolumn(
        name = "Time-To-Warm-Ms",
        type_ = "integer",
        json_path = ".status.timeToWarmMilliseconds",
        description = "Milliseconds until the last required target was warm",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::for_crd)]
pub struct CacheProfileSpec {
    /// Name of the ServiceAccount, in the profile's namespace, with which kubewarm reads the
    /// targets. kubewarm's admission policy requires your permission to `use` this ServiceAccount,
    /// or to `create` its `serviceaccounts/token`. After a change, kubewarm drops all objects and
    /// lists again. Default: the operator's permissions. Without a ServiceAccount, a profile
    /// outside the operator namespace can read only its own namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub service_account_name: Option<String>,

    /// Activity of the profile. `Active` (the default): list and watch the targets. `Plan`: store
    /// no objects, and estimate the cost in `status.plan`. `Paused`: serve the stored
    /// objects and do not update them. When they are stale, only reads with `Eventual` or
    /// `resourceVersion=0` succeed.
    #[serde(default)]
    pub mode: ProfileMode,

    /// Namespaces to list and watch, for targets without their own scope. Default: type
    /// `OwnNamespace`.
    #[serde(default)]
    pub scope: ScopeSpec,

    /// Resources to keep warm, 1 to 128 entries with unique names. After an edit of a target,
    /// kubewarm serves the old objects until the new list is complete. kubewarm drops the old
    /// objects at once if a target for secrets no longer stores whole Secrets.
    #[schemars(length(min = 1, max = MAX_TARGETS))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<TargetSpec>,

    /// Settings for the first list of each target.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub warmup: WarmupSettings,

    /// Settings for freshness and consistency checks.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub freshness: FreshnessSettings,

    /// Settings for reads of the profile's objects.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub reads: ReadSettings,

    /// Object and memory limits of all targets together. kubewarm stops a target that exceeds a
    /// limit, and starts the target again after an edit of the profile or after about 10 minutes.
    /// During a list after an edit, old and new objects count. If both together exceed a limit,
    /// kubewarm drops the old objects. Default: only the limits in the operator's flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsSpec>,
}

/// Value of `spec.mode`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    Deserialize,
    Serialize,
    JsonSchema,
    strum::AsRefStr,
    strum::VariantArray,
)]
#[schemars(inline)]
pub enum ProfileMode {
    /// kubewarm lists and watches the targets.
    #[default]
    Active,
    /// kubewarm estimates the cost of `Active` and opens no watch.
    Plan,
    /// kubewarm serves the stored objects and does not update them.
    Paused,
}

/// Value of `spec.warmup`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct WarmupSettings {
    /// Deadline for warming all required targets, in seconds after kubewarm accepts the spec, 1 to
    /// 86400. The condition `WarmupDeadlineMet` reports the result. Default: no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub deadline_seconds: Option<i32>,

    /// Largest number of concurrent lists of the profile, 1 to 64. The operator's flag
    /// `--max-concurrent-lists` limits the lists of all profiles together. Higher values warm
    /// targets sooner, but increase the API server's load. Default: 4.
    #[schemars(range(min = 1, max = 64))]
    pub max_concurrent_lists: i32,
}

/// Value of `spec.freshness`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct FreshnessSettings {
    /// Staleness limit, in seconds, 10 to 3600. A store is stale if kubewarm last confirmed longer
    /// ago that it contains all changes. Below 120, kubewarm sends more requests to the API server,
    /// and keeps the limit only for 10 minutes after a read. `Fresh` is not `True` while a store of
    /// the profile is stale. Default: 120.
    #[schemars(range(min = 10, max = 3600))]
    pub max_staleness_seconds: i32,

    /// Period of consistency checks, in seconds, 1 to 86400. kubewarm compares names, UIDs and
    /// versions in a store with a list of the same resource version. After a difference, kubewarm
    /// lists again and sends the Event `CacheInconsistent`. kubewarm skips stores with an object
    /// that it cannot decode. Default: no checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub consistency_check_period_seconds: Option<i32>,
}

/// Value of `spec.reads`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct ReadSettings {
    /// Consistency of reads without a `resourceVersion`. `Bounded` (the default): objects that were
    /// current within `freshness.maxStalenessSeconds`. `Strict`: objects that are not older than
    /// the request; each read waits for a freshness check. `Eventual`: the stored objects, however
    /// old. If stores of several profiles answer a read, the strictest value applies.
    pub consistency: ReadConsistency,

    /// Longest wait of a read for an informer that is not warm, or whose relist has changed
    /// objects, in seconds, 0 to 60. After this time, kubewarm returns 429, or 503 if it lacks a
    /// permission. If stores of several profiles answer a read, the shortest timeout applies.
    /// Default: 5.
    #[schemars(range(min = 0, max = 60))]
    pub cold_read_timeout_seconds: i32,

    /// Effect when the profile's identity loses access to a target's resource. `Reject` (the
    /// default): kubewarm rejects reads and drops the objects. If kubewarm only could not confirm
    /// access for 10 minutes, kubewarm rejects reads but keeps the objects. `ServeStale`: kubewarm
    /// serves the stored objects, which become stale, even if access is only unconfirmed. When
    /// access returns, kubewarm warms the target again.
    pub on_access_lost: AccessLossPolicy,
}

/// Value of `spec.reads.consistency`, ordered by strictness: `Eventual` < `Bounded` < `Strict`.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[schemars(inline)]
pub enum ReadConsistency {
    /// Objects are current within `freshness.maxStalenessSeconds`.
    #[default]
    Bounded = 1,
    /// Objects are not older than the request.
    Strict = 2,
    /// Objects can have any age.
    Eventual = 0,
}

/// Value of `spec.reads.onAccessLost`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum AccessLossPolicy {
    /// kubewarm drops the objects and rejects reads.
    #[default]
    Reject,
    /// kubewarm continues to serve the objects.
    ServeStale,
}

impl Default for WarmupSettings {
    fn default() -> Self {
        Self { deadline_seconds: None, max_concurrent_lists: 4 }
    }
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self {
            consistency: ReadConsistency::Bounded,
            cold_read_timeout_seconds: 5,
            on_access_lost: AccessLossPolicy::Reject,
        }
    }
}

impl Default for FreshnessSettings {
    fn default() -> Self {
        Self { max_staleness_seconds: 120, consistency_check_period_seconds: None }
    }
}
