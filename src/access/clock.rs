//! The clock by which access goes unverified: it runs only while the API server answers. Pure.

use crate::model::Identity;
use std::time::Duration;
use tokio::time::Instant;

/// After so long without any answer nobody knows whether there still are some: several rounds of
/// checks, since one may have to wait for a turn.
const BREAK: Duration = Duration::from_mins(2);
/// So many times slower it runs where accounts of several namespaces are checked and the operator alone
/// is answered: a flow schema of its own may protect the operator from a load that everybody else
/// suffers from.
const SLOWER: u32 = 3;

/// For how long the API server has answered. It stops in an outage and goes on after it, so that nobody
/// gains time by causing short ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// Until the last answer.
    counted: Reading,
    last: Option<Instant>,
    /// The last answer to anybody but the operator.
    last_account: Option<Instant>,
}

/// What the clock shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// To those that others are checked beside.
    shared: Duration,
    /// To those that nobody else is.
    alone: Duration,
}

/// Whether accounts of other namespaces are checked, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    Others,
    Nobody,
}

/// A moment, and what the clock showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    at: Instant,
    reading: Reading,
}

impl Clock {
    /// A check of this identity has been answered.
    pub(super) fn heard(&mut self, identity: &Identity, now: Instant) {
        if *identity != Identity::Operator {
            self.last_account = Some(now);
        }
        self.counted = self.reading(now);
        self.last = Some(now);
    }

    /// What it shows. What has passed since the last answer counts until there is a break.
    pub(super) fn reading(&self, now: Instant) -> Reading {
        let since = |at: Option<Instant>| {
            let passed = now.saturating_duration_since(at?);
            (passed <= BREAK).then_some(passed)
        };
        let Some(passed) = since(self.last) else { return self.counted };
        let is_any_account = since(self.last_account).is_some();
        Reading {
            shared: self.counted.shared + if is_any_account { passed } else { passed / SLOWER },
            alone: self.counted.alone + passed,
        }
    }
}

impl Reading {
    /// Of a clock that has been running for so long.
    #[cfg(test)]
    pub(super) fn of(passed: Duration) -> Self {
        Self { shared: passed, alone: passed }
    }

    fn less(self, by: Self) -> Self {
        Self {
            shared: self.shared.saturating_sub(by.shared),
            alone: self.alone.saturating_sub(by.alone),
        }
    }

    /// What has passed since `at`, of which `mark` keeps what it showed. That is known from the first
    /// look afterwards on; for the time before that it is taken to have run.
    pub(super) fn since(
        self,
        at: Instant,
        mark: &mut Option<Mark>,
        company: Company,
        now: Instant,
    ) -> Duration {
        let known = mark.filter(|mark| mark.at == at).unwrap_or_else(|| {
            let passed = now.saturating_duration_since(at);
            Mark { at, reading: self.less(Self { shared: passed, alone: passed }) }
        });
        *mark = Some(known);
        let Self { shared, alone } = self.less(known.reading);
        match company {
            Company::Others => shared,
            Company::Nobody => alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Identity {
        Identity::ServiceAccount { namespace: "a".into(), name: "b".into() }
    }

    #[test]
    fn it_runs_from_answer_to_answer_and_stands_still_in_between() {
        let (mut clock, began) = (Clock::default(), Instant::now());
        let at = |minutes| began + Duration::from_mins(minutes);
        let both = |minutes| Reading::of(Duration::from_mins(minutes));
        assert_eq!(clock.reading(at(0)), both(0));
        clock.heard(&account(), at(0));
        clock.heard(&account(), at(2));
        assert_eq!((clock.reading(at(4)), clock.reading(at(5))), (both(4), both(2)));
        clock.heard(&account(), at(60));
        clock.heard(&account(), at(61));
        assert_eq!(clock.reading(at(61)), both(3));
    }

    #[test]
    fn answers_to_the_operator_alone_count_less_for_those_who_have_company() {
        let (mut clock, began) = (Clock::default(), Instant::now());
        clock.heard(&account(), began);
        for minute in 0..=62 {
            clock.heard(&Identity::Operator, began + Duration::from_mins(minute));
        }
        let now = began + Duration::from_mins(62);
        let Reading { shared, alone } = clock.reading(now);
        assert_eq!((shared, alone), (Duration::from_mins(2 + 20), Duration::from_mins(62)));
    }

    #[test]
    fn what_passed_before_the_first_look_counts_and_an_outage_after_it_does_not() {
        let began = Instant::now();
        let (mut mark, company) = (None, Company::Others);
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut since = |shown, now| {
            let reading = Reading::of(Duration::from_secs(shown));
            reading.since(began, &mut mark, company, at(now)).as_secs()
        };
        assert_eq!(since(100, 5), 5);
        assert_eq!(since(100, 3_600), 5);
        assert_eq!(since(160, 3_660), 65);
        let other =
            Reading::of(Duration::from_secs(160)).since(at(3_650), &mut mark, company, at(3_660));
        assert_eq!(other.as_secs(), 10);
    }
}
