//! Object and memory limits of profiles, namespaces and the process, and the targets that exceed
//! them.

use super::{ValidationError, parse_quantity};
use crate::v1alpha1::{self, mebibytes};
use std::{fmt, time::Duration};

/// Validated `spec.limits`; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileLimits {
    /// `spec.limits.maxObjects`, at least 1.
    pub max_objects: Option<u64>,
    /// `spec.limits.maxMemory` in bytes.
    pub max_bytes: Option<u64>,
}

/// Level that a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitScope {
    /// All targets of one profile, limited by `spec.limits`.
    Profile,
    /// All profiles of one namespace.
    Namespace,
    /// The whole process.
    Process,
}

/// Quantity that a limit counts. Metrics use it as a label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum LimitKind {
    /// Number of objects.
    Objects,
    /// Memory in bytes.
    #[strum(serialize = "bytes")]
    Memory,
}

/// An exceeded limit, and the usage of the target that stopped for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverrun {
    /// Level of the limit.
    pub bound: LimitScope,
    /// Quantity that the limit counts.
    pub measure: LimitKind,
    /// The limit, in objects or bytes.
    pub limit: u64,
    /// Usage of the target when it exceeded the limit, in objects or bytes.
    pub reached: u64,
    /// Usage of everything else under the same limit, in objects or bytes.
    pub others: u64,
    /// Number of objects of the target when it exceeded the limit.
    pub objects: u64,
    /// Total number of objects of the target, if the API server reported it.
    pub expected: Option<u64>,
}

/// A target that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedTarget {
    /// The exceeded limit.
    pub overrun: LimitOverrun,
    /// Latest time of the next try, measured from the start of the process. Free memory or an edit
    /// of the profile can start it earlier. `None`: the target runs as a try.
    pub retry_at: Option<Duration>,
}

impl ProfileLimits {
    /// Checks `spec.limits`.
    ///
    /// # Errors
    ///
    /// [`ValidationError`] for a count below 1, or for text that is not a positive quantity.
    pub(super) fn parse(limits: Option<&v1alpha1::LimitsSpec>) -> Result<Self, ValidationError> {
        let Some(v1alpha1::LimitsSpec { max_objects, max_memory }) = limits else {
            return Ok(Self::default());
        };
        let positive = |count: &i64| {
            u64::try_from(*count).ok().filter(|&count| count > 0).ok_or_else(|| {
                let problem = format!("{count} is not a count from 1 on");
                ValidationError::malformed("spec.limits.maxObjects", problem)
            })
        };
        let quantity = |memory: &v1alpha1::Quantity| {
            let text = memory.to_string();
            parse_quantity(&text).filter(|&bytes| bytes > 0).ok_or_else(|| {
                let problem = format!("{text:?} is not a quantity such as \"200Mi\"");
                ValidationError::malformed("spec.limits.maxMemory", problem)
            })
        };
        Ok(Self {
            max_objects: max_objects.as_ref().map(positive).transpose()?,
            max_bytes: max_memory.as_ref().map(quantity).transpose()?,
        })
    }

    /// Whether the profile has any limit.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.max_objects.is_some() || self.max_bytes.is_some()
    }
}

impl LimitedTarget {
    /// Whether the target's informers are stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.retry_at.is_some()
    }
}

impl LimitKind {
    /// The condition's `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects => "ObjectsExceeded",
            Self::Memory => "MemoryExceeded",
        }
    }

    /// Formats a count for messages: `10000 objects` or `200Mi`.
    #[must_use]
    pub fn amount(self, count: u64) -> String {
        match self {
            Self::Objects => format!("{count} objects"),
            Self::Memory => mebibytes(count),
        }
    }
}

impl fmt::Display for LimitOverrun {
    /// Writes the usage and the limit, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, limit, reached, others, .. } = self;
        let [reached, others, limit] = [reached, others, limit].map(|it| measure.amount(*it));
        write!(f, "{reached} in addition to {others} of others, {limit} allowed")
    }
}
