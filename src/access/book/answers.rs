//! Whether the API server answers anybody: what tells the trouble of one cell from an outage. Pure.

use super::{Book, Found, REVIEW};
use crate::{access::evidence::Word, informer::Answer, model::CellKey};
use std::time::Duration;
use tokio::time::Instant;

/// After so long without any answer nobody knows whether there still are some: several rounds of
/// checks, since one may have to wait for a turn.
const BREAK: Duration = Duration::from_mins(2);

/// When checks were answered, whoever asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// The first without a break, and the last.
    run: Option<(Instant, Instant)>,
    /// When the operator itself last asked.
    control: Option<Instant>,
}

impl Answers {
    /// One has come.
    pub(super) fn heard(&mut self, now: Instant) {
        self.run = Some((self.since(now).unwrap_or(now), now));
    }

    /// Since when they have come without a break; `None` if they do not come any more.
    fn since(&self, now: Instant) -> Option<Instant> {
        let (first, last) = self.run?;
        (now.saturating_duration_since(last) <= BREAK).then_some(first)
    }

    /// Since when the operator should have asked, if it should.
    pub(super) fn control_due(&self, now: Instant) -> Option<Instant> {
        let at = self.control.map_or(now, |last| last + REVIEW);
        (at <= now).then_some(at)
    }

    /// The operator asks.
    pub(super) fn control_sent(&mut self, now: Instant) {
        self.control = Some(now);
    }
}

impl Found {
    /// Whether the API server carried a request out.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Trial(trial) => [&trial.list, &trial.watch].contains(&&Answer::Allowed),
            Self::Rules(answer) => answer.is_ok(),
            Self::Review(answer) => answer.is_ok(),
        }
    }
}

impl Book {
    /// Takes away what nobody has verified for `patience`, unless the API server answers nobody: then
    /// watches bring nothing either, and how old everything is says enough. What is left of that time
    /// begins anew with the first answer after an outage.
    pub(in crate::access) fn lapse(
        &mut self,
        patience: Duration,
        now: Instant,
    ) -> Vec<(CellKey, Word)> {
        let Some(answering) = self.answers.since(now) else { return Vec::new() };
        let lapse = |(key, cell): (&CellKey, &mut super::Cell)| {
            Some((key.clone(), cell.evidence.lapse(answering, patience, now)?))
        };
        self.cells.iter_mut().filter_map(lapse).collect()
    }
}
