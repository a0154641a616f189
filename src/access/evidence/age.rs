//! How old the last verification is, and when that takes access away.

use super::{Evidence, Word};
use crate::access::{
    limits::Class,
    standing::{Method, Punctuality, Standing, Unverified},
};
use jiff::Timestamp;
use kubewarm_api::model::{Fault, Reason, Verb};
use std::time::Duration;
use tokio::time::Instant;

/// How long after its last verification the gate of an informer closes. By then every way to verify it
/// has been tried: the real request at 5 minutes and every 20 s from then on, and the informer's own
/// watch, which is opened again after 10 minutes at the most.
pub const PATIENCE: Duration = Duration::from_mins(10);
/// How long after an unconfirmed sign of loss it closes: the request that decides has been made at once by
/// then, and once more.
const SUSPICIOUS: Duration = Duration::from_secs(30);

/// There was access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verified {
    /// When the request was sent that shows it.
    pub(super) at: Instant,
    /// The same on the wall clock, or a moment later.
    time: Timestamp,
}

/// A check that came to nothing.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    sent: Instant,
    fault: Fault,
}

impl Evidence {
    /// A request that was sent then shows that there was access.
    pub(super) fn verified(&mut self, sent: Instant, time: Timestamp) {
        if self.verified.is_none_or(|known| known.at < sent) {
            self.verified = Some(Verified { at: sent, time });
            if self.failed.as_ref().is_some_and(|failed| failed.sent <= sent) {
                self.failed = None;
            }
            self.accused = self.accused.filter(|at| *at > sent);
        }
    }

    /// Something that was sent then says that there is no access, and does not decide.
    pub(super) fn accuse(&mut self, sent: Instant) {
        if self.verified.is_none_or(|known| known.at < sent) {
            self.accused = Some(self.accused.map_or(sent, |first| first.min(sent)));
        }
    }

    /// The same of a request of the informer, as it is known `now`. Ends what only time took away. It is
    /// of another cell, or was answered before the cell was told of the loss: which of them, nobody
    /// knows, so that access is said to be back with the next trial.
    pub(in crate::access) fn informer_verified(
        &mut self,
        sent: Instant,
        now: Instant,
        wall: Timestamp,
    ) {
        if self.verified.is_some_and(|known| known.at >= sent) {
            return;
        }
        let ago = now.saturating_duration_since(sent);
        self.verified(sent, wall.checked_sub(ago).unwrap_or(wall));
        if matches!(self.standing, Standing::Unverified(_)) {
            self.standing = Standing::Verifying;
        }
    }

    /// A check that was sent then was answered, whatever that says.
    pub(in crate::access) fn heard_of(&mut self, sent: Instant) {
        self.answered = self.answered.max(sent);
    }

    /// A check that was sent then came to nothing.
    pub(super) fn fail(&mut self, sent: Instant, fault: &Fault) {
        if self.verified.is_none_or(|known| known.at < sent) {
            self.failed = Some(Failed { sent, fault: fault.clone() });
        }
    }

    /// Whether there is anything to lose.
    pub(in crate::access) fn class(&self) -> Class {
        match (&self.standing, self.verified) {
            (Standing::Refused(_), _) | (_, None) => Class::Sought,
            (Standing::Verifying | Standing::Granted { .. } | Standing::Unverified(_), Some(_)) => {
                Class::Held
            }
        }
    }

    /// How punctual the checks are, if something must be heard of the cell within `period`.
    pub(in crate::access) fn punctuality(&self, period: Duration, now: Instant) -> Punctuality {
        let is_old = |at: Instant| now.saturating_duration_since(at) > period;
        match &self.failed {
            Some(failed) if is_old(self.answered) => Punctuality::Unanswered(failed.fault.clone()),
            None if is_old(self.answered) => Punctuality::Late,
            Some(_) | None => Punctuality::OnTime,
        }
    }

    /// Closes the gate `patience` after the last verification, or [`SUSPICIOUS`] after a sign of loss that
    /// nothing has confirmed or cleared. What was never verified has nothing to lose.
    pub(in crate::access) fn lapse(&mut self, patience: Duration, now: Instant) -> Option<Word> {
        let Verified { at, time } = self.verified?;
        let passed = |since: Instant| now.saturating_duration_since(since);
        let is_suspicious = self.accused.is_some_and(|at| passed(at) >= SUSPICIOUS.min(patience));
        // A kind that is not served has nothing to read, and its informer says so.
        let is_served = |failed: &Failed| failed.fault.reason() != Reason::NotServed;
        if passed(at) < patience && !is_suspicious || !self.failed.as_ref().is_none_or(is_served) {
            return None;
        }
        let method = match &self.standing {
            Standing::Granted { method, .. } => *method,
            // By the informer's own requests.
            Standing::Verifying => Method::Probe,
            Standing::Unverified(_) | Standing::Refused(_) => return None,
        };
        let since = Timestamp::from_second(time.as_second()).unwrap_or(time);
        let (why, message) = match &self.failed {
            Some(failed) => (failed.fault.to_string(), failed.fault.message().into()),
            None => ("no check was answered".to_owned(), "no check was answered".into()),
        };
        let fault = Fault::new(Reason::Unverified, format!("not verified since {since}: {why}"));
        let found = Unverified { verified_at: time, method, message };
        self.standing = Standing::Unverified(found);
        self.is_told_lost = true;
        // Whoever answers first now decides.
        self.suspected = None;
        self.accused = None;
        self.hurry(now);
        Some(Word::Lost(Verb::List, fault))
    }
}
