//! The rule and the evidence that it replaces, on the same random histories.

use super::*;
use crate::access::{
    evidence::{Due, Evidence, Word},
    rules::VERBS,
    standing::Standing as Before,
};
use fastrand::Rng;

struct Both {
    old: Evidence,
    new: Access,
    /// When the new rule has the cell tried next.
    due: Instant,
    now: Instant,
    wall: Timestamp,
    /// Whether the informer was answered before the first trial.
    is_early: bool,
    /// What the last review said.
    reviewed: Option<bool>,
    /// For the message of a failure.
    past: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Trial(Option<Reason>),
    Review(bool),
    FailedReview(Reason),
    InformerRefused,
    InformerVerified,
}

impl Both {
    fn new() -> Self {
        let (now, wall) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let due = now + Duration::from_secs(1);
        Self {
            old: Evidence::new(now),
            new: Access::new(now),
            due,
            now,
            wall,
            is_early: false,
            reviewed: None,
            past: Vec::new(),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.wall += Duration::from_secs(seconds);
    }

    fn input(&mut self, input: Input) {
        if let Some(at) = self.new.on(input, self.now, self.wall) {
            self.due = self.due.min(at);
        }
    }

    fn trial(reason: Option<Reason>, sent: Instant) -> Trial {
        let answer = match reason {
            None => Answer::Allowed,
            Some(reason) if reason.refuses_identity() || reason == Reason::NamespaceNotFound => {
                Answer::Refused(Fault::new(reason, "no"))
            }
            Some(reason) => Answer::Undecided(Fault::new(reason, "?")),
        };
        Trial { sent, requests: 2, list: answer.clone(), watch: answer }
    }

    fn old_trial(&mut self, reason: Option<Reason>) {
        self.old.due = None;
        let trial = Self::trial(reason, self.now);
        let _words: Vec<Word> = self.old.tried(&trial, self.now, self.wall, 0.0);
    }

    fn new_trial(&mut self, reason: Option<Reason>) {
        let input = Input::from(Self::trial(reason, self.now));
        let pause = match (&input, reason) {
            (Input::Undecided { .. }, _) => 20,
            (_, Some(Reason::NamespaceNotFound)) => 60,
            _ => 300,
        };
        self.due = self.now + Duration::from_secs(pause);
        self.input(input);
    }

    fn event(&mut self, event: Event) {
        self.past.push(format!("{} {event:?}", self.wall));
        let (now, wall) = (self.now, self.wall);
        match event {
            Event::Trial(reason) => {
                self.old_trial(reason);
                self.new_trial(reason);
                let is_undecided =
                    matches!(Input::from(Self::trial(reason, now)), Input::Undecided { .. });
                if let Some(allowed) = self.reviewed.filter(|allowed| {
                    *allowed && is_undecided && self.new.standing == Standing::Verifying
                }) {
                    // On purpose: only a review that comes later stands in for a trial that came to nothing.
                    self.input(Input::Reviewed { sent: now, allowed });
                }
                let is_refusal =
                    matches!(Input::from(Self::trial(reason, now)), Input::Refused { .. });
                if is_refusal
                    && !matches!(self.new.standing, Standing::Refused(_))
                    && matches!(
                        self.old.access(crate::access::Punctuality::OnTime).standing,
                        Before::Refused(_)
                    )
                {
                    // On purpose: whatever was verified takes two refusals, whether it counts as granted or not.
                    assert!(self.new.is_held());
                    self.pass(3);
                    self.new_trial(reason);
                    self.old_trial(reason);
                }
            }
            Event::Review(allowed) => {
                self.reviewed = Some(allowed);
                let due = self.old.due;
                for verb in VERBS {
                    // Between the two verbs, the reviews of both contradict each other.
                    self.old.due = due;
                    let _words = self.old.reviewed(verb, allowed, now, now, wall);
                }
                self.input(Input::Reviewed { sent: now, allowed });
            }
            // On purpose: a review that failed calls for another one to stand in, as a trial does.
            Event::FailedReview(Reason::Throttled) if self.new.standing == Standing::Verifying => {}
            Event::FailedReview(reason) => {
                let fault = Fault::new(reason, "?");
                self.old.doubt(&fault, now, now);
                self.input(Input::Undecided { sent: now, fault });
            }
            Event::InformerRefused => {
                self.old.heard(Some(wall), now);
                if !matches!(self.new.standing, Standing::Refused(_)) {
                    self.input(Input::Suspected { sent: now });
                }
            }
            // On purpose: it opens a gate that time closed; before, the next trial did.
            Event::InformerVerified if matches!(self.new.standing, Standing::Unverified { .. }) => {
            }
            // On purpose: once a real request was answered, reviews stand in for nothing.
            Event::InformerVerified
                if self.new.failed.is_some() && self.new.standing == Standing::Verifying
                    || matches!(
                        self.new.standing,
                        Standing::Granted { method: Method::Review, .. }
                    ) => {}
            Event::InformerVerified => {
                self.is_early |= self.new.standing == Standing::Verifying;
                self.old.informer_verified(now, now, wall);
                self.input(Input::Verified { sent: now });
            }
        }
        let _word = self.old.lapse(PATIENCE, now.max(self.now));
        self.input(Input::Tick { patience: PATIENCE });
    }

    fn compare(&mut self, seed: u64) {
        let old = self.old.access(crate::access::Punctuality::OnTime);
        let told = || format!("seed {seed}: {:#?}\n{:#?}\n{:#?}", self.past, self.old, self.new);
        let same = match (&old.standing, &self.new.standing) {
            (Before::Verifying, Standing::Verifying)
            | (Before::Unverified(_), Standing::Unverified { .. }) => true,
            (Before::Granted { method: old, .. }, Standing::Granted { method: new, .. }) => {
                (*old == crate::access::Method::Probe) == (*new == Method::Probe)
            }
            (Before::Refused(before), Standing::Refused(after)) => {
                before.reason == after.reason
                    && before.verbs == after.verbs
                    && old.revoked.is_some() == after.revoked.is_some()
            }
            _ => false,
        };
        assert!(same, "standing: {}", told());
        let Some(Due { at, .. }) = self.old.due else { panic!("{}", told()) };
        // On purpose: a review behind a gate that closed before the first trial is overruled by that trial, which
        // may be settled by another one.
        if self.is_early {
            (self.due, self.new.contrary) = (at, None);
            let decides = |event: &String| {
                let is_nothing = |what: &&str| event.contains(*what);
                event.contains("Trial") && !["NotServed", "Throttled"].iter().any(is_nothing)
            };
            self.is_early = !self.past.last().is_some_and(decides);
            return;
        }
        let report = self.new.report(Duration::ZERO, self.now);
        let before = old.disagreement.map(|it| it.review == crate::access::Opinion::Allowed);
        assert_eq!(before, report.overruled, "{}", told());
        // On purpose: behind a closed gate each review calls for a trial, and a second refusal comes 3 s after
        // the first all the same.
        if matches!(self.new.standing, Standing::Unverified { .. }) {
            self.due = at;
            return;
        }
        let soon = |at: Instant| at.saturating_duration_since(self.now);
        assert_eq!(
            soon(at),
            soon(self.due),
            "due: {:?} {:?} {}",
            self.new.contrary,
            self.due.saturating_duration_since(self.now),
            told()
        );
    }
}

#[test]
fn both_come_to_the_same_on_random_histories() {
    let mut steps = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let mut both = Both::new();
        for _ in 0..60 {
            both.pass(*rng.choice(&[3, 5, 10, 20, 40, 300]).unwrap());
            let refusals = [
                Reason::Forbidden,
                Reason::Unauthorized,
                Reason::NamespaceNotFound,
                Reason::TokenRequestDenied,
            ];
            let nothing = [Reason::Throttled, Reason::NotServed];
            let event = match rng.u8(0..12) {
                0..=2 => Event::Trial(None),
                3..=4 => Event::Trial(rng.choice(&refusals).copied()),
                5 => Event::Trial(rng.choice(&nothing).copied()),
                6..=8 => Event::Review(rng.bool()),
                9 => Event::FailedReview(
                    *rng.choice(&[
                        Reason::Throttled,
                        Reason::Unauthorized,
                        Reason::TokenRequestDenied,
                    ])
                    .unwrap(),
                ),
                10 => Event::InformerRefused,
                _ => Event::InformerVerified,
            };
            both.event(event);
            both.compare(seed);
            steps += 1;
        }
    }
    assert_eq!(steps, 1_200_000);
}
