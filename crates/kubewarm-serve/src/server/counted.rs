//! What a connection is counted by: its address, until it has carried an accepted request, and then its user.

use kubewarm_client::KeyedPermit;
use std::cell::{Cell, RefCell};

/// What one connection is counted by.
#[derive(Debug)]
pub(super) struct ConnectionCount {
    /// Whether a request was accepted: its credentials were, and it was allowed.
    is_accepted: Cell<bool>,
    is_of_user: Cell<bool>,
    place: RefCell<KeyedPermit>,
}

impl ConnectionCount {
    /// Of a connection of which nobody knows yet whose it is.
    pub(super) fn of_address(place: KeyedPermit) -> Self {
        let (is_accepted, is_of_user) = (Cell::default(), Cell::default());
        Self { is_accepted, is_of_user, place: RefCell::new(place) }
    }

    /// A request was accepted, and its user has `place` for one more connection. Where there is none, it still counts by
    /// its address.
    pub(super) fn accept(&self, place: impl FnOnce() -> Option<KeyedPermit>) {
        self.is_accepted.set(true);
        if !self.is_of_user.get()
            && let Some(place) = place()
        {
            *self.place.borrow_mut() = place;
            self.is_of_user.set(true);
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_client::KeyedSemaphore;

    #[test]
    fn a_connection_counts_by_its_address_until_its_user_has_a_place_for_it() {
        let (addresses, users) = (KeyedSemaphore::new(9, 1), KeyedSemaphore::new(9, 1));
        let new = || addresses.try_acquire(&"10.0.0.7").map(ConnectionCount::of_address);
        let first = new().unwrap();
        assert!(new().is_none() && !first.is_accepted());
        first.accept(|| users.try_acquire(&"jane"));
        // Once and for all.
        first.accept(|| unreachable!());
        let second = new().unwrap();
        second.accept(|| users.try_acquire(&"jane"));
        assert!(second.is_accepted() && new().is_none(), "jane has one already");
        drop(first);
        second.accept(|| users.try_acquire(&"jane"));
        assert!(users.try_acquire(&"jane").is_none() && new().is_some());
    }
}
