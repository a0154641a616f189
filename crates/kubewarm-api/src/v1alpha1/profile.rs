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
    /// Who reads upstream: a ServiceAccount in the namespace of the profile. kubewarm then reads
    /// with tokens of that account, its RBAC decides, and targets may have any scope. Unset (the
    /// default): kubewarm reads as itself, and outside of its own namespace a profile may only name
    /// the namespace that it is in. Whoever writes a profile that names an account must be allowed
    /// to `use` it, or to `create` its `serviceaccounts/token`. When it changes, what was
    /// read before is let go, and nothing answers until it has been read anew as the other account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub service_account_name: Option<String>,

    /// Whether anything is watched. `Active` (the default): lists and watches what the targets
    /// name. `Plan`: watches and holds nothing, but looks at a sample of what the targets name and
    /// says in `status.plan` what warming them would cost. `Paused`: keeps and serves what is
    /// already there, opens no watch, and says so in the conditions; what is held grows old
    /// meanwhile.
    #[serde(default)]
    pub mode: Mode,

    /// Namespaces to list and watch, for each target that has no scope of its own. Default: type
    /// `OwnNamespace`, the profile's namespace. Without a ServiceAccount, a profile outside the
    /// operator's namespace may only name its own namespace.
    #[serde(default)]
    pub scope: Scope,

    /// What is to be warm, 1 to 32 entries, each with a name of its own. Editing one target does
    /// not disturb the others: its new state is fetched beside the old, which goes on answering
    /// until the new is complete. The old is let go at once where another account read it, or where
    /// it holds secrets whole and the new does not.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<Target>,

    /// How the first state is fetched.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub warmup: Warmup,

    /// When data counts as stale.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub freshness: Freshness,

    /// How kubewarm answers reads of this profile's data.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub reads: ReadSettings,

    /// How much may be held. Unset (the default): as much as there is memory for in the process, and
    /// in the share of it that the namespace has. What an edited target answers with until its new
    /// state is complete counts too. If old and new do not fit together, the old is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Whether anything is watched.
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
    /// Says what that would cost, and watches nothing.
    Plan,
    /// Keeps and serves what is there, opens no watch.
    Paused,
}

/// How the first state is fetched.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct Warmup {
    /// Deadline for all required targets to be warm, in seconds after the spec was accepted, 1 to
    /// 86400. The condition `WarmupDeadlineMet` shows whether they were. Default: no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub deadline_seconds: Option<i32>,

    /// How many first lists of this profile may be under way at once, 1 to 64, default 4. The
    /// whole process has a bound of its own. Higher values warm many small targets sooner and load
    /// the API server more.
    #[schemars(range(min = 1, max = 64))]
    pub max_concurrent_lists: i32,
}

/// When data counts as stale.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct Freshness {
    /// How old data may be, in seconds, 10 to 3600, default 120. A watch that has brought neither
    /// an event nor a bookmark for so long is probed, and reconnected if the probe is ahead; until
    /// that is settled the condition `Fresh` is not `True`.
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

/// How kubewarm answers reads.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline, transform = schema::for_crd)]
pub struct ReadSettings {
    /// How new an answer is that asks for no `resourceVersion`. `Bounded` (the default): known to
    /// be current within `freshness.maxStalenessSeconds`; where that is not known, the API server is
    /// asked before anything is answered. `Strict`: of the moment of the request or later, which is
    /// proved by a request upstream that all who wait for it share; reads take as long as that does.
    /// `Eventual`: whatever is held, however old. Of several profiles that keep what is read the
    /// strictest counts.
    pub consistency: Consistency,

    /// Time for which a read waits for data that is not warm yet, in seconds, 0 to 60. After that
    /// kubewarm rejects the read with 429; with 0 it rejects the read at once. The shortest timeout
    /// of all profiles that keep the data counts. Default: 5.
    #[schemars(range(min = 0, max = 60))]
    pub cold_read_timeout_seconds: i32,

    /// What becomes of data that the identity may no longer read. `Reject` (the default): kubewarm
    /// stops serving it and drops it. `ServeStale`: kubewarm serves what it held when it noticed the
    /// loss, and the data grows old. Data whose access nobody can verify for 10 minutes is not served
    /// either, and is kept. The conditions show both. Access that returns makes the target warm again
    /// without help.
    pub on_access_lost: OnAccessLost,
}

/// How new an answer is. Ordered by strictness.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[schemars(inline)]
pub enum Consistency {
    /// Known to be current within the bound.
    #[default]
    Bounded = 1,
    /// Of the moment of the request or later.
    Strict = 2,
    /// Whatever is held.
    Eventual = 0,
}

/// What becomes of data that may not be read any more.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum OnAccessLost {
    /// kubewarm drops it and rejects reads.
    #[default]
    Reject,
    /// kubewarm goes on serving it.
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
