//! Repeats an attempt to answer a request, until a store can answer or a further wait cannot help.

use super::{
    ReadService,
    cold_cause::ColdCause,
    covering_informers::CoveringInformers,
    read_candidates::{ReadCandidates, is_version_named},
    recent_versions::CallerHash,
};
use crate::metrics::WaitReason;
use futures::future::{pending, select_all};
use kubewarm_api::model::{InformerKey, MetricOutcome, ProfileRef, ResourceVersion};
use kubewarm_cache::{
    informer::{FreshnessCheckResult, InformerHandles},
    store::StoreReader,
};
use kubewarm_client::NEWLY_READY;
use kubewarm_wire::{ObjectRequest, StatusError};
use std::{sync::Arc, time::Duration};
use tokio::{
    select,
    time::{Instant, timeout_at},
};

/// How long a read waits until a store reaches the resource version that the read needs, or until a
/// freshness check confirms the store that will answer. A freshness check can wait 3 s for the
/// bookmark of a probe, which is a second, short watch. A read that arrives during another read's
/// check can need the rest of this check and a check of its own.
const MAX_WAIT: Duration = Duration::from_secs(6);
/// How long a read waits for a store if the API server can answer the read instead (`--forward`).
/// This limit applies to these reads:
///
/// - reads with `resourceVersion` (except `Exact`), and later pages of lists
/// - `Strict` reads
/// - reads of kinds without bookmarks
/// - reads of stores that kubewarm confirmed within 2 minutes, but not within `maxStalenessSeconds`
///
/// A freshness check takes about 10 ms for 200 objects and 30 ms for 1,000. So within this limit,
/// kubewarm answers from small stores, and forwards most of these reads of larger stores.
const FORWARD_WAIT: Duration = Duration::from_millis(25);
/// How long a read that waits for a forwarded write waits after a failed freshness check, until it
/// repeats the check.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of attempts for one read. kubewarm repeats an attempt if the informer lost
/// access or relisted during the attempt. After the last attempt, kubewarm returns 429.
const MAX_TRIES: usize = 4;

/// Why kubewarm cannot answer a read yet.
pub(super) enum ReadAttemptError {
    /// No informer that can answer the request is warm, or their stores mix objects of two versions
    /// during a relist.
    Cold {
        /// How long the profiles permit a read to wait for a warm informer.
        wait: Duration,
        cause: ColdCause,
        /// Whether kubewarm forwards the read if the wait takes long.
        is_forwardable: bool,
    },
    /// No store has reached the resource version that the read needs.
    Behind {
        /// The informer with the newest store. The read waits for this informer, and asks it for a
        /// bookmark: if the required version is that of another kind's write, no event of this
        /// informer's kind has this version.
        informer: Box<InformerKey>,
        /// The namespace whose limit on kubewarm's requests to the API server counts the request
        /// for the bookmark.
        payer: Arc<str>,
        /// The resource version of the newest store, for the error message.
        newest: ResourceVersion,
        wait: VersionWait,
        /// When kubewarm tries again at the latest, even if no store has reached the version: by
        /// then, another informer or a freshness check can help.
        retry_at: Instant,
    },
    /// kubewarm has not confirmed that a store is as new as the read needs.
    Unconfirmed(Box<FreshnessWait>),
    /// During the attempt, the informer lost access or relisted, so kubewarm repeats the attempt.
    Disturbed,
    /// The read waited for the memory of a large object. Meanwhile, the object, the stores and
    /// their freshness can have changed, so kubewarm repeats the attempt. The time limit of this
    /// wait also limits the repetitions.
    MemoryFreed,
    /// kubewarm answers the read with this error, because a further attempt cannot help.
    Failed(StatusError),
}

/// What a read waits for that needs a freshness check of a store.
pub(super) struct FreshnessWait {
    /// The informer whose store a freshness check can confirm.
    pub(super) informer: InformerKey,
    /// The namespace whose limit on kubewarm's requests to the API server counts the freshness
    /// check.
    pub(super) payer: Arc<str>,
    /// A freshness check is sufficient for this read only if the check began after this time.
    pub(super) since: Instant,
    /// Whether kubewarm forwards the read if the freshness check takes long. This applies in three
    /// cases:
    ///
    /// - the profiles require a check for each read
    /// - the store is older than a `maxStalenessSeconds` below 2 minutes, because no client read it
    /// - the API server sends no bookmarks for the kind, so only an event can confirm a store of
    ///   more than 1,000 objects
    pub(super) is_forwardable: bool,
    /// The forwarded write that the store might lack. A failed freshness check does not end the
    /// read, because the event of the write can still arrive. `None` if the read needs no write.
    pub(super) written: Option<VersionWait>,
    /// The error that the client receives if no freshness check confirms the store.
    pub(super) failure: StatusError,
}

