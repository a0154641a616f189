//! Connections of which nobody knows yet whose they are. Where there is no place left, the one that came first makes
//! room for the next: whoever only holds places keeps nobody out.

use crate::callers::Place;
use actix_web::{HttpMessage as _, HttpRequest};
use parking_lot::Mutex;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Those connections, bounded by the places that there are for connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Newcomers(Arc<Mutex<Line>>);

/// In the order in which they came.
#[derive(Debug, Default)]
struct Line {
    came: u64,
    ends: BTreeMap<u64, CancellationToken>,
}

/// A connection among them: until it is dropped, once somebody is known who calls over it.
#[derive(Debug)]
pub(super) struct Newcomer {
    among: Newcomers,
    number: u64,
}

/// Of a request: what tells its connection that it is known who calls, as soon as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Introduction(Rc<RefCell<Connection>>);

/// Whose a connection is.
#[derive(Debug)]
enum Connection {
    Nobodys {
        _newcomer: Option<Newcomer>,
    },
    /// Somebody's, with a place among theirs.
    Somebodys {
        _place: Place,
    },
}

impl Introduction {
    /// Of a newcomer, once and for all requests.
    pub(super) fn of(newcomer: Newcomer) -> Self {
        Self(Rc::new(RefCell::new(Connection::Nobodys { _newcomer: Some(newcomer) })))
    }

    /// They are known, and their connections have `place` for one more; where there is none, it stays a newcomer.
    pub(super) fn make(&self, place: impl FnOnce() -> Option<Place>) {
        let mut connection = self.0.borrow_mut();
        if matches!(*connection, Connection::Nobodys { .. })
            && let Some(place) = place()
        {
            *connection = Connection::Somebodys { _place: place };
        }
    }
}

/// It is known whose `request` is, and that they may; their connections have `place` for one more.
pub(super) fn introduce(request: &HttpRequest, place: impl FnOnce() -> Option<Place>) {
    if let Some(introduction) = request.extensions().get::<Introduction>() {
        introduction.make(place);
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::Nobodys { _newcomer: None }
    }
}

impl Newcomers {
    /// Enters a connection, which must end when the token says so.
    pub(super) fn enter(&self) -> (Newcomer, CancellationToken) {
        let mut line = self.0.lock();
        let (number, end) = (line.came, CancellationToken::new());
        line.came += 1;
        line.ends.insert(number, end.clone());
        (Newcomer { among: self.clone(), number }, end)
    }

    /// Has the one end that came first, if there is one.
    pub(super) fn end_first(&self) -> bool {
        let first = self.0.lock().ends.pop_first();
        first.inspect(|(_, end)| end.cancel()).is_some()
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.among.0.lock().ends.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::Places;

    #[test]
    fn a_connection_is_a_newcomer_until_there_is_a_place_for_it() {
        let (newcomers, places) = (Newcomers::default(), Places::new(9, 1));
        let (first, _) = newcomers.enter();
        let (second, of_second) = newcomers.enter();
        let (first, second) = (Introduction::of(first), Introduction::of(second));
        first.make(|| places.take("jane"));
        // Once and for all.
        first.make(|| unreachable!());
        second.make(|| places.take("jane"));
        assert!(newcomers.end_first() && of_second.is_cancelled());
        drop(first);
        second.make(|| places.take("jane"));
        assert!(places.take("jane").is_none() && !newcomers.end_first());
    }

    #[test]
    fn who_came_first_goes_first_and_who_is_known_stays() {
        let newcomers = Newcomers::default();
        let (known, of_known) = newcomers.enter();
        let (_first, of_first) = newcomers.enter();
        let (gone, _) = newcomers.enter();
        let (_last, of_last) = newcomers.enter();
        drop((known, gone));
        let ended = || [&of_known, &of_first, &of_last].map(CancellationToken::is_cancelled);
        assert_eq!(ended(), [false, false, false]);
        assert!(newcomers.end_first());
        assert_eq!(ended(), [false, true, false]);
        assert!(newcomers.end_first() && !newcomers.end_first());
        assert_eq!(ended(), [false, true, true]);
    }
}
