//! One rule says from what comes in whether a cell may be read, and when it is to be tried next. Pure.
//!
//! Only real requests decide: a list and a watch, as the identity that will use them. Whatever else
//! speaks against access is a sign of loss: it has the real requests made at once, and 30 s to be
//! cleared. A review that real requests keep overruling is shown and not listened to any more.

#[cfg(test)]
mod tests;

use super::standing::{CellAccess, Refused, Standing};
use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use kubewarm_cache::informer::{Answer, Trial};
use std::time::Duration;
use tokio::time::Instant;

/// How long after its last verification the gate of an informer closes. By then every way to verify it
/// has been tried: the real request at 5 minutes and every 20 s from then on, and the informer's own
/// watch, which is opened again after 10 minutes at the most.
pub const PATIENCE: Duration = Duration::from_mins(10);
/// How long after an unconfirmed sign of loss it closes: the request that decides has been made at once by
/// then, and once more.
const SUSPICIOUS: Duration = Duration::from_secs(30);
/// Between two refusals that are a loss: an API server that has just started refuses for a second or two
/// whatever only RBAC allows, until it knows the roles.
const CONFIRM: Duration = Duration::from_secs(3);
/// Between two trials that overrule a review: of several API servers, one may lag by seconds behind the
/// others.
const SETTLED: Duration = Duration::from_secs(10);

/// What comes in of one cell. `sent`: when the request was sent that shows it.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// A real list and a real watch are allowed.
    Allowed { sent: Instant },
    /// One of the two is: the informer's own.
    Verified { sent: Instant },
    /// These verbs are refused.
    Refused { sent: Instant, verbs: Vec<Verb>, fault: Fault },
    /// A review would refuse these verbs. One that asks about a single verb speaks for all that are in question.
    Reviewed { sent: Instant, refused: Vec<Verb> },
    /// The API server has no such review.
    Answered { sent: Instant },
    /// The informer's own request is refused.
    Suspected { sent: Instant },
    /// A check came to nothing; of a review, it may have been refused.
    Undecided { sent: Instant, fault: Fault },
    /// Time passes. So long after its last verification the gate closes.
    Tick { patience: Duration },
}

/// Whether the gate of an informer is to be opened, or closed for what reason.
pub(super) type Order = Result<(), (Verb, Fault)>;

/// What is known of one cell.
#[derive(Debug)]
pub(super) struct Access {
    standing: Standing,
    /// When the last real request was sent that was allowed.
    verified: Option<Instant>,
    /// The first sign of loss since then.
    sign: Option<Instant>,
    /// The first refusal of what has something to lose, until a second one or a grant follows.
    refused: Option<Instant>,
    /// The word of the last review, where real requests say otherwise.
    contrary: Option<Contrary>,
    /// The last check, if it came to nothing since access was verified.
    failed: Option<Fault>,
    /// When the last check was sent that said anything; before the first, when checks began.
    answered: Instant,
}

/// A review that says otherwise than the real requests.
#[derive(Debug)]
struct Contrary {
    /// The verbs that it would refuse.
    refused: Vec<Verb>,
    sent: Instant,
    /// The first trial, sent after it, that came to the contrary.
    overruled: Option<Instant>,
    /// Another one did [`SETTLED`] later.
    is_settled: bool,
}

