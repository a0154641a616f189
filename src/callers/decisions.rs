//! What the API server said of callers a moment ago, so that it is not asked about each request, and
//! what it is being asked.

use super::{
    lately::LATELY,
    tags::{Key, Tag},
};
use crate::cluster::{Verdict, Who};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// How long somebody who was allowed stays so: a right that is revoked ends within it.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long somebody who was refused stays so: a right that is granted counts after it.
const REFUSED: Duration = Duration::from_secs(5);

/// How often, at most, all answers are looked at for those that are good for nothing more.
const SWEEP: Duration = Duration::from_secs(1);

/// What is remembered.
pub(super) trait Kept: Clone + Send + Sync + 'static {
    /// How long it is known what was good for the caller, once that counts no more.
    const AFTERWARDS: Duration;

    /// Whether it is good for the caller.
    fn lets_in(&self) -> bool;

    /// Who it makes known, if the question does not say whom it is about.
    fn user(&self, key: &Key) -> Option<Tag>;
}

/// A question, as far as one is told from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuestionKey {
    pub(super) tag: Tag,
    /// Whom it is about, if that is known.
    pub(super) user: Option<Tag>,
}

/// An answer, and when the API server was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer<T> {
    pub(super) decision: T,
    pub(super) asked: Instant,
}

/// What is remembered of one question.
struct Held<T> {
    asked: Instant,
    ends: Instant,
    /// Whom it is about; nobody, if the API server knows no such token.
    user: Option<Tag>,
    decision: T,
}

/// Answers by tag, each until it ends, and questions that have none yet.
pub(super) struct Decisions<T, Q> {
    key: Arc<Key>,
    most: usize,
    held: HashMap<Tag, Held<T>>,
    /// Of each user the tags of what is held, in the order in which it makes room.
    by_user: HashMap<Option<Tag>, BTreeSet<Rank>>,
    swept: Option<Instant>,
    /// Bounded by the places of those who wait for an answer: each keeps one until it has come, whoever has left.
    posed: HashMap<Tag, Q>,
}

/// Of a user's answers refusals make room first, then what ends first.
type Rank = (bool, Instant, Tag);

impl<T: Kept> Held<T> {
    fn forgotten(&self) -> Instant {
        if self.decision.lets_in() { self.ends + T::AFTERWARDS } else { self.ends }
    }

    fn rank(&self, tag: Tag) -> Rank {
        (self.decision.lets_in(), self.ends, tag)
    }
}

impl Kept for Who {
    /// Whose token it was tells whether they were let in.
    const AFTERWARDS: Duration = LATELY;

    fn lets_in(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    fn user(&self, key: &Key) -> Option<Tag> {
        match self {
            Self::Known(user) => Some(key.of_name(user)),
            Self::Unknown | Self::Refused { .. } => None,
        }
    }
}

impl Kept for Verdict {
    const AFTERWARDS: Duration = Duration::ZERO;

    fn lets_in(&self) -> bool {
        *self == Self::Allowed
    }

    fn user(&self, _: &Key) -> Option<Tag> {
        None
    }
}

impl<T: Kept, Q: Clone> Decisions<T, Q> {
    /// Nothing is known yet, and never more than `most` answers are; users are told apart by `key`.
    pub(super) fn new(most: usize, key: Arc<Key>) -> Self {
        Self {
            key,
            most,
            held: HashMap::new(),
            by_user: HashMap::new(),
            swept: None,
            posed: HashMap::new(),
        }
    }

    /// What was decided, if that still counts.
    pub(super) fn get(&self, tag: &Tag, now: Instant) -> Option<Answer<T>> {
        let Held { asked, ends, decision, .. } = self.held.get(tag)?;
        (now < *ends).then(|| Answer { decision: decision.clone(), asked: *asked })
    }

