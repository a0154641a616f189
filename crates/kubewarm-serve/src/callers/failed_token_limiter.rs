//! Limits the invalid tokens that each client address can send, so that a client that guesses
//! tokens does not delay other clients.

use super::{CallerRejection, ReadLimit, network::network};
use kubewarm_client::{KeyedPermit, KeyedSemaphore, KeyedTokenBucket};
use std::{net::IpAddr, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// After this interval, a client address can send one more invalid token.
const REFILL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of invalid tokens that a client address can send at once.
const BURST: u32 = 10;
/// All addresses of an IPv6 /64 together can send as many invalid tokens as this number of
/// addresses. So one pod cannot use up the limit of its node, and a host with a whole /64 cannot
/// guess without a limit.
const NETWORK_FACTOR: u32 = 4;
/// If an address can send fewer invalid tokens than this number, kubewarm reviews only one token of
/// the address at a time. Otherwise the address could fill the queue of TokenReviews with invalid
/// tokens.
const FEW_LEFT: u32 = BURST / 2;

/// Counts how many invalid tokens each address can still send. The limiter removes the entries of
/// addresses without recent invalid tokens. So memory use grows only with the number of
/// TokenReviews that fail within about a second, which `network_failures` limits for each /64.
#[derive(Debug)]
pub(super) struct FailedTokenLimiter {
    failures: KeyedTokenBucket<IpAddr>,
    /// As `failures`, for each IPv6 /64.
    network_failures: KeyedTokenBucket<IpAddr>,
    /// Permits one TokenReview at a time for each address, or each IPv6 /64, that can send fewer
    /// than `FEW_LEFT` invalid tokens.
    few: KeyedSemaphore<IpAddr>,
}

impl FailedTokenLimiter {
    /// Lets the address `peer` try a token. If the result contains a permit, the address can try
    /// its next token only after this permit is dropped.
    ///
    /// # Errors
    ///
    /// [`CallerRejection::Limited`] in two cases:
    ///
    /// - the address can send no invalid token now, or all addresses of its IPv6 /64 can send none
    /// - the address can send fewer than `FEW_LEFT` invalid tokens, and a TokenReview of one of its
    ///   tokens has not ended
    pub(super) fn acquire_attempt(
        &self,
        peer: IpAddr,
        now: Instant,
    ) -> Result<Option<KeyedPermit>, CallerRejection> {
        const LIMITED: CallerRejection = CallerRejection::Limited(ReadLimit::FailedTokens);
        let of_network = network(&peer)
            .map_or(u32::MAX, |network| self.network_failures.available(&network, now));
        let of_address = self.failures.available(&peer, now);
        let key = network(&peer).filter(|_| of_network < FEW_LEFT).unwrap_or(peer);
        match of_address.min(of_network) {
            0 => Err(LIMITED),
            left if left < FEW_LEFT => self.few.try_acquire(&key).map(Some).ok_or(LIMITED),
            _ => Ok(None),
        }
    }

    pub(super) fn record_failure(&self, peer: IpAddr, now: Instant) {
        self.failures.charge(&peer, 1, now);
        if let Some(network) = network(&peer) {
            self.network_failures.charge(&network, 1, now);
        }
    }
}

impl Default for FailedTokenLimiter {
    fn default() -> Self {
        let few = KeyedSemaphore::new(Semaphore::MAX_PERMITS, 1);
        Self {
            failures: KeyedTokenBucket::new(REFILL_INTERVAL, BURST),
            network_failures: KeyedTokenBucket::new(
                REFILL_INTERVAL / NETWORK_FACTOR,
                BURST * NETWORK_FACTOR,
            ),
            few,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_can_fail_ten_times_a_second_without_effect_on_others() {
        let (failed, start) = (FailedTokenLimiter::default(), Instant::now());
        let [address, other] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let fails = |after| {
            let now = start + after;
            let tries = std::iter::from_fn(|| failed.acquire_attempt(address, now).ok());
            tries.inspect(|_| failed.record_failure(address, now)).count()
        };
        assert_eq!(fails(Duration::ZERO), 10);
        assert!(failed.acquire_attempt(other, start).is_ok());
        assert_eq!(fails(Duration::from_millis(99)), 0);
        assert_eq!(fails(Duration::from_millis(500)), 5);
        assert_eq!(fails(Duration::from_mins(1)), 10);
    }

    #[test]
    fn a_pod_leaves_failures_to_its_nodes_pods_and_a_whole_ipv6_network_has_a_limit() {
        let (failed, now) = (FailedTokenLimiter::default(), Instant::now());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let fails = |peer: IpAddr| {
            let tries = std::iter::from_fn(|| failed.acquire_attempt(peer, now).ok());
            tries.inspect(|_| failed.record_failure(peer, now)).count()
        };
        let of_network = (1..=8).map(|pod| fails(address(&format!("2001:db8::{pod}"))));
        assert_eq!(of_network.collect::<Vec<_>>(), [10, 10, 10, 10, 0, 0, 0, 0]);
        assert_eq!(fails(address("2001:db8:0:1::1")), 10);
        assert_eq!(fails(address("10.0.0.1")), 10);
    }

    #[test]
    fn with_few_failures_left_an_address_tries_one_token_at_a_time() {
        let (failed, now) = (FailedTokenLimiter::default(), Instant::now());
        let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        assert!(
            (0..50)
                .all(|_| failed.acquire_attempt(address, now).is_ok_and(|permit| permit.is_none()))
        );
        for _ in 0..6 {
            failed.record_failure(address, now);
        }
        let trying: Vec<_> =
            (0..50).filter_map(|_| failed.acquire_attempt(address, now).ok()).collect();
        assert_eq!(trying.len(), 1);
        drop(trying);
        assert!(failed.acquire_attempt(address, now).is_ok());
    }
}
