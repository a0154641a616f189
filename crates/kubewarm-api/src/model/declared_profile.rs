//! A profile resolved against the cluster: its targets with their informers.
//!
//! Sync state is computed from these declarations, never from the running informers. Otherwise a
//! profile without started informers would count as synced.

use super::{
    AccessLossPolicy, FieldPath, IndexDefinition, InformerSpec, LimitedTarget, ProfileLimits,
    ProfileMode, ProfileRef, ReadPolicy, ResourceInfo, TargetRequirement, ValidatedProfile,
};
use std::{sync::Arc, time::Duration};

/// State of the admission policy that restricts `spec.serviceAccountName` to accounts that the
/// author can act as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AccountPolicyEnforcement {
    /// The policy of `deploy/account-policy.yaml` is in force.
    Enforced,
    /// No policy is in force: an author of a profile can read as every account that kubewarm can
    /// mint tokens for.
    Missing,
    /// kubewarm has not read the policy yet, or RBAC does not permit it.
    #[default]
    Unknown,
}

/// Reasons of the condition `Accepted=False`, for a profile or one target.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr,
)]
pub enum RefusalReason {
    /// The API server does not serve the resource. It can appear later.
    UnknownResource,
    /// The resource does not support `list` or `watch`.
    NotListable,
    /// The scope is namespaced and the resource is cluster-scoped, or the reverse.
    ScopeMismatch,
    /// The scope includes another namespace, the profile is outside the operator's namespace, and
    /// it names no ServiceAccount.
    CrossNamespaceNotAllowed,
    /// The scope needs a ClusterRole, and the operator runs without one (`--watch-namespaces`).
    ScopeNotAvailable,
    /// The ServiceAccount of the profile does not exist. It can be created later.
    ServiceAccountNotFound,
    /// The API server does not support a field of `fieldSelector` for this resource.
    UnsupportedField,
    /// The profile, or all profiles of its namespace together, need more informers than permitted.
    TooManyInformers,
    /// Another error in the spec that the CRD's schema does not detect.
    InvalidSpec,
}

/// A rejected profile or target, with a message for the author of the profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// `reason` of the condition.
    pub reason: RefusalReason,
    /// Message of the condition: the field as written, the expected value, and what to do.
    pub message: String,
}

/// Informers whose stores answer reads of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingTarget {
    /// Generation of the profile that declared these informers.
    pub generation: i64,
    /// Discovery's description of the resource at that generation.
    pub kind: ResourceInfo,
    /// The declared informers when all are synced; until then those informers of the last
    /// generation that was synced.
    pub informers: Arc<[InformerSpec]>,
}

/// One target of a profile, resolved against the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTarget {
    /// `targets[].name`.
    pub name: Arc<str>,
    /// Whether the condition `Ready` depends on the target.
    pub requirement: TargetRequirement,
    /// `<plural>.<group>` as written in the spec, for messages.
    pub declared_as: Arc<str>,
    /// Discovery's description of the resource, or the reason for its rejection. `None` until
    /// discovery answers.
    pub resolved: Option<Result<ResourceInfo, Refusal>>,
    /// The declared informers in order. Empty if the target is rejected, or if its namespace
    /// selector matches no namespace.
    pub informers: Arc<[InformerSpec]>,
    /// Informer that watches namespaces for a namespace selector. Until it is synced, `informers` is
    /// unknown and the target is not warm.
    pub namespaces: Option<InformerSpec>,
    /// Informers that answer reads; `None` before the first sync.
    pub serving: Option<ServingTarget>,
    /// All indexes of the spec by name, which clients can select by. The store need not keep each
    /// index.
    pub named: Arc<[IndexDefinition]>,
    /// Indexes of the target that exceed the index limit of a store, in order. Reads that select by
    /// them scan all objects.
    pub left_out: Arc<[FieldPath]>,
    /// The exceeded limit, if any. For a stopped target, `informers` lists the informers that do not
    /// run.
    pub limited: Option<LimitedTarget>,
}

