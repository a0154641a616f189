//! What a connection is counted by: its address, until it has carried an accepted request, and then its user.

use actix_web::{HttpMessage as _, HttpRequest};
use kubewarm_client::KeyedPermit;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// What one connection is counted by. Clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCount(Rc<Count>);

#[derive(Debug, Default)]
struct Count {
    /// Whether a request was accepted: its credentials were, and it was allowed.
    is_accepted: Cell<bool>,
    is_of_user: Cell<bool>,
    place: RefCell<Option<KeyedPermit>>,
}

impl ConnectionCount {
    /// Of a connection of which nobody knows yet whose it is.
    pub(super) fn of_address(place: KeyedPermit) -> Self {
        Self(Rc::new(Count { place: RefCell::new(Some(place)), ..Count::default() }))
    }

    /// A request was accepted, and its user has `place` for one more connection. Where there is none, it still counts by
    /// its address.
    pub(super) fn accept(&self, place: impl FnOnce() -> Option<KeyedPermit>) {
        self.0.is_accepted.set(true);
        if !self.0.is_of_user.get()
            && let Some(place) = place()
        {
            self.0.place.replace(Some(place));
            self.0.is_of_user.set(true);
        }
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.0.is_accepted.get()
    }
}

/// `request` is accepted, and its user has `place` for one more connection.
pub(super) fn accept(request: &HttpRequest, place: impl FnOnce() -> Option<KeyedPermit>) {
    if let Some(connection) = request.extensions().get::<ConnectionCount>() {
        connection.accept(place);
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
