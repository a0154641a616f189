//! Tries a read until it can be answered, or until nothing is left to wait for.

use super::{RETRY_AFTER_SECONDS, Reads, cover::Coverage, route::Route};
use crate::metrics::WaitReason;
use kubewarm_api::model::{CellKey, MetricOutcome, ProfileRef, ResourceVersion};
use kubewarm_cache::informer::Proof;
use kubewarm_wire::{Failure, Objects};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};

/// How long a read waits for a version that has not come yet: as long as the API server does.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a proof that its cell is current.
const PROOF_WAIT: Duration = Duration::from_secs(3);
/// How often a read looks whether a version has come. Events come at any moment, and nobody is woken for each.
const VERSION_POLL: Duration = Duration::from_millis(20);
/// How often a read starts again because its cell lost access, or was listed again, while it was read.
const MAX_TRIES: usize = 4;

/// Why a read has no answer yet.
pub(super) enum NotYet {
    /// No cell that could answer is warm.
    Cold {
        /// How long the profiles let reads wait.
        wait: Duration,
        /// Whether all of them lack permission.
        is_forbidden: bool,
    },
    /// No table has reached the version.
    Behind {
        /// The version that is waited for.
        wanted: ResourceVersion,
        /// The newest that there is.
        newest: Option<ResourceVersion>,
    },
    /// No cell is known to be as new as wanted. This one would answer if it were known to be current.
    Unproven {
        cell: Box<CellKey>,
        /// The namespace at whose expense the proof is made.
        payer: Arc<str>,
        /// The proof must be younger than this.
        since: Instant,
        /// The answer if there is no proof.
        failure: Failure,
    },
    /// The cell lost access, or was listed again, while it was read.
    Disturbed,
    /// The read will have no answer.
    Failed(Failure),
}

impl From<Failure> for NotYet {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Reads {
    /// Calls `answer` with the cells that may answer, and again after each wait. Returns the answer, and whether it took
    /// a wait.
    ///
    /// # Errors
    ///
    /// What the API server would say; 421, 429 and 504 as of [`Reads::answer`].
    pub(super) async fn when_ready<T>(
        &self,
        asked: &Objects,
        profile: Option<&ProfileRef>,
        answer: impl AsyncFn(&Route<'_>) -> Result<T, NotYet>,
    ) -> Result<(T, bool), Failure> {
        let began = Instant::now();
        let mut waited = None;
        let mut changes = self.from.changes.subscribe();
        let of = asked.resource.group_resource();
        let not_warm = || Failure::not_warm(of, RETRY_AFTER_SECONDS);
        let access_missing = || Failure::access_missing(of, RETRY_AFTER_SECONDS);
        let mut disturbed = 0;
        let mut proved: Option<(CellKey, Proof)> = None;
        let answered = async {
            loop {
                changes.mark_unchanged();
                let offers = self.offers()?;
                let coverage = Coverage::of(&offers, asked, profile, &self.from.home)?;
                let answered = match self.route(asked, coverage, (began, proved.as_ref())).await {
                    Ok(route) => answer(&route).await,
                    Err(not_yet) => Err(not_yet),
                };
                match answered {
                    Ok(answer) => return Ok(answer),
                    Err(NotYet::Failed(failure)) => return Err(failure),
                    Err(NotYet::Cold { wait, is_forbidden }) => {
                        waited = Some(WaitReason::Sync);
                        let until = began + wait;
                        let is_over = timeout_at(until, changes.changed()).await.is_err();
                        // Somewhere something may change all the time.
                        if is_over || until <= Instant::now() {
                            return Err(if is_forbidden { access_missing() } else { not_warm() });
                        }
                    }
                    Err(NotYet::Behind { wanted, newest }) => {
                        if began.elapsed() >= VERSION_WAIT {
                            return Err(Failure::too_large_version(&wanted, newest.as_ref()));
                        }
                        waited = Some(WaitReason::ResourceVersion);
                        sleep(VERSION_POLL).await;
                    }
                    Err(NotYet::Unproven { cell, payer, since, failure }) => {
                        waited = Some(WaitReason::FreshnessCheck);
                        let proving = self.from.proofs.prove(&cell, &payer, since);
                        proved = match timeout_at(began + PROOF_WAIT, proving).await {
                            Ok(Ok(proof)) => Some((*cell, proof)),
                            Ok(Err(unproven)) => {
                                tracing::debug!(%cell, %unproven, "not proved current");
                                return Err(failure);
                            }
                            Err(_elapsed) => return Err(failure),
                        };
                    }
                    Err(NotYet::Disturbed) => {
                        disturbed += 1;
                        if disturbed >= MAX_TRIES {
                            return Err(not_warm());
                        }
                    }
                }
            }
        };
        let answered = answered.await;
        if let Some(reason) = waited {
            let outcome =
                if answered.is_ok() { MetricOutcome::Success } else { MetricOutcome::Error };
            self.from.metrics.observe_wait(reason, outcome, began.elapsed());
        }
        Ok((answered?, waited.is_some()))
    }
}