impl From<StatusError> for ReadAttemptError {
    fn from(failure: StatusError) -> Self {
        Self::Failed(failure)
    }
}

impl ReadService {
    /// Calls `answer` with the informers that can answer the request. If `answer` returns a reason
    /// to wait, waits and calls `answer` again. Returns the result of `answer`, and whether the
    /// request waited.
    ///
    /// # Errors
    ///
    /// The errors of [`ReadService::read`].
    pub(super) async fn when_ready<T>(
        &self,
        request: &ObjectRequest,
        profile: Option<&ProfileRef>,
        sender: RequestSender,
        mut answer: impl AsyncFnMut(&ReadCandidates<'_>) -> Result<T, ReadAttemptError>,
    ) -> Result<(T, bool), StatusError> {
        let started_at = Instant::now();
        let mut waited = None;
        let mut changes = self.dependencies.changes.subscribe();
        let resource = request.resource.group_resource();
        let mut disturbed = 0;
        // The start of the wait for a version or a freshness check. The wait for a warm informer
        // has a limit of its own, and does not shorten this wait.
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
                    Err(ReadAttemptError::Cold { wait, cause, is_forwardable }) => {
                        waited = Some(WaitReason::Sync);
                        let give_up = sender.give_up(request, is_forwardable);
                        let wait = if give_up.is_forwarded { FORWARD_WAIT } else { wait };
                        let until = started_at + wait;
                        let is_over = timeout_at(until, changes.changed()).await.is_err();
                        // Changes of other informers also wake this read, and can wake it again and
                        // again. So the read checks its time limit after each change.
                        if is_over || until <= Instant::now() {
                            return Err(give_up.with(cause.error(resource)));
                        }
                    }
                    Err(ReadAttemptError::Behind { informer, payer, newest, wait, retry_at }) => {
                        let now = Instant::now();
                        let waits_since = *waits_since.get_or_insert(now);
                        let is_named = is_version_named(&request.version_match);
                        let give_up = sender.give_up(request, is_named);
                        // The client's `resourceVersion` can be that of a change to another kind.
                        // No event of this kind then brings the version, so kubewarm requests a
                        // bookmark, which does.
                        if is_named {
                            self.dependencies.freshness_checker.request_proof(&informer, &payer);
                        }
                        let mut until = waits_since + give_up.max_wait();
                        if request.watch.is_some() && self.is_newly_ready() {
                            // The watch continues one of another replica, whose store was newer.
                            until = until.max(waits_since + NEWLY_READY);
                        }
                        if now >= until {
                            let failure = StatusError::too_large_version(&wait.version, &newest);
                            return Err(give_up.with(failure));
                        }
                        waited = Some(WaitReason::ResourceVersion);
                        wait.until_reached(&self.dependencies.reports, retry_at.min(until)).await;
                    }
                    Err(ReadAttemptError::Unconfirmed(wait)) => {
                        let waits_since = *waits_since.get_or_insert_with(Instant::now);
                        let give_up = sender.give_up(request, wait.is_forwardable);
                        waited = Some(WaitReason::FreshnessCheck);
                        let until = waits_since + give_up.max_wait();
                        confirmed = self.until_confirmed(*wait, give_up, until).await?;
                    }
                    Err(ReadAttemptError::MemoryFreed) => {}
                    Err(ReadAttemptError::Disturbed) => {
                        disturbed += 1;
                        if disturbed >= MAX_TRIES {
                            return Err(ColdCause::NotWarm.error(resource));
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

    /// Waits for a freshness check. Returns the informer and the result of the check.
    ///
    /// Returns `None` if the read tries again without this result: because a store has received the
    /// write that the read waits for, or because the read repeats a failed check.
    ///
    /// # Errors
    ///
    /// The failure in `wait`: at `until`, and also if the check fails and the read waits for no
    /// write.
    async fn until_confirmed(
        &self,
        wait: FreshnessWait,
        give_up: GiveUp,
        until: Instant,
    ) -> Result<Option<(InformerKey, FreshnessCheckResult)>, StatusError> {
        let FreshnessWait { informer, payer, since, written, failure, .. } = wait;
        let failure = give_up.with(failure);
        // kubewarm forwards a forwardable read instead of waiting for the write's event.
        let written = written.filter(|_| !give_up.is_forwarded);
        if written.is_some() && Instant::now() >= until {
            return Err(failure);
        }
        let reports = &self.dependencies.reports;
        let checking = self.dependencies.freshness_checker.check(&informer, &payer, since);
        let arrival = async {
            match &written {
                Some(written) => written.reached(reports).await,
                None => pending().await,
            }
        };
        let checked = select! {
            checked = timeout_at(until, checking) => checked,
            () = arrival => return Ok(None),
        };
        match (checked, written) {
            (Ok(Ok(freshness_check)), _) if Instant::now() < until => {
                Ok(Some((informer, freshness_check)))
            }
            (Ok(Err(fault)), written) => {
                tracing::debug!(%informer, %fault, "not confirmed to be current");
                let Some(written) = written else { return Err(failure) };
                written.until_reached(reports, until.min(Instant::now() + CHECK_PAUSE)).await;
                Ok(None)
            }
            // The time limit `until` has passed. Shared checks can end at once without a sufficient
            // result for this read, so this branch also prevents an endless loop.
            (Ok(Ok(_)) | Err(_), _) => Err(failure),
        }
    }

    /// Records the end of a wait in the metrics. If the API server answers the read instead, the
    /// caller's next read from a store must not be older than this answer.
    fn record_wait(
        &self,
        request: &ObjectRequest,
        sender: RequestSender,
        (reason, started_at): (WaitReason, Instant),
        failure: Option<&StatusError>,
    ) {
        if failure.is_some_and(|failure| {
            failure.is_specific_to_cache() && matches!(failure.code(), 429 | 504)
        }) {
            let scope = (request.resource.group_resource(), request.namespace.as_ref());
            self.seen_reads.record(sender.caller, scope, None);
            return;
        }
        let outcome = if failure.is_none() { MetricOutcome::Success } else { MetricOutcome::Error };
        self.dependencies.metrics.observe_wait(reason, outcome, started_at.elapsed());
    }
}

/// What a read waits for that needs a resource version which no store has reached.
pub(super) struct VersionWait {
    /// The resource version that the read needs.
    pub(super) version: ResourceVersion,
    /// If `version` is that of a forwarded write, the time of the write. A store that is confirmed
    /// to be current as of a later time contains the write too. `None` if the client or a continue
    /// token named `version`.
    pub(super) written_at: Option<Instant>,
    /// The stores that could answer and have not reached the version, with their informers.
    pub(super) stores: Vec<(InformerKey, StoreReader)>,
}

impl VersionWait {
    /// Waits until one of the stores reaches the version, or is confirmed to contain the write.
    /// Without stores, waits without end.
    async fn reached(&self, reports: &InformerHandles) {
        let is_confirmed = |informer: &InformerKey| {
            self.written_at.is_some_and(|written_at| {
                let report = reports.get_summary(informer);
                report.is_some_and(|report| report.current_at > Some(written_at))
            })
        };
        let waits = self.stores.iter().map(|(informer, store)| {
            Box::pin(store.wait_for_version(move |version| {
                version >= Some(&self.version) || is_confirmed(informer)
            }))
        });
        match self.stores.len() {
            0 => pending().await,
            _ => drop(select_all(waits).await),
        }
    }

    /// Like [`Self::reached`], but waits at most until `until`.
    async fn until_reached(&self, reports: &InformerHandles, until: Instant) {
        let _late = timeout_at(until, self.reached(reports)).await;
    }
}

/// Who sent a request, and whether the API server can answer it instead.
#[derive(Clone, Copy)]
pub(super) struct RequestSender {
    pub(super) caller: CallerHash,
    pub(super) can_forward: bool,
}

impl RequestSender {
    /// Returns when the wait for a store ends. A forwardable read goes to the API server early,
    /// except for a read that selects by a profile's index, because the API server does not know
    /// the index.
    fn give_up(self, request: &ObjectRequest, is_forwardable: bool) -> GiveUp {
        let has_index =
            request.fields.requirements().any(|requirement| requirement.index_name().is_some());
        let is_forwarded = self.can_forward && is_forwardable && !has_index;
        GiveUp { is_forwarded }
    }
}

/// When a read stops waiting for a store.
#[derive(Clone, Copy)]
struct GiveUp {
    /// Whether kubewarm then forwards the read to the API server.
    is_forwarded: bool,
}

impl GiveUp {
    /// The longest wait, counted from the first attempt that found no store new enough.
    fn max_wait(self) -> Duration {
        if self.is_forwarded { FORWARD_WAIT } else { MAX_WAIT }
    }

    /// Returns the error at the end of the wait: `failure`, marked as specific to kubewarm if the
    /// API server answers the read instead.
    fn with(self, failure: StatusError) -> StatusError {
        if self.is_forwarded { failure.specific_to_cache() } else { failure }
    }
}
