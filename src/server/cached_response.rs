//! Caches a response of the admin server for one second, so that kubewarm computes the response at
//! most once per second.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum age of a cached response. No scraper or probe needs newer data.
const AGE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct CachedResponse<T>(Mutex<Option<(Instant, T)>>);

impl<T: Clone> CachedResponse<T> {
    /// Returns the cached response if it is younger than one second, or else a new response from
    /// `make`. Caches the new response only if `is_cacheable` returns true for this response.
    ///
    /// Concurrent callers wait for one call of `make` instead of computing the same response
    /// several times.
    pub(super) fn get(
        &self,
        now: Instant,
        is_cacheable: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> T {
        let mut entry = self.0.lock();
        if let Some((made, answer)) = &*entry
            && now.saturating_duration_since(*made) < AGE
        {
            return answer.clone();
        }
        let answer = make();
        if is_cacheable(&answer) {
            *entry = Some((now, answer.clone()));
        }
        answer
    }
}

impl<T> Default for CachedResponse<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_created_once_a_second() {
        let (hold, start) = (CachedResponse::default(), Instant::now());
        let at =
            |millis, answer| hold.get(start + Duration::from_millis(millis), |_| true, || answer);
        assert_eq!(at(0, 'a'), 'a');
        assert_eq!(at(999, 'b'), 'a');
        assert_eq!(at(1_000, 'c'), 'c');
        assert_eq!(at(1_001, 'd'), 'c');
    }

    #[test]
    fn a_response_that_is_not_cached_is_created_for_each_caller() {
        let (hold, now) = (CachedResponse::default(), Instant::now());
        let response = |answer| hold.get(now, |answer| *answer != 'a', || answer);
        assert_eq!([response('a'), response('b'), response('c')], ['a', 'b', 'b']);
    }
}
