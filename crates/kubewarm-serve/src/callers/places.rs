//! How many are let in at once: bounded, and fair between the addresses they come from, or between
//! whatever else tells them apart.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// What bounds by address count by: an IPv4 address, or the /64 network of an IPv6 address, since whoever has one
/// IPv6 address usually has all of its /64.
#[must_use]
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// The places that are taken, by the address or whatever else one is known by.
#[derive(Clone, Debug)]
pub struct Places<K> {
    all: Arc<Semaphore>,
    of_one: usize,
    /// Bounded by those who hold or wait for a place: others are forgotten when the next one comes.
    each: Arc<Mutex<HashMap<K, Weak<Semaphore>>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Place {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// So many places, and no more than `of_one` for each.
    #[must_use]
    pub fn new(all: usize, of_one: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_one, each: Arc::default() }
    }

    /// A place for `one`, if there is one.
    #[must_use]
    pub fn take(&self, one: K) -> Option<Place> {
        let of_one = self.of(one).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _of_one: of_one, _of_all: of_all })
    }

    /// The same, waiting for a turn for at most `patience`. Turns come in the order of asking.
    pub async fn wait(&self, one: K, patience: Duration) -> Option<Place> {
        if let Some(place) = self.take(one) {
            return Some(place);
        }
        let turn = async {
            let of_one = self.of(one).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Place { _of_one: of_one, _of_all: of_all })
        };
        timeout(patience, turn).await.ok().flatten()
    }

    fn of(&self, one: K) -> Arc<Semaphore> {
        let mut each = self.each.lock();
        if let Some(of_one) = each.get(&one).and_then(Weak::upgrade) {
            return of_one;
        }
        each.retain(|_, of_one| of_one.strong_count() > 0);
        let of_one = Arc::new(Semaphore::new(self.of_one));
        each.insert(one, Arc::downgrade(&of_one));
        of_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const MAX_PLACES: usize = 32;
    const MAX_OF_ADDRESS: usize = 4;

    fn places() -> Places<IpAddr> {
        Places::new(MAX_PLACES, MAX_OF_ADDRESS)
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn one_address_leaves_room_for_the_others() {
        let places = places();
        let held: Vec<_> = (0..10).filter_map(|_| places.take(address(1))).collect();
        assert_eq!(held.len(), MAX_OF_ADDRESS);
        let other = places.take(address(2));
        assert!(other.is_some());
        drop((held, other));
        let held = places.take(address(3));
        assert_eq!(places.each.lock().len(), 1, "nothing is kept of those who are gone");
        drop(held);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_its_part() {
        let places = places();
        let take = |peer: &str| places.take(network(peer.parse().unwrap()));
        let held: Vec<_> =
            (0..10).filter_map(|n| take(&format!("2001:db8:0:1:{n}::{n}"))).collect();
        assert_eq!(held.len(), MAX_OF_ADDRESS);
        let other = take("2001:db8:0:2::1");
        assert!(other.is_some(), "another network has a part of its own");
        for (peer, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
        ] {
            let [peer, expected] = [peer, expected].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(network(peer), expected);
        }
    }

    #[test]
    fn all_together_are_bounded() {
        let places = places();
        let held: Vec<_> = (0..100).filter_map(|last| places.take(address(last))).collect();
        assert_eq!(held.len(), MAX_PLACES);
        drop(held);
        assert!(places.take(address(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_next_place_or_none_in_time() {
        let places = places();
        let patience = Duration::from_secs(3);
        let mut held: Vec<_> = (0..4).filter_map(|_| places.take(address(1))).collect();
        assert!(places.wait(address(1), patience).await.is_none());
        assert!(places.wait(address(1), Duration::ZERO).await.is_none());
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.wait(address(1), patience).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.pop();
        assert!(waiting.await.unwrap().is_some());
        assert!(places.wait(address(2), patience).await.is_some(), "others do not wait for it");
    }
}
