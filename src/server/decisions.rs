//! What the API server said of callers a moment ago, so that a scraper is not asked about every time.

use crate::cluster::{Call, Decision};
use ring::{
    error::Unspecified,
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// How long somebody who was allowed stays so: a right that is revoked ends within it.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long somebody who was refused stays so: a right that is granted counts after it.
const REFUSED: Duration = Duration::from_secs(5);
/// Callers that are remembered. A few scrape; the rest only try.
const MAX_CALLERS: usize = 256;

/// Of which call: a keyed hash, as no token is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag([u8; 32]);

/// Decisions by call, each until it ends.
pub(super) struct Decisions {
    key: hmac::Key,
    held: HashMap<Tag, (Instant, Decision)>,
}

impl Decisions {
    /// Nothing is known yet. The key is of this process alone.
    pub(super) fn new() -> Result<Self, Unspecified> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new())?;
        Ok(Self { key, held: HashMap::new() })
    }

    /// What `call` is remembered by.
    pub(super) fn tag(&self, Call { token, verb, path }: &Call) -> Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [verb.as_str(), *path, token.as_str()] {
            // The length first: no other parts come to the same bytes.
            context.update(&part.len().to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut tag = Tag([0; 32]);
        // As long as the hash is.
        tag.0.iter_mut().zip(context.sign().as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }

    /// What was decided, if that still counts.
    pub(super) fn get(&self, tag: &Tag, now: Instant) -> Option<Decision> {
        let (ends, decision) = self.held.get(tag)?;
        (now < *ends).then(|| decision.clone())
    }

    /// Remembers what was decided about a call that was asked about at `asked`.
    pub(super) fn put(&mut self, tag: Tag, decision: Decision, asked: Instant) {
        if self.held.len() >= MAX_CALLERS && !self.held.contains_key(&tag) {
            self.held.retain(|_, (ends, _)| asked < *ends);
        }
        // All of them still count: the one that ends first does so now.
        if self.held.len() >= MAX_CALLERS
            && !self.held.contains_key(&tag)
            && let Some(first) =
                self.held.iter().min_by_key(|(_, (ends, _))| *ends).map(|(&tag, _)| tag)
        {
            self.held.remove(&first);
        }
        let life = if decision == Decision::Allowed { ALLOWED } else { REFUSED };
        self.held.insert(tag, (asked + life, decision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(token: &str, verb: &str, path: &'static str) -> Call {
        Call { token: token.to_owned().into(), verb: verb.to_owned(), path }
    }

    #[test]
    fn what_was_allowed_counts_for_ten_seconds_and_a_refusal_for_five() {
        let (mut decisions, start) = (Decisions::new().unwrap(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let [good, bad] = ["good", "bad"].map(|token| decisions.tag(&call(token, "get", "/m")));
        decisions.put(good, Decision::Allowed, start);
        decisions.put(bad, Decision::UnknownToken, start);
        assert_eq!(decisions.get(&good, at(9)), Some(Decision::Allowed));
        assert_eq!(decisions.get(&good, at(10)), None);
        assert_eq!(decisions.get(&bad, at(4)), Some(Decision::UnknownToken));
        assert_eq!(decisions.get(&bad, at(5)), None);
    }

    #[test]
    fn another_token_verb_or_path_is_another_call() {
        let decisions = Decisions::new().unwrap();
        let all = [
            call("a", "get", "/m"),
            call("b", "get", "/m"),
            call("a", "put", "/m"),
            call("a", "get", "/debug"),
            call("ma", "get", "/"),
        ];
        let mut tags: Vec<_> = all.iter().map(|call| decisions.tag(call).0).collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all.len());
        let other = Decisions::new().unwrap();
        assert_ne!(decisions.tag(&all[0]), other.tag(&all[0]), "of this process alone");
    }

    #[test]
    fn however_many_try_a_bounded_number_is_remembered_and_the_allowed_last() {
        let (mut decisions, start) = (Decisions::new().unwrap(), Instant::now());
        let scraper = decisions.tag(&call("scraper", "get", "/m"));
        decisions.put(scraper, Decision::Allowed, start);
        for n in 0..3 * MAX_CALLERS {
            let tag = decisions.tag(&call(&n.to_string(), "get", "/m"));
            decisions.put(tag, Decision::UnknownToken, start + Duration::from_millis(1));
        }
        assert_eq!(decisions.held.len(), MAX_CALLERS);
        assert_eq!(decisions.get(&scraper, start), Some(Decision::Allowed));
        let late = start + Duration::from_mins(1);
        decisions.put(Tag([0; 32]), Decision::UnknownToken, late);
        assert_eq!(decisions.held.len(), 1, "what has ended makes room");
    }
}
