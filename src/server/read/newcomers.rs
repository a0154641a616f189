//! Connections of which nobody knows yet whose they are. Where there is no place left, the one that came first makes
//! room for the next: whoever only holds places keeps nobody out.

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
pub(super) struct Introduction(Rc<RefCell<Option<Newcomer>>>);

impl Introduction {
    /// Of a newcomer, once and for all requests.
    pub(super) fn of(newcomer: Newcomer) -> Self {
        Self(Rc::new(RefCell::new(Some(newcomer))))
    }

    /// They are known.
    pub(super) fn make(&self) {
        drop(self.0.take());
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
