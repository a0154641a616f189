//! What a profile comes to on this cluster: its targets, resolved into cells.
//!
//! Sync state is always computed from these, never from what happens to run: nothing started must
//! not look like everything synced.

use super::{
    CellSpec, FieldPath, Index, Limited, Limits, Mode, OnAccessLost, ProfileRef, ReadTerms,
    Requirement, ResourceInfo, ValidatedProfile,
};
use std::{sync::Arc, time::Duration};

/// Whether the API server lets only those name a ServiceAccount in a profile who may act as it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AuthorCheck {
    /// The shipped admission policy is in force.
    Enforced,
    /// It is not: whoever may write profiles reads as any account that kubewarm has tokens of.
    Missing,
    /// Not asked yet, or the operator may not see it.
    #[default]
    Unknown,
}

/// Why a profile or one of its targets is not accepted: the closed set of `Accepted=False` reasons.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr,
)]
pub enum RefusalReason {
    /// The kind is not served; it may appear.
    UnknownResource,
    /// The kind has no list or no watch.
    NotListable,
    /// A namespaced scope for a cluster-scoped kind, or the reverse.
    ScopeMismatch,
    /// Other namespaces than the profile's own, from outside the operator's namespace.
    CrossNamespaceNotAllowed,
    /// Only a ClusterRole could allow it, and the operator runs without any.
    ScopeNotAvailable,
    /// The ServiceAccount that the profile names does not exist; it may be created.
    ServiceAccountNotFound,
    /// The server does not select by that field.
    UnsupportedField,
    /// More cells than one profile, or the profiles of one namespace together, may have.
    TooManyInformers,
    /// Something else in the spec that the schema cannot see.
    InvalidSpec,
}

/// A refusal, with the message its author reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which.
    pub reason: RefusalReason,
    /// Names the field as the user wrote it, what was expected and what to do next.
    pub message: String,
}

/// The cells that answer for a target now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The generation of the profile that declared them.
    pub generation: i64,
    /// What discovery said of their kind then.
    pub kind: ResourceInfo,
    /// The declared cells once all are synced; until then those of the last generation that was.
    pub cells: Arc<[CellSpec]>,
}

/// One target of a profile, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredTarget {
    /// `targets[].name`.
    pub name: Arc<str>,
    /// Whether it counts for `Ready`.
    pub requirement: Requirement,
    /// `<plural>.<group>` as declared, for messages.
    pub declared_as: Arc<str>,
    /// What discovery says, or why the target is not accepted. `None`: discovery has not answered
    /// yet.
    pub resolved: Option<Result<ResourceInfo, Refusal>>,
    /// The declared cells, in order. Empty if not accepted, or if the selector matches nothing.
    pub cells: Arc<[CellSpec]>,
    /// For a namespace selector: the cell that watches namespaces for it. The target's own cells
    /// are not known, and the target is not warm, before this one is synced.
    pub namespaces: Option<CellSpec>,
    /// Which cells answer; `None` before the first sync.
    pub serving: Option<Serving>,
    /// What its cells are selected by beside fields of the API server's: all indexes of the spec, whether
    /// or not a table keeps them.
    pub named: Arc<[Index]>,
    /// Declared indexes that a table of its cells has no room for, in order; reads by them scan.
    pub left_out: Arc<[FieldPath]>,
    /// Which limit it does not fit into. While it is stopped, `cells` are those that it would have.
    pub limited: Option<Limited>,
}

/// A profile as it is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Which profile.
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile: a re-created one starts anew.
    pub uid: Arc<str>,
    /// The generation that this was computed from.
    pub generation: i64,
    /// Why the newest generation is refused as a whole; then everything else here is still that of
    /// the last valid one, which keeps serving.
    pub refused: Option<Refusal>,
    /// The ServiceAccount of its namespace that reads; `None`: the operator.
    pub service_account: Option<Arc<str>>,
    /// Whether its author was held to the accounts that they may act as.
    pub authors: AuthorCheck,
    /// Whether it watches.
    pub mode: Mode,
    /// Its targets, in the order of the spec.
    pub targets: Vec<DeclaredTarget>,
    /// `warmup.deadlineSeconds`.
    pub warmup_deadline: Option<Duration>,
    /// `freshness.maxStalenessSeconds`.
    pub max_staleness: Duration,
    /// `reads.onAccessLost`.
    pub on_access_lost: OnAccessLost,
    /// `reads.consistency` and `reads.coldReadTimeoutSeconds`.
    pub reads: ReadTerms,
    /// `spec.limits`.
    pub limits: Limits,
    /// When this generation was accepted, or the process started, whichever was later; on the
    /// monotonic clock of the process, as time since its start.
    pub accepted_at: Duration,
}

impl Declared {
    /// What `profile` comes to, whose targets are these: just accepted, as the process starts.
    #[must_use]
    pub fn of(profile: &ValidatedProfile, targets: Vec<DeclaredTarget>) -> Self {
        Self {
            profile: profile.profile.clone(),
            uid: Arc::clone(&profile.uid),
            generation: profile.generation,
            refused: None,
            service_account: profile.service_account.clone(),
            authors: AuthorCheck::Unknown,
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
}

impl Serving {
    /// Whether the cells that answer are these, however they are tuned.
    #[must_use]
    pub fn is_of(&self, cells: &[CellSpec]) -> bool {
        self.cells.iter().map(|cell| &cell.key).eq(cells.iter().map(|cell| &cell.key))
    }
}

impl DeclaredTarget {
    /// The declared cells, and the one that watches namespaces for the selector.
    pub fn all_cells(&self) -> impl Iterator<Item = &CellSpec> {
        self.cells.iter().chain(&self.namespaces)
    }

    /// Whether a limit keeps its cells from running.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.limited.is_some_and(|limited| limited.is_stopped())
    }
}

/// Whether these targets declare the same cells under the same names.
#[must_use]
pub fn same_cells<'a>(
    targets: impl IntoIterator<Item = &'a DeclaredTarget>,
    others: impl IntoIterator<Item = &'a DeclaredTarget>,
) -> bool {
    let cells = |target: &'a DeclaredTarget| (&target.name, &target.cells, &target.namespaces);
    targets.into_iter().map(cells).eq(others.into_iter().map(cells))
}

impl Refusal {
    /// A refusal with its message.
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

    /// Whether only an edit of the profile helps: these set `Stalled`.
    #[must_use]
    pub const fn needs_author(self) -> bool {
        !matches!(
            self,
            Self::UnknownResource | Self::ScopeNotAvailable | Self::ServiceAccountNotFound
        )
    }
}
