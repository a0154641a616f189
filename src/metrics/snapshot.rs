//! What a scrape and `/debug/cells` read: cells and profiles as they stand now.

use kubewarm_api::{
    model::{CellKey, Mode, ProfileRef, Resource, Verb},
    v1alpha1::{CacheProfileStatus, TargetStatus},
};
use kubewarm_cache::informer::CellReport;
use std::{collections::BTreeMap, sync::Arc};

/// A declared cell.
#[derive(Clone, Debug)]
pub struct CellSnapshot {
    /// Which.
    pub key: CellKey,
    /// What its informer says.
    pub report: Arc<CellReport>,
    /// Objects in its table.
    pub objects: u64,
    /// Bytes of its table, indexes included.
    pub bytes: u64,
    /// Times that a record of it did not decode.
    pub undecodable: u64,
}

/// How a target stands, all its cells together.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum TargetState {
    /// Every cell is synced and current.
    Synced,
    /// Some cell has not been synced yet, and may still be.
    Syncing,
    /// Every cell is synced, some are not known to be current.
    Stale,
    /// Some cell may not be read.
    Forbidden,
    /// Its kind or a namespace is not there.
    Missing,
    /// A limit has stopped it, or cut it down to metadata.
    Limited,
}

/// The status of a condition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray,
)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

/// One condition of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionSnapshot {
    /// Such as `Ready`; from the closed set of the API.
    pub condition: Arc<str>,
    /// How it stands.
    pub status: ConditionStatus,
}

/// A profile.
#[derive(Clone, Debug)]
pub struct ProfileSnapshot {
    /// Which.
    pub profile: ProfileRef,
    /// Whether it watches.
    pub mode: Mode,
    /// Its conditions; at most 16 are exported.
    pub conditions: Vec<ConditionSnapshot>,
    /// How many of its cells lack which permission.
    pub missing: BTreeMap<(Resource, Verb), u64>,
    /// How many of its targets are in which state; states left out count as none.
    pub targets: BTreeMap<TargetState, u64>,
}

impl ProfileSnapshot {
    /// Of a profile with this status, whose cells lack these permissions.
    #[must_use]
    pub fn of(
        profile: ProfileRef,
        mode: Mode,
        status: &CacheProfileStatus,
        missing: BTreeMap<(Resource, Verb), u64>,
    ) -> Self {
        let conditions = status.conditions.iter().map(|condition| ConditionSnapshot {
            condition: condition.type_.as_str().into(),
            status: match condition.status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            },
        });
        let mut targets = BTreeMap::new();
        for target in &status.targets {
            *targets.entry(TargetState::of(target)).or_default() += 1;
        }
        Self { profile, mode, conditions: conditions.collect(), missing, targets }
    }
}

impl TargetState {
    /// From the counts of its status.
    fn of(target: &TargetStatus) -> Self {
        let Some(cells) = &target.cells else { return Self::Syncing };
        let is_false = |type_: &str| {
            target.conditions.iter().any(|it| it.type_ == type_ && it.status == "False")
        };
        if is_false("WithinLimits") {
            Self::Limited
        } else if cells.forbidden > 0 {
            Self::Forbidden
        } else if cells.missing > 0 || is_false("Accepted") {
            Self::Missing
        } else if cells.syncing > 0 || cells.failing > 0 {
            Self::Syncing
        } else if cells.stale > 0 {
            Self::Stale
        } else {
            Self::Synced
        }
    }
}
