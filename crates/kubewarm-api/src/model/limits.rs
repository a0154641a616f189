//! Object and memory limits of profiles, namespaces and the process, and the state of targets that
//! exceed a limit.

use super::{ValidationError, parse_quantity};
use crate::v1alpha1::{self, mebibytes};
use std::{fmt, time::Duration};

/// Validated `spec.limits` of a profile. A field is `None` if the profile does not set the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileLimits {
    /// Value of `spec.limits.maxObjects`, at least 1.
    pub max_objects: Option<u64>,
    /// Value of `spec.limits.maxMemory`, in bytes.
    pub max_bytes: Option<u64>,
}

/// What a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitScope {
    /// All targets of one profile. `spec.limits` sets the limit.
    Profile,
    /// All profiles of one namespace.
    Namespace,
    /// The whole kubewarm process.
    Process,
}

/// What a limit counts: objects or memory. The variants are also values of a metric label.
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

/// A limit that a target exceeded, with the usage at that time, for the profile's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverrun {
    /// Whether the limit applies to a profile, a namespace or the process.
    pub bound: LimitScope,
    /// Whether the limit counts objects or memory.
    pub measure: LimitKind,
    /// Value of the limit, in objects or bytes.
    pub limit: u64,
    /// Usage of the target when the limit was exceeded, in objects or bytes.
    pub reached: u64,
    /// Usage of the targets that continue and count against the same limit, in objects or bytes.
    /// Further stopped targets do not count.
    pub others: u64,
    /// Number of the target's objects when the limit was exceeded.
    pub objects: u64,
    /// Number of objects that the target would have without the limit. `None`: the API server did
    /// not report this number.
    pub expected: Option<u64>,
}

/// A target that exceeded a limit. kubewarm keeps this value until all informers of the target are
/// synced within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedTarget {
    /// The limit that the target exceeded.
    pub overrun: LimitOverrun,
    /// Time at which kubewarm starts the target's informers again, measured from the start of the
    /// process. kubewarm starts them earlier if memory becomes free or a user edits the profile.
    /// `None`: kubewarm has started the informers again.
    pub retry_at: Option<Duration>,
}

impl ProfileLimits {
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

    /// Whether `maxObjects` or `maxMemory` is set.
    pub fn has_any(&self) -> bool {
        self.max_objects.is_some() || self.max_bytes.is_some()
    }
}

impl LimitedTarget {
    /// Whether the target's informers are stopped.
    pub fn is_stopped(&self) -> bool {
        self.retry_at.is_some()
    }
}

impl LimitKind {
    /// The `reason` of the condition `WithinLimits` if a limit of this kind is exceeded.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects => "ObjectsExceeded",
            Self::Memory => "MemoryExceeded",
        }
    }

    /// Formats a number of objects or bytes for messages: `10000 objects` or `200Mi`.
    pub fn amount(self, count: u64) -> String {
        match self {
            Self::Objects => format!("{count} objects"),
            Self::Memory => mebibytes(count),
        }
    }
}

impl fmt::Display for LimitOverrun {
    /// Writes a message about an exceeded limit, such as `60 objects in addition to 50 objects of
    /// others, 100 objects allowed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, limit, reached, others, .. } = self;
        let [reached, others, limit] =
            [reached, others, limit].map(|number| measure.amount(*number));
        write!(f, "{reached} in addition to {others} of others, {limit} allowed")
    }
}
