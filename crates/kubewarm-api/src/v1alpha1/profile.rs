//! `CacheProfile` and its spec; the comments on fields are what `kubectl explain` prints.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function")]
#![expect(clippy::duplicated_attributes, reason = "print columns share types and priorities")]

use super::{Limits, Scope, Target, schema, status::CacheProfileStatus};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to be kept warm, and how.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "kubewarm.io",
    version = "v1alpha1",
    kind = "CacheProfile",
    plural = "cacheprofiles",
    namespaced,
    doc = "A CacheProfile declares which kinds, in which namespaces, are to be warm. kubewarm lists and watches exactly those, keeps the objects in memory, and says in status how warm, how fresh and how large they are, and which permissions that takes.",
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
    /// ServiceAccount of the profile's namespace that kubewarm reads as, with tokens of that account.
    /// Its RBAC decides, and targets may have any scope. To name an account, the profile's author
    /// needs the verb `use` on it, or `create` on its `serviceaccounts/token`. After a change,
    /// kubewarm drops the data and rejects reads until the new account has read it again. Default:
    /// kubewarm reads as itself; outside its namespace a profile may then name only its own namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub service_account_name: Option<String>,

    /// Mode of the profile. `Active`: kubewarm lists and watches the targets. `Plan`: kubewarm
    /// watches nothing, reads a sample, and writes the expected cost to `status.plan`. `Paused`:
    /// kubewarm serves the data that it has and opens no watch, so the data becomes stale. Default:
    /// `Active`.
    #[serde(default)]
    pub mode: Mode,

    /// Namespaces to list and watch, for each target that has no scope of its own. Default: type
    /// `OwnNamespace`, the profile's namespace. Without a ServiceAccount, a profile outside the
    /// operator's namespace may only name its own namespace.
    #[serde(default)]
    pub scope: Scope,

    /// Targets to keep warm, 1 to 32 entries with unique names. An edit of one target does not
    /// disturb the others: the old data answers until the new list is complete. kubewarm drops the
    /// old data at once if another account read it, or if it has whole Secrets and the new data has
    /// not.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<Target>,

    /// Settings of the first lists.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub warmup: Warmup,

    /// Settings of the data's freshness.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub freshness: Freshness,

    /// Settings of reads of this profile's data.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub reads: ReadSettings,

    /// Limits of the data of all targets, with the old data of an edited target. If old and new data
    /// do not fit together, kubewarm drops the old data. Default: the memory limits of the operator
    /// and of the namespace alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Mode of a profile.
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
pub enum Mode {
    /// Lists and watches.
    #[default]
    Active,
    /// Measures the expected cost, and watches nothing.
    Plan,
    /// Serves the data that it has, and opens no watch.
    Paused,
}

/// Settings of the first lists.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct Warmup {
    /// Deadline for all required targets to be warm, in seconds after the spec was accepted, 1 to
    /// 86400. The condition `WarmupDeadlineMet` shows whether they were. Default: no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub deadline_seconds: Option<i32>,

    /// Maximum number of first lists of this profile at the same time, 1 to 64. The process has a
    /// limit of its own. Higher values warm many small targets sooner and load the API server more.
    /// Default: 4.
    #[schemars(range(min = 1, max = 64))]
    pub max_concurrent_lists: i32,
}

/// Settings of the data's freshness.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct Freshness {
    /// Maximum age of data that counts as fresh, in seconds, 10 to 3600. If a watch brings neither an
    /// event nor a bookmark for this time, kubewarm probes it and opens it again if it is behind.
    /// Until then the condition `Fresh` is not `True`. Default: 120.
    #[schemars(range(min = 10, max = 3600))]
    pub max_staleness_seconds: i32,

    /// Period of consistency checks, in seconds, 1 to 86400. A check lists the names, UIDs and versions
    /// of all objects at the resource version of the data. If they differ, kubewarm lists the objects
    /// again, counts the difference, and sends the Event `CacheInconsistent`. Data with objects that
    /// could not be decoded is not checked. Default: no checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub consistency_check_period_seconds: Option<i32>,
}

/// Settings of reads.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct ReadSettings {
    /// Consistency of reads without a `resourceVersion`. `Bounded`: the data is known to be current
    /// within `freshness.maxStalenessSeconds`; otherwise kubewarm sends a request to the API server
    /// first. `Strict`: the data is at least as new as the read; each read waits for a request to the
    /// API server, which waiting reads share. `Eventual`: data of any age. The strictest value of all
    /// profiles that keep the data counts. Default: `Bounded`.
    pub consistency: Consistency,

    /// Time for which a read waits for data that is not warm yet, in seconds, 0 to 60. After that
    /// kubewarm rejects the read with 429; with 0 it rejects the read at once. The shortest timeout
    /// of all profiles that keep the data counts. Default: 5.
    #[schemars(range(min = 0, max = 60))]
    pub cold_read_timeout_seconds: i32,

    /// Effect of a lost permission on the data. `Reject`: kubewarm rejects reads and drops the data.
    /// `ServeStale`: kubewarm serves the data of the moment when it noticed the loss. If a permission
    /// cannot be verified for 10 minutes, `Reject` rejects reads and keeps the data. The target
    /// becomes warm again when the permission returns. Default: `Reject`.
    pub on_access_lost: OnAccessLost,
}

/// Consistency of reads. Ordered by strictness.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[schemars(inline)]
pub enum Consistency {
    /// Known to be current within the bound.
    #[default]
    Bounded = 1,
    /// At least as new as the read.
    Strict = 2,
    /// Data of any age.
    Eventual = 0,
}

/// Effect of a lost permission on the data.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum OnAccessLost {
    /// kubewarm drops the data and rejects reads.
    #[default]
    Reject,
    /// kubewarm still serves the data.
    ServeStale,
}

impl Default for Warmup {
    fn default() -> Self {
        Self { deadline_seconds: None, max_concurrent_lists: 4 }
    }
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self {
            consistency: Consistency::Bounded,
            cold_read_timeout_seconds: 5,
            on_access_lost: OnAccessLost::Reject,
        }
    }
}

impl Default for Freshness {
    fn default() -> Self {
        Self { max_staleness_seconds: 120, consistency_check_period_seconds: None }
    }
}
