//! Credentials that were not accepted: whoever tries tokens tries few.

use parking_lot::Mutex;
use std::{collections::HashMap, net::IpAddr, time::Duration};
use tokio::time::Instant;

/// One address can fail so often.
const EVERY: Duration = Duration::from_millis(100);
/// So many at once.
const BURST: u32 = 10;
/// Addresses that are remembered before those are forgotten whose bucket is full again.
const MANY: usize = 1_024;

/// A bucket of failures for each address: when it will be full again. It is bounded by the reviews that fail within a
/// second.
#[derive(Debug, Default)]
pub(super) struct FailedTokens(Mutex<HashMap<IpAddr, Instant>>);

impl FailedTokens {
    /// Draws one failure for `peer`; `false` if its bucket is empty.
    pub(super) fn draw(&self, peer: IpAddr, now: Instant) -> bool {
        let mut full_at = self.0.lock();
        let after = full_at.get(&peer).map_or(now, |at| (*at).max(now)) + EVERY;
        if after > now + EVERY * BURST {
            return false;
        }
        if full_at.len() >= MANY {
            full_at.retain(|_, at| *at > now);
        }
        full_at.insert(peer, after);
        true
    }

    /// Puts back what was drawn for `peer`: it was no failure.
    pub(super) fn put_back(&self, peer: IpAddr) {
        if let Some(at) = self.0.lock().get_mut(&peer) {
            *at -= EVERY;
        }
    }

    /// Whether nothing is left for `peer`.
    pub(super) fn is_spent(&self, peer: IpAddr, now: Instant) -> bool {
        self.0.lock().get(&peer).is_some_and(|at| *at + EVERY > now + EVERY * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_fails_ten_times_a_second_and_leaves_the_others_theirs() {
        let (failed, start) = (FailedTokens::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let drawn = |after| (0..20).filter(|_| failed.draw(one, start + after)).count();
        assert_eq!(drawn(Duration::ZERO), 10);
        assert!(failed.is_spent(one, start) && !failed.is_spent(other, start));
        assert!(failed.draw(other, start));
        failed.put_back(one);
        assert!(!failed.is_spent(one, start));
        assert_eq!(drawn(Duration::ZERO), 1);
        assert_eq!(drawn(Duration::from_millis(500)), 5);
        assert_eq!(drawn(Duration::from_mins(1)), 10);
    }

    #[test]
    fn addresses_are_forgotten_once_they_may_fail_again() {
        let (failed, start) = (FailedTokens::default(), Instant::now());
        for n in 0..3 * u32::try_from(MANY).unwrap() {
            assert!(failed.draw(Ipv4Addr::from_bits(n).into(), start + EVERY * 2 * n));
        }
        assert!(failed.0.lock().len() <= MANY);
    }
}
