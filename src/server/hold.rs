//! An answer that is kept for a moment, so that asking for it often costs no more than once.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How old an answer may be: nobody scrapes or probes more often than once in a second.
const AGE: Duration = Duration::from_secs(1);

/// The last answer, and when it was made.
#[derive(Debug)]
pub(super) struct Hold<T>(Mutex<Option<(Instant, T)>>);

impl<T: Clone> Hold<T> {
    /// The last answer, or one that `make` makes if that is a second old. An answer that is not `kept` is made again for
    /// the next caller.
    ///
    /// Other callers wait until it is made, so that it is made once.
    pub(super) fn get(
        &self,
        now: Instant,
        kept: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> T {
        let mut held = self.0.lock();
        if let Some((made, answer)) = &*held
            && now.saturating_duration_since(*made) < AGE
        {
            return answer.clone();
        }
        let answer = make();
        if kept(&answer) {
            *held = Some((now, answer.clone()));
        }
        answer
    }
}

impl<T> Default for Hold<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_made_once_in_a_second() {
        let (hold, start) = (Hold::default(), Instant::now());
        let at =
            |millis, answer| hold.get(start + Duration::from_millis(millis), |_| true, || answer);
        assert_eq!(at(0, 'a'), 'a');
        assert_eq!(at(999, 'b'), 'a');
        assert_eq!(at(1_000, 'c'), 'c');
        assert_eq!(at(1_001, 'd'), 'c');
    }

    #[test]
    fn an_answer_that_is_not_kept_is_made_for_each_who_asks() {
        let (hold, now) = (Hold::default(), Instant::now());
        let of = |answer| hold.get(now, |answer| *answer != 'a', || answer);
        assert_eq!([of('a'), of('b'), of('c')], ['a', 'b', 'b']);
    }
}