impl Access {
    /// Nothing is known.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            standing: Standing::Verifying,
            verified: None,
            sign: None,
            refused: None,
            contrary: None,
            failed: None,
            answered: now,
        }
    }

    /// Takes `input` in. When the cell is to be tried next at the latest, if that is sooner than planned.
    pub(super) fn on(&mut self, input: Input, now: Instant, wall: Timestamp) -> Option<Instant> {
        let ago = |sent| now.saturating_duration_since(sent);
        let time = |sent| wall.checked_sub(ago(sent)).unwrap_or(wall);
        let at_once = Some(self.refused.map_or(now, |first| now.max(first + CONFIRM)));
        match input {
            Input::Allowed { sent } => {
                self.answered(sent);
                self.verify(sent);
                self.refused = None;
                self.standing = granted(time(sent));
                self.overrule(sent)
            }
            Input::Verified { sent } => {
                let is_news = self.verified.is_none_or(|known| known < sent);
                if is_news && !matches!(self.standing, Standing::Refused(_)) {
                    self.verify(sent);
                }
                match &mut self.standing {
                    Standing::Granted { verified_at, .. } if is_news => *verified_at = time(sent),
                    Standing::Unverified { .. } if is_news => {
                        self.standing = granted(time(sent));
                    }
                    Standing::Granted { .. }
                    | Standing::Unverified { .. }
                    | Standing::Verifying
                    | Standing::Refused(_) => {}
                }
                None
            }
            Input::Refused { sent, verbs, fault } => {
                self.answered(sent);
                if self.is_held() || matches!(self.standing, Standing::Granted { .. }) {
                    let first = *self.refused.get_or_insert(now);
                    self.suspect(sent);
                    if sent < first + CONFIRM {
                        return Some(first + CONFIRM);
                    }
                }
                self.refused = None;
                self.refuse(verbs, &fault, wall);
                self.overrule(sent)
            }
            Input::Reviewed { sent, refused } => {
                self.answered(sent);
                self.reviewed(sent, refused, wall).then_some(at_once)?
            }
            Input::Answered { sent } => {
                self.answered(sent);
                None
            }
            Input::Suspected { sent } => self.suspect(sent).then_some(at_once)?,
            Input::Undecided { sent, fault } if fault.reason().refuses_identity() => {
                self.answered(sent);
                let reason = fault.reason();
                // No token for one reason is as good as for another, but the status must name the right one.
                let is_news =
                    matches!(&self.standing, Standing::Refused(old) if old.reason != reason);
                (self.suspect(sent) || is_news && lacks_token(reason)).then_some(at_once)?
            }
            Input::Undecided { fault, .. } => {
                self.failed = Some(fault);
                None
            }
            Input::Tick { patience } => {
                let verified = self.verified?;
                let is_old = ago(verified) >= patience;
                let is_suspicious = |sign| ago(sign) >= SUSPICIOUS.min(patience);
                // A kind that is not served has nothing to read, and its informer says so.
                let is_served =
                    self.failed.as_ref().is_none_or(|it| it.reason() != Reason::NotServed);
                let may_lapse =
                    self.is_held() && !matches!(self.standing, Standing::Unverified { .. });
                if !(may_lapse && is_served && (is_old || self.sign.is_some_and(is_suspicious))) {
                    return None;
                }
                let failed = self.failed.as_ref().map(Fault::message);
                let message = failed.unwrap_or("no check was answered").into();
                self.standing = Standing::Unverified { verified_at: time(verified), message };
                at_once
            }
        }
    }

    /// A check that was sent then was answered, whatever that says.
    fn answered(&mut self, sent: Instant) {
        self.answered = self.answered.max(sent);
    }

    /// Whether there is anything to lose.
    pub(super) fn is_held(&self) -> bool {
        self.verified.is_some() && !matches!(self.standing, Standing::Refused(_))
    }

    /// Whether the gate is to be open, or why not; `None` if nobody can say. Only a real request opens it.
    pub(super) fn order(&self) -> Option<Order> {
        match &self.standing {
            Standing::Verifying | Standing::Granted { is_by_review: true, .. } => None,
            Standing::Granted { is_by_review: false, .. } => Some(Ok(())),
            Standing::Refused(refused) => {
                let verb = refused.verbs.first().copied().unwrap_or(Verb::List);
                Some(Err((verb, Fault::new(refused.reason, &*refused.message))))
            }
            Standing::Unverified { verified_at, message } => {
                let since = Timestamp::from_second(verified_at.as_second()).unwrap_or(*verified_at);
                let message = format!("not verified since {since}: {message}");
                Some(Err((Verb::List, Fault::new(Reason::Unverified, message))))
            }
        }
    }

    /// How the cell stands, if something must be heard of it within `period`.
    pub(super) fn report(&self, period: Duration, now: Instant) -> CellAccess {
        let is_overdue = now.saturating_duration_since(self.answered) > period;
        let failed = self.failed.clone().filter(|_| is_overdue);
        let is_refused = matches!(self.standing, Standing::Refused(_));
        let settled = self.contrary.as_ref().filter(|it| it.is_settled);
        let overruled =
            settled.map(|it| it.refused.is_empty()).filter(|allows| *allows == is_refused);
        let is_late = is_overdue && failed.is_none();
        CellAccess { standing: self.standing.clone(), overruled, is_late, failed }
    }

    /// What a review of a single verb is about, the first of these: what is refused, or the watch. A watch goes
    /// on without being asked for again; a list is authorized each time.
    pub(super) fn in_question(&self) -> Vec<Verb> {
        match &self.standing {
            Standing::Refused(refused) => refused.verbs.clone(),
            Standing::Verifying | Standing::Granted { .. } | Standing::Unverified { .. } => {
                vec![Verb::Watch]
            }
        }
    }

    fn verify(&mut self, sent: Instant) {
        if self.verified.is_none_or(|known| known < sent) {
            self.verified = Some(sent);
            self.sign = self.sign.filter(|sign| *sign > sent);
            self.failed = None;
        }
    }

    /// Something that was sent then says that access is gone. Whether it must be tried.
    fn suspect(&mut self, sent: Instant) -> bool {
        if matches!(self.standing, Standing::Refused(_)) {
            return false;
        }
        if self.verified.is_none_or(|known| known < sent) {
            self.sign = Some(self.sign.map_or(sent, |first| first.min(sent)));
        }
        true
    }

    fn refuse(&mut self, verbs: Vec<Verb>, fault: &Fault, wall: Timestamp) {
        let reason = fault.reason();
        let revoked = match &self.standing {
            Standing::Refused(old) => old.revoked,
            // Its roles went with its namespace: nobody took them away.
            _ if reason == Reason::NamespaceNotFound => None,
            Standing::Granted { verified_at, .. } | Standing::Unverified { verified_at, .. } => {
                Some(*verified_at)
            }
            Standing::Verifying => None,
        };
        let message = fault.message().into();
        self.standing =
            Standing::Refused(Refused { verbs, reason, message, verified_at: wall, revoked });
    }

    /// What a review adds. Whether it calls for a trial.
    fn reviewed(&mut self, sent: Instant, refused: Vec<Verb>, wall: Timestamp) -> bool {
        let (allowed, is_contrary) = (refused.is_empty(), self.contradicts(&refused));
        // One that is answered shows that there is a token by now.
        let has_token = matches!(&self.standing, Standing::Refused(old) if lacks_token(old.reason));
        let is_news = has_token || allowed && matches!(self.standing, Standing::Unverified { .. });
        // It stands in for trials that come to nothing.
        let stands_in = match self.standing {
            Standing::Verifying => self.failed.is_some(),
            Standing::Granted { is_by_review, .. } => is_by_review,
            Standing::Unverified { .. } | Standing::Refused(_) => false,
        };
        if stands_in && self.refused.is_none() {
            let granted = Standing::Granted { verified_at: wall, is_by_review: true };
            self.standing = if allowed { granted } else { Standing::Verifying };
        }
        self.contrary.take_if(|it| it.refused != refused);
        if !allowed && !self.contrary.as_ref().is_some_and(|it| it.is_settled) {
            self.suspect(sent);
        }
        if !is_contrary {
            return is_news;
        }
        let new = Contrary { refused, sent, overruled: None, is_settled: false };
        is_news || self.contrary.get_or_insert(new).overruled.is_none()
    }

    /// Whether real requests have said otherwise than a review that would refuse these verbs.
    fn contradicts(&self, refused: &[Verb]) -> bool {
        match &self.standing {
            Standing::Granted { is_by_review: false, .. } | Standing::Unverified { .. } => {
                !refused.is_empty()
            }
            Standing::Refused(Refused { verbs, .. }) => verbs != refused,
            Standing::Verifying | Standing::Granted { .. } => false,
        }
    }

    /// A trial that was sent then decided. When another one may settle whether the last review errs.
    fn overrule(&mut self, sent: Instant) -> Option<Instant> {
        let contrary = self.contrary.take().filter(|it| self.contradicts(&it.refused));
        self.contrary = contrary;
        let contrary = self.contrary.as_mut().filter(|it| it.sent < sent)?;
        let first = *contrary.overruled.get_or_insert(sent);
        contrary.is_settled |= sent >= first + SETTLED;
        (!contrary.is_settled).then_some(first + SETTLED)
    }
}

impl From<Trial> for Input {
    fn from(trial: Trial) -> Self {
        let sent = trial.sent;
        let refused = |answer: &Answer| matches!(answer, Answer::Refused(_));
        if let Some((_, fault)) = trial.refusal() {
            let both = [(Verb::List, &trial.list), (Verb::Watch, &trial.watch)];
            let verbs = both.into_iter().filter(|(_, it)| refused(it)).map(|(verb, _)| verb);
            return Self::Refused { sent, verbs: verbs.collect(), fault: fault.clone() };
        }
        match trial.list.undecided().or_else(|| trial.watch.undecided()) {
            Some(fault) => Self::Undecided { sent, fault: fault.clone() },
            None => Self::Allowed { sent },
        }
    }
}

/// A real request shows it.
const fn granted(verified_at: Timestamp) -> Standing {
    Standing::Granted { verified_at, is_by_review: false }
}

/// Whether no request was made, for want of a token.
pub(super) const fn lacks_token(reason: Reason) -> bool {
    matches!(reason, Reason::TokenRequestDenied | Reason::ServiceAccountNotFound)
}
