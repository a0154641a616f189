//! Whether the API server answers anybody: what tells the trouble of one cell from an outage. Pure.

use super::{Book, Found, Job, REVIEW};
use crate::{
    access::{
        clock::{Clock, Company},
        evidence::Word,
        pace::Class,
    },
    informer::Answer,
    model::{CellKey, Identity},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;

/// When checks were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    clock: Clock,
    /// When the operator itself last asked.
    control: Option<Instant>,
}

impl Answers {
    /// One to this identity has come.
    pub(super) fn heard(&mut self, identity: &Identity, now: Instant) {
        self.clock.heard(identity, now);
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

impl Job {
    /// Who asks.
    pub(super) fn identity(&self) -> &Identity {
        match self {
            Self::Trial(key, _) | Self::Review(key, _) => &key.identity,
            Self::Rules((identity, _)) => identity,
            Self::Control => &Identity::Operator,
        }
    }
}

impl Found {
    /// Whether the API server carried the request out. To ask whether it answers at all a refusal will
    /// do, where the operator may not even ask for its own rules.
    pub(super) fn is_answer(&self, job: &Job) -> bool {
        match self {
            Self::Trial(trial) => [&trial.list, &trial.watch].contains(&&Answer::Allowed),
            Self::Rules(Err(fault)) => *job == Job::Control && fault.reason().refuses_identity(),
            Self::Rules(Ok(_)) => true,
            Self::Review(answer) => answer.is_ok(),
        }
    }
}

impl Book {
    /// Takes away what nobody has verified for `patience`, counted while the API server answers: where
    /// it answers nobody, watches bring nothing either, and how old everything is says enough.
    pub(in crate::access) fn lapse(
        &mut self,
        patience: Duration,
        now: Instant,
    ) -> Vec<(CellKey, Word)> {
        let reading = self.answers.clock.reading(now);
        // One that has never been answered, or is refused, says nothing of how the server is.
        let known = self.cells.iter().filter(|(_, cell)| cell.evidence.class() == Class::Held);
        let homes: BTreeSet<Arc<str>> =
            known.filter_map(|(key, _)| home(&key.identity)).cloned().collect();
        let lapse = |(key, cell): (&CellKey, &mut super::Cell)| {
            let has_others = homes.iter().any(|other| Some(other) != home(&key.identity));
            let company = if has_others { Company::Others } else { Company::Nobody };
            Some((key.clone(), cell.evidence.lapse((reading, company), patience, now)?))
        };
        self.cells.iter_mut().filter_map(lapse).collect()
    }
}

/// The namespace of an account.
fn home(identity: &Identity) -> Option<&Arc<str>> {
    match identity {
        Identity::ServiceAccount { namespace, .. } => Some(namespace),
        Identity::Operator => None,
    }
}