    /// What was decided, if that is good for the caller and still known. Good for nothing but the order in which
    /// questions are asked.
    pub(super) fn was(&self, tag: &Tag, now: Instant) -> Option<&T> {
        let held = self.held.get(tag)?;
        (held.decision.lets_in() && now < held.forgotten()).then_some(&held.decision)
    }

    /// Remembers what was decided about what was asked at `asked`.
    pub(super) fn put(
        &mut self,
        QuestionKey { tag, user }: QuestionKey,
        Answer { decision, asked }: Answer<T>,
    ) {
        if self.held.len() >= self.most && !self.held.contains_key(&tag) {
            self.make_room(asked);
        }
        let life = if decision.lets_in() { ALLOWED } else { REFUSED };
        let user = user.or_else(|| decision.user(&self.key));
        self.hold(tag, Held { asked, ends: asked + life, user, decision });
    }

    /// Drops what is good for nothing. If all is good for something, an answer goes that is about nobody, else one about
    /// whoever has most: nobody has others forgotten, be it by trying tokens or by asking for names.
    fn make_room(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| swept + SWEEP <= now) {
            self.swept = Some(now);
            let ended = self.held.iter().filter(|(_, held)| held.forgotten() <= now);
            for tag in ended.map(|(&tag, _)| tag).collect::<Vec<_>>() {
                self.remove(tag);
            }
        }
        if self.held.len() < self.most {
            return;
        }
        let most = self
            .by_user
            .iter()
            .max_by_key(|(user, theirs)| (user.is_none(), theirs.len(), Reverse(theirs.first())));
        if let Some(&(.., tag)) = most.and_then(|(_, theirs)| theirs.first()) {
            self.remove(tag);
        }
    }

    fn hold(&mut self, tag: Tag, held: Held<T>) {
        self.remove(tag);
        self.by_user.entry(held.user).or_default().insert(held.rank(tag));
        self.held.insert(tag, held);
    }

    fn remove(&mut self, tag: Tag) {
        let Some(held) = self.held.remove(&tag) else { return };
        if let Some(theirs) = self.by_user.get_mut(&held.user) {
            theirs.remove(&held.rank(tag));
            if theirs.is_empty() {
                self.by_user.remove(&held.user);
            }
        }
    }

    /// The question that is being asked already.
    pub(super) fn question(&self, tag: &Tag) -> Option<Q> {
        self.posed.get(tag).cloned()
    }

    /// Others may join `question` from now on.
    pub(super) fn pose(&mut self, tag: Tag, question: Q) {
        self.posed.insert(tag, question);
    }

