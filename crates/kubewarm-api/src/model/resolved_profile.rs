//! A profile after kubewarm looked up its resources and namespaces in the cluster: the profile's
//! targets, and the informers that each target needs.
//!
//! kubewarm decides from these informers, not from the running informers, whether a profile is
//! synced. Otherwise a profile would count as synced before its informers have started.

use super::{
    AccessLossPolicy, FieldPath, IndexDefinition, InformerSpec, LimitedTarget, ProfileLimits,
    ProfileMode, ProfileRef, ReadPolicy, ResourceInfo, TargetRequirement, ValidatedProfile,
};
use std::{sync::Arc, time::Duration};

/// State of the admission policy that restricts `spec.serviceAccountName` to ServiceAccounts that
/// the author of the profile can act as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AccountPolicyEnforcement {
    /// The cluster enforces the policy in `deploy/account-policy.yaml`.
    Enforced,
    /// The cluster does not enforce the admission policy. So the author of a profile can name every
    /// ServiceAccount for which kubewarm can create tokens, and read with its permissions.
    Missing,
    /// kubewarm has not read the admission policy yet, or RBAC does not permit kubewarm to read it.
    #[default]
    Unknown,
}

/// Reason why kubewarm rejects a profile or a target: the `reason` of the condition `Accepted` with
/// status `False`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr,
)]
pub enum RefusalReason {
    /// The API server does not serve the resource now. It can serve the resource later.
    UnknownResource,
    /// The resource does not support `list` or `watch`.
    NotListable,
    /// The resource is cluster-scoped but the target's scope is not `Cluster`, or the resource is
    /// namespaced but the scope is `Cluster`.
    ScopeMismatch,
    /// The target's scope includes namespaces other than the profile's own. Only profiles in the
    /// operator namespace and profiles with a ServiceAccount can have such a scope.
    CrossNamespaceNotAllowed,
    /// The target's scope needs a ClusterRole, but the operator has only Roles, because it runs
    /// with `--watch-namespaces`.
    ScopeNotAvailable,
    /// The ServiceAccount in `spec.serviceAccountName` does not exist now. A user can create it
    /// later.
    ServiceAccountNotFound,
    /// The API server does not support a field of `fieldSelector` for this resource.
    UnsupportedField,
    /// The number of informers exceeds the limit for a profile or the limit for a namespace.
    TooManyInformers,
    /// The profile exceeds the limits on the number and the memory of profiles. It can fit after
    /// other profiles are deleted.
    LimitExceeded,
    /// The spec has an error that neither the CRD's schema nor another variant of this enum
    /// describes.
    InvalidSpec,
}

/// The reason why kubewarm rejects a profile or a target, with a message for the author of the
/// profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// `reason` of the condition `Accepted`.
    pub reason: RefusalReason,
    /// Message of the condition `Accepted`: the invalid field, the expected value, and how to fix
    /// the profile.
    pub message: String,
}

/// Informers whose stores kubewarm serves to clients that read one target's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInformers {
    /// `metadata.generation` of the profile's spec that declares these informers. The newest spec
    /// can declare other informers.
    pub generation: i64,
    /// The target's resource, as API discovery described it when kubewarm determined these
    /// informers. Discovery can describe the resource differently now.
    pub kind: ResourceInfo,
    /// The informers from which clients read now. After an edit of the profile, these are the
    /// informers of the earlier spec until all informers of the new spec are warm, so that reads
    /// continue.
    pub informers: Arc<[InformerSpec]>,
}

/// One target of a profile, after kubewarm looked up its resource and namespaces in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTarget {
    /// Value of `spec.targets[].name`.
    pub name: Arc<str>,
    /// Whether the condition `Ready` depends on the target.
    pub requirement: TargetRequirement,
    /// The resource as the spec names it, in the form `<plural>.<group>`, for messages.
    pub declared_as: Arc<str>,
    /// The API server's description of the resource, from discovery, or the reason why kubewarm
    /// rejects the target. `None`: kubewarm has no discovery response yet.
    pub resolved: Option<Result<ResourceInfo, Refusal>>,
    /// The informers that the target needs: one for each namespace, or one cluster-wide. Empty if
    /// kubewarm rejects the target, or if the target's namespace selector matches no namespace.
    pub informers: Arc<[InformerSpec]>,
    /// The informer that watches namespaces for the target's namespace selector. `None`: the target
    /// has no selector. While this informer is not synced, `informers` can be incomplete and the
    /// target is not warm.
    pub namespaces: Option<InformerSpec>,
    /// The informers from which clients read the target's objects. `None`: kubewarm does not serve
    /// the target, for example because its informers are not warm yet.
    pub serving: Option<TargetInformers>,
    /// All indexes that the target declares in the spec, with their names. Clients can select by
    /// each index, even if the store does not keep the index.
    pub named: Arc<[IndexDefinition]>,
    /// Paths of the target's indexes that the store does not keep, because their number exceeds the
    /// limit of a store. Reads that select by such an index scan all objects.
    pub left_out: Arc<[FieldPath]>,
    /// The limit that the target exceeded. If kubewarm stopped the target because of this limit,
    /// `informers` still lists the target's informers, although they do not run.
    pub limited: Option<LimitedTarget>,
}

