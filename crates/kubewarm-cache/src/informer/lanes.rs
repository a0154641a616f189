//! One request at a time for what several ask: the others wait for its answer, and share it.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc};
use tokio::time::Instant;

/// Remembers the last answer to each question. Bounded by what is asked and not forgotten.
#[derive(Debug)]
pub(super) struct Lanes<Q, A>(Mutex<HashMap<Q, Arc<Lane<A>>>>);

/// The last answer to one question. One asks at a time.
#[derive(Debug)]
pub(super) struct Lane<A>(tokio::sync::Mutex<Option<Sighting<A>>>);

#[derive(Debug)]
struct Sighting<A> {
    asked_at: Instant,
    answered_at: Instant,
    /// A failure is shared as well: those who wait for the same answer do not each wait anew.
    seen: A,
}

impl<Q, A> Default for Lanes<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<A> Default for Lane<A> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::default())
    }
}

impl<A: Clone> Lane<A> {
    /// See [`Lanes::ask`].
    pub(super) async fn ask(
        &self,
        since: Instant,
        is_answer: impl FnOnce(&A) -> bool,
        ask: impl Future<Output = A>,
    ) -> A {
        let waiting_since = Instant::now();
        let mut last = self.0.lock().await;
        if let Some(sighting) = last.as_ref().filter(|sighting| sighting.asked_at > since)
            && (is_answer(&sighting.seen) || sighting.answered_at >= waiting_since)
        {
            return sighting.seen.clone();
        }
        let asked_at = Instant::now();
        let seen = ask.await;
        *last = Some(Sighting { asked_at, answered_at: Instant::now(), seen: seen.clone() });
        seen
    }
}

impl<Q: Eq + Hash, A: Clone> Lanes<Q, A> {
    /// The answer to a request that was sent after `since`: that of somebody else, or of `ask`.
    ///
    /// One that is not an answer, as `is_answer` has it, is shared by those who waited for it alone:
    /// whoever comes later asks again, since it is of no use to a retry.
    pub(super) async fn ask(
        &self,
        question: Q,
        since: Instant,
        is_answer: impl FnOnce(&A) -> bool,
        ask: impl Future<Output = A>,
    ) -> A {
        let lane = Arc::clone(self.0.lock().entry(question).or_default());
        lane.ask(since, is_answer, ask).await
    }

    /// Forgets what nobody asks any more.
    pub(super) fn retain(&self, is_asked: impl Fn(&Q) -> bool) {
        self.0.lock().retain(|question, _| is_asked(question));
    }

    /// Forgets one question.
    pub(super) fn forget(&self, question: &Q) {
        self.0.lock().remove(question);
    }
}
