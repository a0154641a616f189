//! How much may be held, and the targets that do not fit.

use super::{Invalid, parse_quantity};
use crate::v1alpha1::{self, mebibytes};
use std::{fmt, time::Duration};

/// What a profile may hold; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `spec.limits.maxObjects`, at least 1.
    pub max_objects: Option<u64>,
    /// `spec.limits.maxMemory` in bytes.
    pub max_bytes: Option<u64>,
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// The profile's own `spec.limits`.
    Profile,
    /// What the profiles of one namespace may hold together.
    Namespace,
    /// What the process may hold.
    Process,
}

/// What there is too much of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Measure {
    /// Objects.
    Objects,
    /// Bytes.
    #[strum(serialize = "bytes")]
    Memory,
}

/// A limit that was exceeded, and by which target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// Whose limit.
    pub bound: Bound,
    /// Of what.
    pub measure: Measure,
    /// How much may be held, in objects or bytes.
    pub limit: u64,
    /// How much the target held when that was noticed.
    pub reached: u64,
    /// How much everything else held that the limit is for.
    pub others: u64,
    /// Objects that the target held then.
    pub objects: u64,
    /// How many objects the target has, where the server has said so.
    pub expected: Option<u64>,
}

/// A target that does not fit into a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Which limit.
    pub overrun: Overrun,
    /// When it is tried again at the latest, as time since the start of the process. Room, or an edit of the
    /// profile, may come earlier. `None`: it is being tried.
    pub retry_at: Option<Duration>,
}

impl Limits {
    /// Checks `spec.limits`.
    ///
    /// # Errors
    ///
    /// [`Invalid`] for a count below 1 or a text that is no quantity.
    pub(super) fn parse(limits: Option<&v1alpha1::Limits>) -> Result<Self, Invalid> {
        let Some(v1alpha1::Limits { max_objects, max_memory }) = limits else {
            return Ok(Self::default());
        };
        let positive = |count: &i64| {
            u64::try_from(*count).ok().filter(|&count| count > 0).ok_or_else(|| {
                let problem = format!("{count} is not a count from 1 on");
                Invalid::malformed("spec.limits.maxObjects", problem)
            })
        };
        let quantity = |memory: &v1alpha1::Quantity| {
            let text = memory.to_string();
            parse_quantity(&text).filter(|&bytes| bytes > 0).ok_or_else(|| {
                let problem = format!("{text:?} is not a quantity such as \"200Mi\"");
                Invalid::malformed("spec.limits.maxMemory", problem)
            })
        };
        Ok(Self {
            max_objects: max_objects.as_ref().map(positive).transpose()?,
            max_bytes: max_memory.as_ref().map(quantity).transpose()?,
        })
    }

    /// Whether there is any limit.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.max_objects.is_some() || self.max_bytes.is_some()
    }
}

impl Limited {
    /// Whether its cells are stopped now.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.retry_at.is_some()
    }
}

impl Measure {
    /// The condition's `reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Objects => "ObjectsExceeded",
            Self::Memory => "MemoryExceeded",
        }
    }

    /// So much of it, for people: `10000 objects`, `200Mi`.
    #[must_use]
    pub fn amount(self, count: u64) -> String {
        match self {
            Self::Objects => format!("{count} objects"),
            Self::Memory => mebibytes(count),
        }
    }
}

impl fmt::Display for Overrun {
    /// The held and the allowed, for people: `10013 objects beside 500 objects of others, 10000 objects allowed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, limit, reached, others, .. } = self;
        let [reached, others, limit] = [reached, others, limit].map(|it| measure.amount(*it));
        write!(f, "{reached} beside {others} of others, {limit} allowed")
    }
}