/// A profile after kubewarm looked up its resources and namespaces in the cluster. From this value,
/// kubewarm starts the profile's informers and computes the profile's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedProfile {
    /// Namespace and name of the profile.
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile. A profile that was deleted and created again has another UID,
    /// so kubewarm treats it as a new profile.
    pub uid: Arc<str>,
    /// `metadata.generation` of the profile's spec from which kubewarm computed this value.
    pub generation: i64,
    /// Reason why kubewarm rejects the newest generation of the profile. All other fields then
    /// describe the last valid generation, which kubewarm continues to serve. `None`: the newest
    /// generation is valid.
    pub refused: Option<Refusal>,
    /// Name of the ServiceAccount, in the profile's namespace, with which kubewarm reads. `None`:
    /// kubewarm reads with the operator's identity.
    pub service_account: Option<Arc<str>>,
    /// Whether an admission policy restricts which ServiceAccount the profile's author can name in
    /// `spec.serviceAccountName`.
    pub authors: AccountPolicyEnforcement,
    /// Value of `spec.mode`.
    pub mode: ProfileMode,
    /// Targets in the order of the spec.
    pub targets: Vec<ResolvedTarget>,
    /// Value of `spec.warmup.deadlineSeconds`. `None`: no deadline.
    pub warmup_deadline: Option<Duration>,
    /// Value of `spec.freshness.maxStalenessSeconds`.
    pub max_staleness: Duration,
    /// Value of `spec.reads.onAccessLost`.
    pub on_access_lost: AccessLossPolicy,
    /// Values of `spec.reads.consistency` and `spec.reads.coldReadTimeoutSeconds`.
    pub reads: ReadPolicy,
    /// Value of `spec.limits`.
    pub limits: ProfileLimits,
    /// Time at which kubewarm accepted the profile's spec, measured from the start of the process.
    /// The warm-up deadline counts from this time. Zero if an earlier process accepted the spec.
    pub accepted_at: Duration,
}

impl ResolvedProfile {
    /// Creates the resolved form of `profile` with its looked-up `targets`. Only the caller knows
    /// when the spec was accepted, and whether an admission policy restricts the authors of
    /// profiles. So `accepted_at` is zero and `authors` is `Unknown` until the caller sets them.
    pub fn of(profile: &ValidatedProfile, targets: Vec<ResolvedTarget>) -> Self {
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

    /// A profile without targets, with the default settings. It is the resolved form of a profile
    /// without a valid generation.
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

    /// Iterates over the targets that run informers: none in mode `Plan`, else the targets that no
    /// limit has stopped.
    pub fn running_targets(&self) -> impl Iterator<Item = &ResolvedTarget> {
        let targets = if self.mode == ProfileMode::Plan { &[][..] } else { &self.targets };
        targets.iter().filter(|target| !target.is_stopped())
    }
}

impl TargetInformers {
    /// Whether `self.informers` and `informers` have equal informer keys in the same order, so that
    /// clients read from the same stores. The settings of these informers can differ.
    pub fn is_of(&self, informers: &[InformerSpec]) -> bool {
        self.informers
            .iter()
            .map(|informer| &informer.key)
            .eq(informers.iter().map(|informer| &informer.key))
    }
}

impl ResolvedTarget {
    /// Iterates over all informers that the target needs: those in the field `informers`, then the
    /// informer in the field `namespaces`, if there is one.
    pub fn all_informers(&self) -> impl Iterator<Item = &InformerSpec> {
        self.informers.iter().chain(&self.namespaces)
    }

    /// Iterates over the informers in the field `serving`, from whose stores clients read now.
    /// After an edit, these are the previous informers until the new ones are warm. Empty if
    /// kubewarm does not serve the target.
    pub fn serving_informers(&self) -> impl Iterator<Item = &InformerSpec> {
        self.serving.iter().flat_map(|serving| &*serving.informers)
    }

    /// Whether an exceeded limit stops the target's informers.
    pub fn is_stopped(&self) -> bool {
        self.limited.is_some_and(|limited| limited.is_stopped())
    }
}

/// Whether two lists of targets have the same names and the same informers, in the same order. If
/// so, results such as a forecast stay valid.
pub fn has_same_informers<'a>(
    targets: impl IntoIterator<Item = &'a ResolvedTarget>,
    others: impl IntoIterator<Item = &'a ResolvedTarget>,
) -> bool {
    let informers =
        |target: &'a ResolvedTarget| (&target.name, &target.informers, &target.namespaces);
    targets.into_iter().map(informers).eq(others.into_iter().map(informers))
}

impl Refusal {
    /// Creates a refusal with a message for the author of the profile.
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl RefusalReason {
    /// The value of `reason` in the condition `Accepted`, such as `InvalidSpec`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether only an edit of the profile can resolve the refusal. If so, kubewarm sets the
    /// condition `Stalled` to `True`.
    pub const fn is_author_error(self) -> bool {
        !matches!(
            self,
            Self::UnknownResource
                | Self::ScopeNotAvailable
                | Self::ServiceAccountNotFound
                | Self::LimitExceeded
        )
    }
}