/// A profile resolved against the cluster: input of the status and of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredProfile {
    /// Namespace and name of the profile.
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile. A profile with the same name and another UID starts without
    /// the earlier state.
    pub uid: Arc<str>,
    /// Generation of the spec that this value describes.
    pub generation: i64,
    /// Rejection of the newest generation. All other fields then describe the last valid
    /// generation, which continues to serve.
    pub refused: Option<Refusal>,
    /// ServiceAccount of the profile's namespace that reads. `None`: the operator reads.
    pub service_account: Option<Arc<str>>,
    /// Whether the admission policy restricted the author's choice of `service_account`.
    pub authors: AccountPolicyEnforcement,
    /// `spec.mode`.
    pub mode: ProfileMode,
    /// Targets in the order of the spec.
    pub targets: Vec<DeclaredTarget>,
    /// `warmup.deadlineSeconds`; `None`: no deadline.
    pub warmup_deadline: Option<Duration>,
    /// `freshness.maxStalenessSeconds`.
    pub max_staleness: Duration,
    /// `reads.onAccessLost`.
    pub on_access_lost: AccessLossPolicy,
    /// `reads.consistency` and `reads.coldReadTimeoutSeconds`.
    pub reads: ReadPolicy,
    /// `spec.limits`.
    pub limits: ProfileLimits,
    /// Time of acceptance of this generation, or zero if the process started later. Measured from
    /// the start of the process by the monotonic clock.
    pub accepted_at: Duration,
}

impl DeclaredProfile {
    /// Combines `profile` with its resolved targets. `accepted_at` is the start of the process, and
    /// `authors` is unknown.
    #[must_use]
    pub fn of(profile: &ValidatedProfile, targets: Vec<DeclaredTarget>) -> Self {
        Self {
            profile: profile.profile.clone(),
            uid: Arc::clone(&profile.uid),
            generation: profile.generation,
            refused: None,
            service_account: profile.service_account.clone(),
            authors: AccountPolicyEnforcement::Unknown,
            mode: profile.mode,
            targets,
            warmup_deadline: profile.warmup_deadline,
            max_staleness: profile.max_staleness,
            on_access_lost: profile.on_access_lost,
            reads: profile.reads,
            limits: profile.limits,
            accepted_at: Duration::ZERO,
        }
    }

    /// A profile that declares no targets, with the default settings. `accepted_at` is the start of
    /// the process, and `authors` is unknown.
    #[must_use]
    pub fn without_targets(profile: ProfileRef, uid: Arc<str>, generation: i64) -> Self {
        Self {
            profile,
            uid,
            generation,
            refused: None,
            service_account: None,
            authors: AccountPolicyEnforcement::Unknown,
            mode: ProfileMode::Active,
            targets: Vec::new(),
            warmup_deadline: None,
            max_staleness: Duration::from_mins(2),
            on_access_lost: AccessLossPolicy::default(),
            reads: ReadPolicy::default(),
            limits: ProfileLimits::default(),
            accepted_at: Duration::ZERO,
        }
    }
}

impl ServingTarget {
    /// Whether the serving informers have the same keys as `informers`, in order. Their settings can
    /// differ.
    #[must_use]
    pub fn is_of(&self, informers: &[InformerSpec]) -> bool {
        self.informers
            .iter()
            .map(|informer| &informer.key)
            .eq(informers.iter().map(|informer| &informer.key))
    }
}

impl DeclaredTarget {
    /// Iterates over the declared informers and the namespace informer.
    pub fn all_informers(&self) -> impl Iterator<Item = &InformerSpec> {
        self.informers.iter().chain(&self.namespaces)
    }

    /// Whether an exceeded limit stops the target's informers.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.limited.is_some_and(|limited| limited.is_stopped())
    }
}

/// Whether two lists of targets have the same names and the same informers, in order.
#[must_use]
pub fn has_same_informers<'a>(
    targets: impl IntoIterator<Item = &'a DeclaredTarget>,
    others: impl IntoIterator<Item = &'a DeclaredTarget>,
) -> bool {
    let informers =
        |target: &'a DeclaredTarget| (&target.name, &target.informers, &target.namespaces);
    targets.into_iter().map(informers).eq(others.into_iter().map(informers))
}

impl Refusal {
    /// Creates a refusal.
    #[must_use]
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl RefusalReason {
    /// The condition's `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether only an edit of the profile can resolve the refusal. Such reasons set the condition
    /// `Stalled`.
    #[must_use]
    pub const fn is_author_error(self) -> bool {
        !matches!(
            self,
            Self::UnknownResource | Self::ScopeNotAvailable | Self::ServiceAccountNotFound
        )
    }
}
