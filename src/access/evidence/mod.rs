//! One cell's evidence: what real requests and reviews said, and what follows. Pure.
//!
//! The real request decides. A review that says otherwise only has it made at once; if that does not
//! change anything, the two disagree, which is shown, and the review is not listened to any more
//! until it says something else.

mod age;
mod doubt;
#[cfg(test)]
mod tests;

pub use self::age::PATIENCE;

use self::{
    age::{Failed, Verified},
    doubt::{Doubt, Heard, Verdict},
};
use super::{
    rules::VERBS,
    standing::{
        CellAccess, Disagreement, Method, Opinion, Punctuality, Refused, Standing, Unverified,
    },
};
use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use kubewarm_cache::informer::{Answer, OwnAccess, Trial};
use std::time::Duration;
use tokio::time::Instant;

/// Between two trials that go on as before.
const CALM: Duration = Duration::from_mins(5);
/// After one whose namespace does not exist: no review shows that it does again.
const ABSENT: Duration = Duration::from_mins(1);
/// After one that decided nothing.
const RETRY: Duration = Duration::from_secs(20);

/// The first requests of a cell's informer are its first trial. Where there is none, that is by then.
const NO_INFORMER: Duration = Duration::from_secs(1);
/// A list takes longer, or has to wait for its turn: the trial does not wait for it any more.
const INFORMER: Duration = Duration::from_secs(10);

/// Between the first refusal of what was granted and the trial that decides: an API server that has
/// just started refuses for a second or two whatever only RBAC allows, until it knows the roles.
const CONFIRM: Duration = Duration::from_secs(3);

/// What whoever fences cells is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The cell is refused, or counts as such.
    Lost(Verb, Fault),
    /// It is not any more.
    Returned,
}

/// When the next trial is due, and whether it must not wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) urgent: bool,
}

/// What is known of one cell. Written by [`super::book::Book`] alone.
#[derive(Debug)]
pub(super) struct Evidence {
    standing: Standing,
    /// When checks began.
    began: Instant,
    /// The last real list or watch that was answered, the informer's own included.
    verified: Option<Verified>,
    /// When the last check was sent that said anything; before the first, when checks began.
    answered: Instant,
    /// The last check, if it came to nothing after access was verified.
    failed: Option<Failed>,
    /// When something first said that access is gone, since it was verified.
    accused: Option<Instant>,
    /// The last time of a grant that was followed by a refusal.
    revoked: Option<Timestamp>,
    verdict: Option<Verdict>,
    /// Of `list` and `watch`.
    reviews: [Option<Heard>; 2],
    /// Whether a trial has come to nothing since the last that decided.
    is_undecided: bool,
    /// Whether access was said to be lost, and not to be back since.
    is_told_lost: bool,
    /// Refused once since it was granted: when the trial that decides may begin.
    suspected: Option<Instant>,
    /// Since when the informer's own requests are refused.
    informer: Option<Timestamp>,
    /// The informer's trouble that was answered by a nudge.
    nudged: Option<Timestamp>,
    /// `None` while one is under way that nobody wants repeated.
    pub(super) due: Option<Due>,
}

