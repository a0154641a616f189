//! What real requests say of reviews: which are contradicted, and which are still to be tried.

use super::Evidence;
use crate::access::rules::VERBS;
use kubewarm_api::model::Verb;
use std::time::Duration;
use tokio::time::Instant;

/// Between a trial that comes to the contrary of a review and the one that may show that the review
/// errs: of several API servers, one may lag by seconds behind the others.
const SETTLED: Duration = Duration::from_secs(10);

/// What reviews said of one verb.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) allowed: bool,
    pub(super) sent: Instant,
    pub(super) doubt: Doubt,
}

/// What real requests say of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing to the contrary that was sent after it.
    None,
    /// The contrary, first by one that was sent then.
    Once(Instant),
    /// The contrary, and once more [`SETTLED`] later.
    Contradicted,
}

/// What the last trial that decided anything came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// `list` and `watch`; `None` where that one was not decided.
    allowed: [Option<bool>; 2],
    /// When the first of all trials in a row that came to the same was sent.
    since: Instant,
}

impl Evidence {
    /// Writes a decision down, and which reviews it contradicts.
    pub(super) fn judge(&mut self, allowed: [Option<bool>; 2], sent: Instant) {
        let since = match self.verdict {
            Some(old) if old.allowed == allowed => old.since,
            Some(_) | None => {
                self.reviews.iter_mut().flatten().for_each(|heard| heard.doubt = Doubt::None);
                sent
            }
        };
        self.verdict = Some(Verdict { allowed, since });
        for (heard, decided) in self.reviews.iter_mut().zip(allowed) {
            let Some(heard) = heard else { continue };
            let differs = decided.is_some_and(|decided| decided != heard.allowed);
            // Asked between two requests that came to the same: not merely late.
            let is_tried = heard.sent > since && heard.sent <= sent;
            heard.doubt = match (differs, heard.doubt) {
                (false, _) => Doubt::None,
                (true, Doubt::None) if is_tried => Doubt::Once(sent),
                (true, Doubt::Once(first)) if sent >= first + SETTLED => Doubt::Contradicted,
                (true, as_before @ (Doubt::None | Doubt::Once(_) | Doubt::Contradicted)) => {
                    as_before
                }
            };
        }
    }

    /// When a trial may settle which of a review and the last trial errs.
    pub(super) fn settling(&self) -> Option<Instant> {
        let doubts = self.reviews.iter().flatten().filter_map(|heard| match heard.doubt {
            Doubt::Once(first) => Some(first + SETTLED),
            Doubt::None | Doubt::Contradicted => None,
        });
        doubts.min()
    }

    /// A verb of which a review, later than the decision, says what has not been tried yet.
    pub(super) fn contradiction(&self) -> Option<Verb> {
        let verdict = self.verdict.as_ref()?;
        let all = VERBS.into_iter().zip(&self.reviews).zip(verdict.allowed);
        all.into_iter().find_map(|((verb, heard), decided)| {
            let heard = heard.as_ref()?;
            let differs = decided? != heard.allowed;
            let is_untried = heard.doubt == Doubt::None && heard.sent > verdict.since;
            (differs && is_untried).then_some(verb)
        })
    }
}
