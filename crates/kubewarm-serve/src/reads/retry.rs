//! Repeats an attempt to answer a request, until a store can answer or a further wait cannot help.

use super::{
    RETRY_AFTER_SECONDS, ReadService, covering_informers::CoveringInformers,
    read_candidates::ReadCandidates, recent_versions::CallerHash,
};
use crate::metrics::WaitReason;
use kubewarm_api::model::{InformerKey, MetricOutcome, ProfileRef, ResourceVersion};
use kubewarm_cache::informer::FreshnessCheckResult;
use kubewarm_wire::{ObjectRequest, StatusError};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};

/// How long a read waits until a store reaches the resource version that the read needs. The API server waits for
/// the same time.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a freshness check of the store that will answer it.
const FRESHNESS_CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which a waiting read checks the resource version of a store, because stores do not wake reads.
const VERSION_POLL: Duration = Duration::from_millis(20);
/// The maximum number of attempts for one read. kubewarm repeats an attempt if the informer lost access or listed
/// its objects again during the attempt.
const MAX_TRIES: usize = 4;

/// Why kubewarm cannot answer a read yet.
pub(super) enum ReadAttemptError {
    /// No informer that can answer the request is warm.
    Cold {
        /// How long the profiles permit a read to wait for a warm informer.
        wait: Duration,
        /// Whether all informers that can answer the request lack permission to list and watch.
        is_forbidden: bool,
    },
    /// No store has reached the resource version that the read needs.
    Behind {
        /// The resource version that the read needs.
        query: ResourceVersion,
        /// The newest resource version of all stores that could answer the read; `None` if no store has a resource
        /// version.
        newest: Option<ResourceVersion>,
    },
    /// kubewarm has not confirmed that a store is as new as the read needs. A freshness check can confirm the
    /// store of `informer`.
    Unconfirmed {
        informer: Box<InformerKey>,
        /// The freshness check counts against the limit on kubewarm's requests for this namespace.
        payer: Arc<str>,
        /// A freshness check is sufficient for this read only if the check began after this time.
        since: Instant,
        /// The error that the client receives if the freshness check fails.
        failure: StatusError,
    },
    /// During the attempt, the informer lost access or listed its objects again, so kubewarm repeats the attempt.
    Disturbed,
    /// kubewarm answers the read with this error, because a further attempt cannot help.
    Failed(StatusError),
}

impl From<StatusError> for ReadAttemptError {
    fn from(failure: StatusError) -> Self {
        Self::Failed(failure)
    }
}

impl ReadService {
    /// Calls `answer` with the informers that can answer the request. If `answer` returns a reason to wait, waits
    /// and calls `answer` again. Returns the result of `answer`, and whether the request waited.
    ///
    /// # Errors
    ///
    /// The errors of [`ReadService::read`].
    pub(super) async fn when_ready<T>(
        &self,
        request: &ObjectRequest,
        profile: Option<&ProfileRef>,
        caller: CallerHash,
        answer: impl AsyncFn(&ReadCandidates<'_>) -> Result<T, ReadAttemptError>,
    ) -> Result<(T, bool), StatusError> {
        let started_at = Instant::now();
        let mut waited = None;
        let mut changes = self.dependencies.changes.subscribe();
        let of = request.resource.group_resource();
        let not_warm = || StatusError::not_warm(of, RETRY_AFTER_SECONDS);
        let access_missing = || StatusError::access_missing(of, RETRY_AFTER_SECONDS);
        let mut disturbed = 0;
        let mut confirmed: Option<(InformerKey, FreshnessCheckResult)> = None;
        let answered = async {
            loop {
                changes.mark_unchanged();
                let serving_index = self.serving_index()?;
                serving_index.admit_to_metrics(&request.resource, &self.dependencies.metrics);
                let covering = CoveringInformers::find(
                    &serving_index,
                    request,
                    profile,
                    &self.dependencies.operator_namespace,
                )?;
                let answered = match self
                    .route(request, covering, (caller, started_at), confirmed.as_ref())
                    .await
                {
                    Ok(route) => answer(&route).await,
                    Err(not_yet) => Err(not_yet),
                };
                match answered {
                    Ok(answer) => return Ok(answer),
                    Err(ReadAttemptError::Failed(failure)) => return Err(failure),
                    Err(ReadAttemptError::Cold { wait, is_forbidden }) => {
                        waited = Some(WaitReason::Sync);
                        let until = started_at + wait;
                        let is_over = timeout_at(until, changes.changed()).await.is_err();
                        // State changes of unrelated informers also wake this read, so the read checks its time
                        // limit after each change.
                        if is_over || until <= Instant::now() {
                            return Err(if is_forbidden { access_missing() } else { not_warm() });
                        }
                    }
                    Err(ReadAttemptError::Behind { query, newest }) => {
                        if started_at.elapsed() >= VERSION_WAIT {
                            return Err(StatusError::too_large_version(&query, newest.as_ref()));
                        }
                        waited = Some(WaitReason::ResourceVersion);
                        sleep(VERSION_POLL).await;
                    }
                    Err(ReadAttemptError::Unconfirmed { informer, payer, since, failure }) => {
                        waited = Some(WaitReason::FreshnessCheck);
                        let proving =
                            self.dependencies.freshness_checker.check(&informer, &payer, since);
                        confirmed = match timeout_at(started_at + FRESHNESS_CHECK_TIMEOUT, proving)
                            .await
                        {
                            Ok(Ok(freshness_check)) => Some((*informer, freshness_check)),
                            Ok(Err(fault)) => {
                                tracing::debug!(%informer, %fault, "not confirmed to be current");
                                return Err(failure);
                            }
                            Err(_elapsed) => return Err(failure),
                        };
                    }
                    Err(ReadAttemptError::Disturbed) => {
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
            self.dependencies.metrics.observe_wait(reason, outcome, started_at.elapsed());
        }
        Ok((answered?, waited.is_some()))
    }
}