impl Evidence {
    /// Nothing known; the first trial is due soon.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            standing: Standing::Verifying,
            began: now,
            verified: None,
            answered: now,
            failed: None,
            accused: None,
            revoked: None,
            verdict: None,
            reviews: [None, None],
            is_undecided: false,
            is_told_lost: false,
            suspected: None,
            informer: None,
            nudged: None,
            due: Some(Due { at: now + NO_INFORMER, urgent: false }),
        }
    }

    pub(super) fn access(&self, punctuality: Punctuality) -> CellAccess {
        let disagreement = VERBS.into_iter().zip(&self.reviews).find_map(|(verb, review)| {
            let review = review.as_ref().filter(|heard| heard.doubt == Doubt::Contradicted)?;
            Some(Disagreement { verb, review: Opinion::from(review.allowed) })
        });
        let (standing, revoked) = (self.standing.clone(), self.revoked);
        CellAccess { standing, revoked, disagreement, punctuality }
    }

    /// What is refused, the first verb of it.
    pub(super) fn refusal(&self) -> Option<(Verb, Fault)> {
        let Standing::Refused(refused) = &self.standing else { return None };
        let fault = Fault::new(refused.reason, &*refused.message);
        refused.verbs.first().map(|verb| (*verb, fault))
    }

    pub(super) fn is_verifying(&self) -> bool {
        self.standing == Standing::Verifying
    }

    fn is_granted(&self) -> bool {
        matches!(self.standing, Standing::Granted { .. })
    }

    /// Takes a trial in. `spread` is a random number in `0.0..1.0`.
    pub(super) fn tried(
        &mut self,
        trial: &Trial,
        now: Instant,
        wall: Timestamp,
        spread: f64,
    ) -> Vec<Word> {
        let allowed = [&trial.list, &trial.watch].map(|answer| match answer {
            Answer::Allowed => Some(true),
            Answer::Refused(_) => Some(false),
            Answer::Undecided(_) => None,
        });
        let refusal = trial.refusal();
        self.is_undecided = refusal.is_none() && allowed != [Some(true); 2];
        if self.is_undecided {
            let undecided = [&trial.list, &trial.watch].into_iter().find_map(Answer::undecided);
            if let Some(fault) = undecided {
                self.fail(trial.sent, fault);
            }
            self.plan(now + jittered(RETRY, spread));
            return self.weigh(wall);
        }
        self.heard_of(trial.sent);
        if refusal.is_some() && self.is_granted() && self.suspected.is_none() {
            self.suspected = Some(now + CONFIRM);
            self.accuse(trial.sent);
            self.due = Some(Due { at: now + CONFIRM, urgent: true });
            return Vec::new();
        }
        self.suspected = None;
        self.judge(allowed, trial.sent);
        let is_absent =
            refusal.is_some_and(|(_, fault)| fault.reason() == Reason::NamespaceNotFound);
        let calm = now + jittered(if is_absent { ABSENT } else { CALM }, spread);
        self.plan(self.settling().map_or(calm, |at| at.max(now).min(calm)));
        if self.contradiction().is_some() {
            // A review that was sent after this trial.
            self.hurry(now);
        }
        if let Some((verb, fault)) = refusal {
            return self.refuse(verb, fault, allowed, wall);
        }
        self.verified(trial.sent, wall);
        self.grant(Method::Probe, wall)
    }

    /// Takes in what a review says of a verb.
    pub(super) fn reviewed(
        &mut self,
        verb: Verb,
        allowed: bool,
        sent: Instant,
        now: Instant,
        wall: Timestamp,
    ) -> Vec<Word> {
        if let Some(slot) = self.reviews.get_mut(index(verb)) {
            let same = slot.filter(|old| old.allowed == allowed);
            let doubt = same.map_or(Doubt::None, |old| old.doubt);
            *slot = Some(Heard { allowed, sent, doubt });
            if !allowed && doubt != Doubt::Contradicted {
                self.accuse(sent);
            }
        }
        if let [Some(list), Some(watch)] = self.reviews {
            self.heard_of(list.sent.min(watch.sent));
        }
        let is_open_again = allowed && matches!(self.standing, Standing::Unverified(_));
        if self.contradiction().is_some() || self.had_no_token() || is_open_again {
            self.hurry(now);
        }
        self.weigh(wall)
    }

    /// Whether the last trial was refused for want of a token: a review that is answered shows that
    /// there is one by now.
    fn had_no_token(&self) -> bool {
        matches!(&self.standing, Standing::Refused(refused) if lacks_token(refused.reason))
    }

    /// Takes in what the informer's own requests say. The first list and watch that were answered are
    /// as good as a trial, and the first trial waits for them.
    pub(super) fn informed(
        &mut self,
        own: &OwnAccess,
        now: Instant,
        wall: Timestamp,
        spread: f64,
    ) -> Vec<Word> {
        self.heard(own.refused_since, now);
        if let Some(sent) = own.verified_at {
            self.informer_verified(sent, now, wall);
        }
        let is_untried = self.is_verifying() && self.verdict.is_none() && !self.is_undecided;
        let Some(due) = self.due.filter(|due| is_untried && !due.urgent) else {
            return Vec::new();
        };
        let Some(sent) = own.allowed_at.filter(|sent| *sent + CALM > now) else {
            let at = if own.is_starting { self.began + INFORMER } else { due.at.min(now) };
            self.due = Some(Due { at, urgent: false });
            return Vec::new();
        };
        let (list, watch) = (Answer::Allowed, Answer::Allowed);
        let trial = Trial { sent, requests: 0, list, watch };
        self.due = None;
        let time = wall.checked_sub(now.saturating_duration_since(sent)).unwrap_or(wall);
        let words = self.tried(&trial, now, time, spread);
        if let Some(due) = self.due.as_mut().filter(|due| !due.urgent) {
            // What is warm at the same time is not to be tried at the same time.
            due.at = now + CALM.mul_f64(f64::midpoint(1.0, spread));
        }
        words
    }

    /// Takes note of whether the informer's own requests are refused, and since when.
    pub(super) fn heard(&mut self, refused_since: Option<Timestamp>, now: Instant) {
        if self.informer == refused_since {
            return;
        }
        self.informer = refused_since;
        if refused_since.is_some() {
            self.accuse(now);
        }
        let is_refused = matches!(self.standing, Standing::Refused(_));
        if is_refused != refused_since.is_some() {
            self.hurry(now);
        }
    }

    /// A review that was sent then was not answered. If that is about the identity, has the trial made
    /// at once, unless that was refused as well: no token for one reason is as good as for another,
    /// but somebody has to be told the right one.
    pub(super) fn doubt(&mut self, fault: &Fault, sent: Instant, now: Instant) {
        let reason = fault.reason();
        if reason.refuses_identity() {
            self.heard_of(sent);
            self.accuse(sent);
        } else {
            self.fail(sent, fault);
        }
        let is_news = match &self.standing {
            Standing::Refused(refused) => lacks_token(reason) && refused.reason != reason,
            Standing::Verifying | Standing::Granted { .. } | Standing::Unverified(_) => {
                reason.refuses_identity()
            }
        };
        if is_news {
            self.hurry(now);
        }
    }

    /// Has the trial made at once.
    fn hurry(&mut self, now: Instant) {
        let at = self.suspected.map_or(now, |at| at.max(now));
        self.due = Some(Due { at: self.due.map_or(at, |due| due.at.min(at)), urgent: true });
    }

    fn plan(&mut self, at: Instant) {
        // One that was asked for while this one was under way stays.
        self.due.get_or_insert(Due { at, urgent: false });
    }

    /// What reviews add to what was decided: a grant is confirmed, or stands in for a decision.
    fn weigh(&mut self, wall: Timestamp) -> Vec<Word> {
        let [Some(list), Some(watch)] = self.reviews else { return Vec::new() };
        if self.suspected.is_some() {
            return Vec::new();
        }
        let is_allowed = list.allowed && watch.allowed;
        // Whatever they confirmed once they confirm no second time.
        let sent = list.sent.min(watch.sent);
        let is_new = self.verified.is_none_or(|verified| sent > verified.at);
        match (&mut self.standing, is_allowed) {
            (Standing::Granted { verified_at, .. }, true) if is_new => {
                *verified_at = wall;
                Vec::new()
            }
            (Standing::Verifying, true) if self.is_undecided => self.grant(Method::Review, wall),
            (Standing::Granted { method: Method::Review, .. }, false) => {
                self.standing = Standing::Verifying;
                Vec::new()
            }
            (
                Standing::Granted { .. }
                | Standing::Verifying
                | Standing::Unverified(_)
                | Standing::Refused(_),
                _,
            ) => Vec::new(),
        }
    }

    fn grant(&mut self, method: Method, wall: Timestamp) -> Vec<Word> {
        let was_lost = std::mem::take(&mut self.is_told_lost);
        let is_in_trouble = self.informer.is_some() && self.nudged != self.informer;
        self.nudged = self.informer;
        self.revoked = None;
        self.standing = Standing::Granted { verified_at: wall, method };
        if was_lost || is_in_trouble { vec![Word::Returned] } else { Vec::new() }
    }

    fn refuse(
        &mut self,
        verb: Verb,
        fault: &Fault,
        allowed: [Option<bool>; 2],
        wall: Timestamp,
    ) -> Vec<Word> {
        let refused = |(verb, allowed)| (allowed == Some(false)).then_some(verb);
        let verbs: Vec<_> = VERBS.into_iter().zip(allowed).filter_map(refused).collect();
        let reason = fault.reason();
        let (since, is_new) = match &self.standing {
            Standing::Refused(old) => (old.since, old.reason != reason || old.verbs != verbs),
            Standing::Granted { verified_at, .. }
            | Standing::Unverified(Unverified { verified_at, .. }) => {
                self.revoked = (reason != Reason::NamespaceNotFound).then_some(*verified_at);
                (wall, true)
            }
            Standing::Verifying => (wall, true),
        };
        let message = fault.message().into();
        let refused = Refused { verbs, reason, message, since, verified_at: wall };
        self.standing = Standing::Refused(refused);
        self.is_told_lost = true;
        if is_new { vec![Word::Lost(verb, fault.clone())] } else { Vec::new() }
    }
}

/// Lengthened by up to a tenth, so that what begins together does not go on together.
pub(super) fn jittered(period: Duration, spread: f64) -> Duration {
    period.mul_f64(1.0 + spread / 10.0)
}

/// Whether no request was made, for want of a token.
pub(super) const fn lacks_token(reason: Reason) -> bool {
    matches!(reason, Reason::TokenRequestDenied | Reason::ServiceAccountNotFound)
}

const fn index(verb: Verb) -> usize {
    match verb {
        Verb::List => 0,
        Verb::Watch => 1,
    }
}
