//! What a profile wants served of data that may not be read any more.

use std::time::Duration;

/// How long the memory of a cell outlasts the end of its serving: access that was lost by mistake
/// is back by then, and a list that finds most objects unchanged is cheap.
const MEMORY: Duration = Duration::from_mins(10);

/// `serving.onAccessLost` and `serving.accessLostGraceSeconds`. A profile's own: cells that it shares
/// answer others by their policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAccessLost {
    /// Nothing, once access has been lost for so long.
    Fence {
        /// Up to an hour.
        grace: Duration,
    },
    /// What was held when access was last verified, as long as it takes.
    ServeStale,
}

impl OnAccessLost {
    /// Whether a cell may answer of which access was lost `lost_for` ago; `None`: it was not, or a
    /// complete list has followed.
    #[must_use]
    pub fn serves(self, lost_for: Option<Duration>) -> bool {
        match (self, lost_for) {
            (_, None) | (Self::ServeStale, _) => true,
            (Self::Fence { grace }, Some(lost_for)) => lost_for < grace,
        }
    }

    /// How long after the loss the cell is kept in memory; [`Duration::MAX`] is for good.
    #[must_use]
    pub fn keeps(self) -> Duration {
        match self {
            Self::Fence { grace } => grace.saturating_add(MEMORY),
            Self::ServeStale => Duration::MAX,
        }
    }
}

impl Default for OnAccessLost {
    fn default() -> Self {
        Self::Fence { grace: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_read_any_more_is_served_for_the_grace_and_no_longer() {
        let second = Duration::from_secs(1);
        let grace = OnAccessLost::Fence { grace: second * 30 };
        for (policy, lost_for, expected) in [
            (OnAccessLost::default(), None, true),
            (OnAccessLost::default(), Some(Duration::ZERO), false),
            (grace, Some(second * 29), true),
            (grace, Some(second * 30), false),
            (OnAccessLost::ServeStale, Some(Duration::MAX), true),
        ] {
            assert_eq!(policy.serves(lost_for), expected, "{policy:?} {lost_for:?}");
        }
    }

    #[test]
    fn memory_outlasts_the_grace_by_ten_minutes() {
        assert_eq!(OnAccessLost::default().keeps(), Duration::from_mins(10));
        let grace = OnAccessLost::Fence { grace: Duration::from_hours(1) };
        assert_eq!(grace.keeps(), Duration::from_mins(70));
    }
}