    /// The question has its answer, or will have none.
    pub(super) fn end(&mut self, tag: &Tag) {
        self.posed.remove(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        callers::tags::sample::tag,
        cluster::{Presented, User},
    };

    const MOST: usize = 256;

    fn decisions<T: Kept>() -> Decisions<T, ()> {
        Decisions::new(MOST, Arc::new(Key::generate().unwrap()))
    }

    fn of_token(token: &str) -> Presented {
        Presented { token: token.to_owned().into(), impersonation: Vec::new() }
    }

    fn of(tag: Tag) -> QuestionKey {
        QuestionKey { tag, user: None }
    }

    fn user(name: &str) -> Who {
        Who::Known(Arc::new(User { name: name.to_owned(), ..User::default() }))
    }

    fn known() -> Who {
        user("jane")
    }

    #[test]
    fn what_was_allowed_counts_for_ten_seconds_and_a_refusal_for_five() {
        let (mut decisions, start) = (decisions(), Instant::now());
        let key = Key::generate().unwrap();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [good, bad] = ["good", "bad"].map(|token| key.of_credentials(&of_token(token)));
        decisions.put(of(good), Answer { decision: known(), asked: start });
        decisions.put(of(bad), Answer { decision: Who::Unknown, asked: start });
        let told = Answer { decision: known(), asked: start };
        assert_eq!(decisions.get(&good, at(9)), Some(told));
        assert_eq!(decisions.get(&good, at(10)), None);
        let told = Answer { decision: Who::Unknown, asked: start };
        assert_eq!(decisions.get(&bad, at(4)), Some(told));
        assert_eq!(decisions.get(&bad, at(5)), None);
    }

    #[test]
    fn however_many_try_a_bounded_number_is_remembered_and_the_allowed_last() {
        let (mut decisions, start) = (decisions(), Instant::now());
        let key = Key::generate().unwrap();
        let scraper = key.of_credentials(&of_token("scraper"));
        decisions.put(of(scraper), Answer { decision: known(), asked: start });
        for n in 0..3 * MOST {
            let tag = key.of_credentials(&of_token(&n.to_string()));
            // They end later than what is known of the scraper.
            let asked = start + Duration::from_secs(6);
            decisions.put(of(tag), Answer { decision: Who::Unknown, asked });
        }
        assert_eq!(decisions.held.len(), MOST);
        let soon = start + Duration::from_secs(6);
        assert!(decisions.get(&scraper, soon).is_some());
        let again = start + Duration::from_secs(12);
        decisions.put(of(tag(0)), Answer { decision: Who::Unknown, asked: again });
        assert_eq!(decisions.held.len(), 2, "what has ended makes room, but for who was let in");
        assert_eq!(decisions.get(&scraper, again), None);
        assert_eq!(decisions.was(&scraper, again), Some(&known()));
        let late = start + ALLOWED + LATELY;
        assert_eq!(decisions.was(&scraper, late), None);
    }

    /// Users and their answers.
    fn theirs<T>(decisions: &Decisions<T, ()>) -> Vec<usize> {
        let mut counts: Vec<_> = decisions.by_user.values().map(BTreeSet::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), decisions.held.len());
        counts.sort_unstable();
        counts
    }

    #[test]
    fn whoever_has_most_makes_room_whatever_it_asks() {
        let start = Instant::now();
        let key = Key::generate().unwrap();
        let numbered = |user: &str, n: usize| key.of_credentials(&of_token(&format!("{user}{n}")));
        let mut users = decisions::<Who>();
        let mut verdicts = decisions::<Verdict>();
        for (name, count) in [("jane", 10), ("john", 3 * MOST), ("joan", 10)] {
            let of_user = key.of_name(&User { name: name.to_owned(), ..User::default() });
            for n in 0..count {
                let tag = numbered(name, n);
                users.put(of(tag), Answer { decision: user(name), asked: start });
                let asked = QuestionKey { tag, user: Some(of_user) };
                // One of two.
                let verdict =
                    if n % 2 == 0 { Verdict::Allowed } else { Verdict::Denied { reason: None } };
                verdicts.put(asked, Answer { decision: verdict, asked: start });
            }
        }
        assert_eq!(theirs(&users), [10, 10, MOST - 20]);
        assert_eq!(theirs(&verdicts), [10, 10, MOST - 20]);
        for (name, n) in [("jane", 0), ("jane", 9), ("joan", 0), ("joan", 9)] {
            let tag = numbered(name, n);
            assert!(users.get(&tag, start).is_some() && verdicts.get(&tag, start).is_some());
        }
        let allowed = |n: &usize| verdicts.get(&numbered("john", *n), start).is_some();
        let kept = (0..3 * MOST).filter(allowed).filter(|n| n % 2 == 0).count();
        assert!(kept > MOST - 30, "refusals went first: {kept}");
        // All of them end now, those of tokens that were let in are known for a while.
        let ended = start + ALLOWED;
        users.put(of(tag(1)), Answer { decision: user("jim"), asked: ended });
        assert_eq!(theirs(&users), [1, 10, 10, MOST - 21]);
        verdicts.put(of(tag(1)), Answer { decision: Verdict::Allowed, asked: ended });
        assert_eq!(theirs(&verdicts), [1]);
    }
}
