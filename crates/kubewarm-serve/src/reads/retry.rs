//! Repeats an attempt to answer a request, until a store can answer or a further wait cannot help.

use super::{
    RETRY_AFTER_SECONDS, ReadService, covering_informers::CoveringInformers,
    read_candidates::ReadCandidates, recent_versions::CallerHash,
};
use crate::metrics::WaitReason;
use kubewarm_api::model::{InformerKey, MetricOutcome, ProfileRef, ResourceVersion};
use kubewarm_cache::informer::FreshnessCheckResult;
use kubewarm_wire::{ObjectRequest, StatusError, VersionMatch};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long a read waits until a store reaches the resource version that the read needs, or until a freshness check
/// confirms the store that will answer. The bookmark of a probe (a second, short watch) takes up to 3 s. A read that
/// arrives during another read's check waits for two of them.
const MAX_WAIT: Duration = Duration::from_secs(6);
/// The same with `--forward`, if the read needs the state of the time of its request: the API server then answers it.
/// A freshness check takes about 10 ms for 200 objects and 30 ms for 1,000, so most reads of larger stores are forwarded.
const FORWARD_WAIT: Duration = Duration::from_millis(25);
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
        /// The informer with the newest store. A bookmark can bring its store to the resource version.
        informer: Box<InformerKey>,
        /// The requests for the bookmark count against the limit on kubewarm's requests for this namespace.
        payer: Arc<str>,
        /// The resource version that the read needs.
        query: ResourceVersion,
        /// The resource version of this store; `None` if it has none.
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
        /// Whether the API server answers the read if the freshness check takes long: the profiles require a check
        /// for each read, or the API server sends no bookmarks for the kind.
        is_forwardable: bool,
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
        sender: RequestSender,
        answer: impl AsyncFn(&ReadCandidates<'_>) -> Result<T, ReadAttemptError>,
    ) -> Result<(T, bool), StatusError> {
        let started_at = Instant::now();
        let mut waited = None;
        let mut changes = self.dependencies.changes.subscribe();
        let of = request.resource.group_resource();
        let not_warm = || StatusError::not_warm(of, RETRY_AFTER_SECONDS);
        let access_missing = || StatusError::access_missing(of, RETRY_AFTER_SECONDS);
        let mut disturbed = 0;
        // The wait for a warm informer has a limit of its own.
        let mut waits_since: Option<Instant> = None;
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
                    .route(request, covering, (sender.caller, started_at), confirmed.as_ref())
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
                    Err(ReadAttemptError::Behind { informer, payer, query, newest }) => {
                        let now = Instant::now();
                        let waits_since = *waits_since.get_or_insert(now);
                        let is_named = matches!(
                            request.version_match,
                            VersionMatch::NotOlderThan(_)
                                | VersionMatch::Continue { version: Some(_), .. }
                        );
                        let give_up = sender.give_up(request, is_named);
                        // The version can be one of another kind, so that no event of this kind has it.
                        if is_named {
                            self.dependencies.freshness_checker.request_bookmark(&informer, &payer);
                        }
                        let until = waits_since + give_up.max_wait();
                        if now >= until {
                            let failure = StatusError::too_large_version(&query, newest.as_ref());
                            return Err(give_up.with(failure));
                        }
                        waited = Some(WaitReason::ResourceVersion);
                        sleep_until(until.min(now + VERSION_POLL)).await;
                    }
                    Err(ReadAttemptError::Unconfirmed {
                        informer,
                        payer,
                        since,
                        is_forwardable,
                        failure,
                    }) => {
                        let waits_since = *waits_since.get_or_insert_with(Instant::now);
                        let give_up = sender.give_up(request, is_forwardable);
                        let failure = give_up.with(failure);
                        waited = Some(WaitReason::FreshnessCheck);
                        let until = waits_since + give_up.max_wait();
                        let proving =
                            self.dependencies.freshness_checker.check(&informer, &payer, since);
                        confirmed = match timeout_at(until, proving).await {
                            Ok(Ok(freshness_check)) if Instant::now() < until => {
                                Some((*informer, freshness_check))
                            }
                            Ok(Err(fault)) => {
                                tracing::debug!(%informer, %fault, "not confirmed to be current");
                                return Err(failure);
                            }
                            // A check that others wait for can end at once. So the time limit also ends this loop.
                            Ok(Ok(_)) | Err(_) => return Err(failure),
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
            self.record_wait(request, sender, (reason, started_at), answered.as_ref().err());
        }
        Ok((answered?, waited.is_some()))
    }

    /// Records the end of a wait. If the API server answers the read, records that for the caller's next reads.
    fn record_wait(
        &self,
        request: &ObjectRequest,
        sender: RequestSender,
        (reason, started_at): (WaitReason, Instant),
        failure: Option<&StatusError>,
    ) {
        if failure.is_some_and(|it| it.is_specific_to_cache() && it.code() == 504) {
            let scope = (request.resource.group_resource(), request.namespace.as_ref());
            self.seen_reads.record(sender.caller, scope, None);
            return;
        }
        let outcome = if failure.is_none() { MetricOutcome::Success } else { MetricOutcome::Error };
        self.dependencies.metrics.observe_wait(reason, outcome, started_at.elapsed());
    }
}

/// Who sent a request, and whether the API server can answer it instead.
#[derive(Clone, Copy)]
pub(super) struct RequestSender {
    pub(super) caller: CallerHash,
    pub(super) can_forward: bool,
}

impl RequestSender {
    /// When the wait for a store ends. A forwardable read goes to the API server early, unless it selects by an index,
    /// which the API server does not know.
    fn give_up(self, request: &ObjectRequest, is_forwardable: bool) -> GiveUp {
        let has_index = request.fields.requirements().any(|it| it.index_name().is_some());
        let is_forwarded = self.can_forward && is_forwardable && !has_index;
        GiveUp { is_forwarded }
    }
}

/// When a read stops waiting for a store.
#[derive(Clone, Copy)]
struct GiveUp {
    /// Whether the API server answers the read then.
    is_forwarded: bool,
}

impl GiveUp {
    /// The longest wait for a store, from the first one that was not new enough.
    fn max_wait(self) -> Duration {
        if self.is_forwarded { FORWARD_WAIT } else { MAX_WAIT }
    }

    /// Returns the error at the end of the wait: `failure`, marked as specific to kubewarm if the read is forwarded.
    fn with(self, failure: StatusError) -> StatusError {
        if self.is_forwarded { failure.specific_to_cache() } else { failure }
    }
}
