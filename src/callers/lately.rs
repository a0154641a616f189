//! Who was let in lately: asked about before all others, with whatever token, and whatever they ask.

use super::tags::Tag;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// How long whoever was let in is asked about before the others: whoever comes back after a restart is.
pub(super) const LATELY: Duration = Duration::from_mins(10);

/// Users that were let in lately.
#[derive(Debug)]
pub(super) struct Lately {
    /// Who comes beyond these takes the place of the one who was let in first.
    most: usize,
    ends: Mutex<HashMap<Tag, Instant>>,
}

impl Lately {
    /// Nobody was.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ends: Mutex::default() }
    }

    /// `user` has just been let in, as the API server decided.
    ///
    /// # Cost
    ///
    /// As many steps as there are users, if there is no place left.
    pub(super) fn let_in(&self, user: Tag, now: Instant) {
        let mut ends = self.ends.lock();
        if ends.len() >= self.most && !ends.contains_key(&user) {
            ends.retain(|_, end| now < *end);
            let first = ends.iter().min_by_key(|(_, end)| **end).map(|(&user, _)| user);
            if let Some(first) = first.filter(|_| ends.len() >= self.most) {
                ends.remove(&first);
            }
        }
        ends.insert(user, now + LATELY);
    }

    /// Whether `user` was let in within [`LATELY`].
    pub(super) fn has(&self, user: &Tag, now: Instant) -> bool {
        self.ends.lock().get(user).is_some_and(|end| now < *end)
    }
}

#[cfg(test)]
impl Lately {
    pub(super) fn len(&self) -> usize {
        self.ends.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::tags::sample::tag;

    #[test]
    fn so_many_are_known_for_ten_minutes_and_the_first_makes_room() {
        let (lately, start) = (Lately::new(3), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, user) in (0..).zip([1, 2, 3, 1]) {
            lately.let_in(tag(user), at(seconds));
        }
        let known = |now| [1, 2, 3, 4].map(|user| lately.has(&tag(user), now));
        assert_eq!(known(at(601)), [true, false, true, false]);
        lately.let_in(tag(4), at(10));
        assert_eq!(known(at(10)), [true, false, true, true], "the second came first");
        lately.let_in(tag(2), at(605));
        assert_eq!(lately.len(), 2, "nothing is kept of those whose time is over");
        assert_eq!(known(at(605)), [false, true, false, true]);
    }
}
