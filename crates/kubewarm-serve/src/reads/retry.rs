//! Repeats a read until it can be answered, or until no further wait can help.

use super::{RETRY_AFTER_SECONDS, Reads, cover::Coverage, route::Route};
use crate::metrics::WaitReason;
use kubewarm_api::model::{CellKey, MetricOutcome, ProfileRef, ResourceVersion};
use kubewarm_cache::informer::Proof;
use kubewarm_wire::{Failure, Objects};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};

/// How long a read waits for a version that its store has not reached. The API server waits equally long.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a freshness check of its store.
const PROOF_WAIT: Duration = Duration::from_secs(3);
/// How often a waiting read checks the store's version. Stores do not wake readers at each event.
const VERSION_POLL: Duration = Duration::from_millis(20);
/// The number of attempts of a read whose informer loses access or is listed again during the read.
const MAX_TRIES: usize = 4;

/// Why a read cannot be answered yet.
pub(super) enum NotYet {
    /// No cell that could answer is warm.
    Cold {
        /// How long the profiles let reads wait.
        wait: Duration,
        /// Whether all of them lack permission.
        is_forbidden: bool,
    },
    /// No store has reached the version.
    Behind {
        /// The version that the read needs.
        wanted: ResourceVersion,
        /// The newest version of the stores.
        newest: Option<ResourceVersion>,
    },
    /// No store is confirmed to be as new as the read needs. A freshness check of this informer can change
    /// that.
    Unproven {
        cell: Box<CellKey>,
        /// The namespace whose request rate limit counts the freshness check.
        payer: Arc<str>,
        /// The freshness check must begin after this time.
        since: Instant,
        /// The answer if the freshness check fails.
        failure: Failure,
    },
    /// The informer lost access or was listed again during the read.
    Disturbed,
    /// The read fails; a retry cannot help.
    Failed(Failure),
}

impl From<Failure> for NotYet {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Reads {
    /// Calls `answer` with the informers that can answer, and again after each wait. Returns its result, and
    /// whether the read waited.
    ///
    /// # Errors
    ///
    /// The errors of [`Reads::answer`].
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
                        // Changes of other informers wake this read too.
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
