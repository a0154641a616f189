//! Credentials that were not accepted: whoever tries tokens tries few.

use super::{ReadLimit, Refused};
use kubewarm_client::{KeyedBucket, KeyedPermit, KeyedSemaphore};
use std::{net::IpAddr, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// One address can fail so often.
const EVERY: Duration = Duration::from_millis(100);
/// So many at once.
const BURST: u32 = 10;
/// Where fewer are left, the address tries one token at a time: a crowd that waits for the next failure takes no room.
const FEW: u32 = BURST / 2;

/// How many failures each address has left. Bounded by the reviews that fail within a second.
#[derive(Debug)]
pub(super) struct FailedTokens {
    failures: KeyedBucket<IpAddr>,
    /// Of addresses that have few left.
    few: KeyedSemaphore<IpAddr>,
}

impl FailedTokens {
    /// Lets `peer` try a token. With few failures left, the address tries its next token once the permit is dropped.
    ///
    /// # Errors
    ///
    /// [`Refused::Limited`] for an address that has no failures left, or tries a token with few left.
    pub(super) fn attempt(
        &self,
        peer: IpAddr,
        now: Instant,
    ) -> Result<Option<KeyedPermit>, Refused> {
        const LIMITED: Refused = Refused::Limited(ReadLimit::FailedTokens);
        match self.failures.left(&peer, now) {
            0 => Err(LIMITED),
            left if left < FEW => self.few.try_acquire(&peer).map(Some).ok_or(LIMITED),
            _ => Ok(None),
        }
    }

    /// A token of `peer` was not accepted.
    pub(super) fn fail(&self, peer: IpAddr, now: Instant) {
        self.failures.charge(&peer, 1, now);
    }
}

impl Default for FailedTokens {
    fn default() -> Self {
        let few = KeyedSemaphore::new(Semaphore::MAX_PERMITS, 1);
        Self { failures: KeyedBucket::new(EVERY, BURST), few }
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
        let fails = |after| {
            let now = start + after;
            let tries = std::iter::from_fn(|| failed.attempt(one, now).ok());
            tries.inspect(|_| failed.fail(one, now)).count()
        };
        assert_eq!(fails(Duration::ZERO), 10);
        assert!(failed.attempt(other, start).is_ok());
        assert_eq!(fails(Duration::from_millis(99)), 0);
        assert_eq!(fails(Duration::from_millis(500)), 5);
        assert_eq!(fails(Duration::from_mins(1)), 10);
    }

    #[test]
    fn with_few_failures_left_an_address_tries_one_token_at_a_time() {
        let (failed, now) = (FailedTokens::default(), Instant::now());
        let one = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        assert!((0..50).all(|_| failed.attempt(one, now).is_ok_and(|permit| permit.is_none())));
        for _ in 0..6 {
            failed.fail(one, now);
        }
        let trying: Vec<_> = (0..50).filter_map(|_| failed.attempt(one, now).ok()).collect();
        assert_eq!(trying.len(), 1);
        drop(trying);
        assert!(failed.attempt(one, now).is_ok());
    }
}
