//! How many callers are asked about at once: bounded, and fair between those who call.

use parking_lot::Mutex;
use std::{collections::HashMap, net::IpAddr, sync::Arc};

/// Callers at once; each is two small requests to the API server.
const MAX_PLACES: usize = 32;
/// Of one address: whoever tries tokens leaves room for those who scrape.
const MAX_OF_ADDRESS: usize = 4;

/// The places that are taken, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub(super) struct Place {
    places: Places,
    of: IpAddr,
}

impl Places {
    /// A place for a caller at `address`, if there is one.
    pub(super) fn take(&self, address: IpAddr) -> Option<Place> {
        let mut taken = self.0.lock();
        if taken.values().sum::<usize>() >= MAX_PLACES {
            return None;
        }
        let own = taken.entry(address).or_default();
        if *own >= MAX_OF_ADDRESS {
            return None;
        }
        *own += 1;
        Some(Place { places: self.clone(), of: address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        if let Some(own) = taken.get_mut(&self.of) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn one_address_leaves_room_for_the_others() {
        let places = Places::default();
        let held: Vec<_> = (0..10).filter_map(|_| places.take(address(1))).collect();
        assert_eq!(held.len(), MAX_OF_ADDRESS);
        let other = places.take(address(2));
        assert!(other.is_some());
        drop((held, other));
        assert!(places.0.lock().is_empty(), "nothing is kept of those who are gone");
    }

    #[test]
    fn all_together_are_bounded() {
        let places = Places::default();
        let held: Vec<_> = (0..100).filter_map(|last| places.take(address(last))).collect();
        assert_eq!(held.len(), MAX_PLACES);
    }
}
