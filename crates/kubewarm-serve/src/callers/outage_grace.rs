//! Keeps positive decisions about callers while the API server does not answer
//! (`--outage-grace-period`).

use kubewarm_client::ServerReachability;
use std::time::Duration;
use tokio::time::Instant;

/// The API server counts as away if it has answered no request of this process that was sent in
/// this time. Each replica requests the Lease at least every two seconds, so a healthy API server
/// answers more often.
const MIN_SILENCE: Duration = Duration::from_secs(5);

/// Whether and how long a decision of the API server holds beyond its usual age.
///
/// During an outage, nobody can revoke a permission at the API server. So a decision that was
/// positive when the outage began is as good as a new one. But the outage can also be one of the
/// network between kubewarm and the API server, and then a revocation has no effect here until the
/// grace period ends. So the period is zero by default.
#[derive(Clone, Debug, Default)]
pub(super) struct OutageGrace {
    period: Duration,
    reachability: ServerReachability,
}

impl OutageGrace {
    /// Keeps decisions for at most `period` after the last answer of the API server. With zero, no
    /// decision is kept.
    pub(super) fn new(period: Duration, reachability: ServerReachability) -> Self {
        Self { period, reachability }
    }

    /// Whether a positive decision of the time `decided_at` holds now, because it was at most
    /// `max_age` old when the current outage began. `false` without an outage, and after the grace
    /// period.
    pub(super) fn keeps(&self, decided_at: Instant, max_age: Duration) -> bool {
        if self.period.is_zero() {
            return false;
        }
        // The API server was last seen when kubewarm sent the last request that it answered.
        let Some(began_at) = self.reachability.last_answer() else { return false };
        let silence = began_at.elapsed();
        silence >= MIN_SILENCE && silence < self.period && decided_at + max_age >= began_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_kept_only_during_an_outage_and_only_for_the_period() {
        let (reachability, age) = (ServerReachability::default(), Duration::from_secs(30));
        let grace = OutageGrace::new(Duration::from_mins(10), reachability.clone());
        let earliest = Instant::now();
        advance(age).await;
        assert!(!grace.keeps(Instant::now(), age), "the API server never answered");
        let began = Instant::now();
        reachability.record_answer(began);
        for (after, expected) in [(0, false), (4, false), (5, true), (599, true), (600, false)] {
            advance((began + Duration::from_secs(after)).duration_since(Instant::now())).await;
            assert_eq!(grace.keeps(began, age), expected, "{after}");
            assert_eq!(grace.keeps(earliest, age), expected, "{after}");
            let too_old = Duration::from_secs(29);
            assert!(!grace.keeps(earliest, too_old), "not positive when the outage began");
        }
        reachability.record_answer(Instant::now());
        assert!(!grace.keeps(Instant::now(), age), "the outage is over");
        advance(Duration::from_secs(6)).await;
        assert!(!grace.keeps(began, age), "the next outage begins later");
        let none = OutageGrace::new(Duration::ZERO, reachability);
        assert!(!none.keeps(Instant::now(), age));
    }
}
