//! Freshness checks for clients that read: each check shows that a store contains every change made
//! before the check. All client requests that wait for the same store share one request to the API
//! server.
//!
//! The check sends a consistent read, which returns the API server's current resource version. The
//! store passes the check in one of two ways:
//!
//! - An event or a bookmark brings the store to the returned version.
//! - The store has the same objects in the same versions as the read. Then no object has changed
//!   between the store's version and the returned version.
//!
//! The second way exists because resource versions are global to etcd. Changes of other resources
//! increase the version, but a watch without events receives a bookmark only once a minute.
//!
//! kubewarm compares a store of at most 1,000 objects with the read. For a larger store, the
//! informer sends a probe (a second, short watch), which takes 1 to 3 s.

use super::{
    digest::ObjectSetDigest, list_watch_client::ListWatchClient, request_builder::ListPaging,
};
use crate::informer::{InformerHandles, InformerMetrics, shared_informer::SharedInformer};
use kubewarm_api::model::{FaultReason, InformerKey, RequestFault, ResourceVersion, Verb};
use kubewarm_client::{ExpiringCache, NamespaceBuckets};
use std::{sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep, sleep_until, timeout_at},
};

/// Maximum number of objects in a store that a freshness check compares with a list of their
/// metadata. A list of 1,000 `ConfigMaps` takes about 30 ms on a slow processor, and the comparison
/// 2 ms. A check must cost the API server at most 50 ms.
const MAX_COMPARED_OBJECTS: u32 = 1_000;
/// Maximum time of a freshness check. The bookmark of a probe takes up to 3 s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay of the probe (a second, short watch) for a store of at most 1,000 objects. The informer
/// sends the probe only if its own watch stays silent for this time. Also the interval at which a
/// freshness check tests whether the informer still watches. A change of the store's version wakes
/// the check, but the end of the watch does not.
const PROBE_DELAY: Duration = Duration::from_millis(100);
/// Minimum time between two comparisons of a store with a list. A comparison of 1,000 objects takes
/// 2 ms, in which the informer cannot change the store.
pub(crate) const COMPARISON_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of probes of one freshness check. A second probe is necessary if the first one
/// ended with the change of an object, not with a bookmark.
const MAX_PROBES: u32 = 2;
/// Maximum number of concurrent freshness checks. Each check uses one connection for at most 5 s;
/// further checks wait.
const MAX_CONCURRENT: usize = 32;

/// The result of a freshness check that a store passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshnessCheckResult {
    /// When kubewarm sent the request of the freshness check. The store contains every change made
    /// before this time.
    pub at: Instant,
    /// The store's version when the store passed the freshness check.
    stored: ResourceVersion,
    /// The API server's version at `at`.
    newest: ResourceVersion,
}

/// How long the result of a freshness check stays cached. A waiting client request accepts only the
/// result of a check that was sent after the client request began to wait.
const RESULT_TTL: Duration = Duration::from_secs(10);
/// Maximum number of cached results of freshness checks. The number exceeds the 32 concurrent
/// checks, so the result of a check is still cached when the waiting client requests look it up.
const MAX_RESULTS: u64 = 1_024;

/// Minimum time between two probes of one informer that reads request to get a bookmark. Clients
/// can request versions that do not exist, and such reads must not cause many probes.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(5);

/// Runs freshness checks, at most one per store at a time. Cheap to clone.
#[derive(Clone)]
pub struct FreshnessChecker {
    reports: InformerHandles,
    metrics: Arc<InformerMetrics>,
    buckets: NamespaceBuckets,
    permits: Arc<Semaphore>,
    results: ExpiringCache<InformerKey, FreshnessCheckResult>,
    /// The informers from which a read requested a bookmark within the last [`BOOKMARK_INTERVAL`].
    bookmarks: ExpiringCache<InformerKey, ()>,
    /// The tokio runtime that runs each freshness check to its end, even if the waiting client
    /// disconnects.
    runtime: Handle,
}

impl FreshnessCheckResult {
    /// Whether a snapshot of the store at `version` contains every change made before the freshness
    /// check.
    ///
    /// Returns `true` if the store had exactly `version` when the store passed the check. Also
    /// returns `true` if `version` is at least the API server's version during the check. These
    /// versions differ if the store passed by comparison. A snapshot at any version between them
    /// can lack changes.
    pub fn is_valid_for(&self, version: &ResourceVersion) -> bool {
        *version == self.stored || *version >= self.newest
    }
}

impl FreshnessChecker {
    /// The caller must be within the tokio runtime that is to run the freshness checks.
    pub(crate) fn new(
        reports: InformerHandles,
        metrics: Arc<InformerMetrics>,
        buckets: NamespaceBuckets,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        let results = ExpiringCache::new(MAX_RESULTS, RESULT_TTL);
        let bookmarks = ExpiringCache::new(MAX_RESULTS, BOOKMARK_INTERVAL);
        Self { reports, metrics, buckets, permits, results, bookmarks, runtime: Handle::current() }
    }

    /// Runs a freshness check of the store of `key`, or shares a check whose request was sent after
    /// `since`. The requests count against the rate limit of the profile namespace `payer`.
    ///
    /// # Errors
    ///
    /// All client requests that wait for the check receive its error:
    ///
    /// - The error of the request.
    /// - [`FaultReason::TimedOut`] if the watch does not reach the API server's version in time.
    /// - [`FaultReason::Throttled`] if the namespace's rate limit or the limit on concurrent
    ///   freshness checks permits no request in time.
    /// - [`FaultReason::Unverified`] if no watch updates the store, because the store is paused,
    ///   blocked or not listed yet.
    ///
    /// # Cost
    ///
    /// One request to the API server for all client requests that begin to wait before kubewarm
    /// sends it. For a store of up to 1,000 objects, the request lists the metadata of all objects.
    /// For a larger store, the request lists one object, and a probe (a second, short watch) of
    /// 1 to 3 s follows. A check takes at most 5 s.
    pub async fn check(
        &self,
        key: &InformerKey,
        payer: &Arc<str>,
        since: Instant,
    ) -> Result<FreshnessCheckResult, RequestFault> {
        let (freshness_checker, informer_key, payer) =
            (self.clone(), key.clone(), Arc::clone(payer));
        let checking = async move { freshness_checker.run_check(&informer_key, &payer).await };
        let (results, runtime) = (&self.results, &self.runtime);
        let freshness_check =
            results.get_or_fetch(runtime, key.clone(), Some(since), || checking).await?;
        Ok(freshness_check.value)
    }

    /// Lets the informer of `key` send a probe (a second, short watch), whose bookmark brings the
    /// store to the API server's version within 1 to 3 s. For a kind without bookmarks, the
    /// informer compares a store of at most 1,000 objects with a list instead. Does nothing if a
    /// read requested a bookmark from the informer in the last 5 s, or if the rate limit of
    /// namespace `payer` permits no request.
    pub fn request_proof(&self, key: &InformerKey, payer: &Arc<str>) {
        // A waiting read calls this method after each of its attempts, so most calls must end here.
        if self.bookmarks.get(key).is_some() {
            return;
        }
        let informer = self.reports.informer(key).filter(|informer| {
            let report = informer.get_summary();
            report.is_kept_current() && (!report.lacks_bookmarks || informer.is_comparable())
        });
        let now = Instant::now();
        if let Some(informer) = informer
            && self.buckets.try_take_spare(payer, now).is_ok()
        {
            self.bookmarks.insert(key.clone(), (), now);
            informer.probe.notify_one();
        }
    }

    async fn run_check(
        &self,
        key: &InformerKey,
        payer: &Arc<str>,
    ) -> Result<FreshnessCheckResult, RequestFault> {
        let informer = self.reports.informer(key).ok_or_else(not_updated)?;
        let deadline = Instant::now() + CHECK_TIMEOUT;
        let list_watch = informer.list_watch.as_ref().map_err(RequestFault::clone)?;
        let _permit = self.acquire_permit(payer, deadline).await?;
        if !informer.get_summary().is_kept_current() {
            return Err(not_updated());
        }
        let before = informer.reader.version();
        let is_comparable = informer.is_comparable();
        let sent = Instant::now();
        let within = deadline.saturating_duration_since(sent);
        self.metrics.for_resource(&key.resource).count_freshness_request(Verb::List);
        let (newest, all) = if is_comparable {
            list_names(list_watch, within).await?
        } else {
            (list_watch.peek(within).await?.version()?, None)
        };
        if before.is_some_and(|before| newest.is_older_than(&before)) {
            // The store is newer than the API server's response. Either an etcd restore lowered
            // resource versions, or this API server lags behind. Send a probe (a second, short
            // watch): if its bookmark is older too, the informer runs a rollback check, which shows
            // the reason.
            informer.probe.notify_one();
            return Err(not_reached());
        }
        let mut probe_at = Some(if all.is_some() { sent + PROBE_DELAY } else { sent });
        let (mut probes_left, mut version_at_probe) = (MAX_PROBES, None);
        let mut deadline = deadline;
        if all.is_none() && informer.get_summary().lacks_bookmarks {
            // The store is too large for a comparison, and the kind has no bookmarks. So only an
            // event that arrives soon can bring the store to the version.
            (probe_at, probes_left) = (None, 0);
            deadline = deadline.min(Instant::now() + PROBE_DELAY);
        }
        loop {
            let stored = informer.reader.version();
            if let Some(freshness_check) = informer.confirm(sent, &newest, all.as_ref()) {
                return Ok(freshness_check);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(not_reached());
            }
            if !informer.get_summary().is_kept_current() {
                return Err(not_updated());
            }
            // A probe ends after its first event. If this event was a change of an object, the
            // probe received no bookmark, so send another probe.
            if probe_at.is_none()
                && probes_left > 0
                && informer.reader.version() != version_at_probe
            {
                probe_at = Some(now + PROBE_DELAY);
            }
            if probe_at.take_if(|at| *at <= now).is_some() {
                (probes_left, version_at_probe) = (probes_left - 1, informer.reader.version());
                self.buckets.charge(payer, 1, now);
                informer.probe.notify_one();
            }
            let changed = informer.reader.wait_for_version(|version| version != stored.as_ref());
            let wake_at = probe_at.unwrap_or(deadline).min(deadline).min(now + PROBE_DELAY);
            let has_changed = timeout_at(wake_at, changed).await.is_ok();
            if has_changed && all.is_some() {
                sleep(COMPARISON_PAUSE).await;
            }
        }
    }

    /// Waits until fewer than 32 freshness checks run and the rate limit of the namespace `payer`
    /// permits a request. Fails with [`FaultReason::Throttled`] at `deadline`.
    async fn acquire_permit(
        &self,
        payer: &Arc<str>,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, RequestFault> {
        // No code closes the semaphore, so an error means that the deadline has passed.
        let Ok(Ok(permit)) = timeout_at(deadline, self.permits.acquire()).await else {
            return Err(too_many_requests());
        };
        while let Err(open_at) = self.buckets.try_take_spare(payer, Instant::now()) {
            if open_at >= deadline {
                return Err(too_many_requests());
            }
            sleep_until(open_at).await;
        }
        Ok(permit)
    }
}

fn not_updated() -> RequestFault {
    RequestFault::new(FaultReason::Unverified, "no watch updates the store")
}

fn not_reached() -> RequestFault {
    RequestFault::new(FaultReason::TimedOut, "the watch has not reached the API server's version")
}

fn too_many_requests() -> RequestFault {
    let message = "too many requests to the API server, of the namespace or of all readers";
    RequestFault::new(FaultReason::Throttled, message)
}

/// Lists the metadata of all objects with a consistent read. Returns the API server's current
/// resource version, and a digest of the objects. The digest is `None` if the list does not fit
/// into one page.
pub(crate) async fn list_names(
    list_watch: &ListWatchClient,
    within: Duration,
) -> Result<(ResourceVersion, Option<ObjectSetDigest>), RequestFault> {
    let mut digest = ObjectSetDigest::new();
    let part = ListPaging::Page { limit: MAX_COMPARED_OBJECTS, token: "" };
    let meta = digest.add_page(list_watch, None, part, within).await?;
    Ok((meta.version()?, meta.token.is_empty().then_some(digest)))
}

impl SharedInformer {
    /// Whether the store has at most 1,000 objects, so that a comparison with a list of metadata is
    /// cheap.
    pub(crate) fn is_comparable(&self) -> bool {
        self.reader.objects() <= MAX_COMPARED_OBJECTS.into()
    }

    /// Returns the result of a freshness check that the store passes, or `None`. The store passes
    /// if it has reached version `newest`. It also passes if `all`, the digest of the listed
    /// objects, equals the digest of its own objects.
    ///
    /// `sent` is when kubewarm sent the check's request.
    pub(crate) fn confirm(
        &self,
        sent: Instant,
        newest: &ResourceVersion,
        all: Option<&ObjectSetDigest>,
    ) -> Option<FreshnessCheckResult> {
        if !self.get_summary().is_kept_current() {
            return None;
        }
        // Lock the sink, through which the informer's task changes the store, until the
        // confirmation is recorded. Otherwise, the task could purge the store after the comparison,
        // and this method would confirm an empty store.
        let no_writer = self.sink.lock();
        let mut stored = self.reader.version()?;
        let has_reached = stored >= *newest;
        if !has_reached {
            let all = all.filter(|all| all.objects() == self.reader.objects())?;
            let (digest, version) = all.of_store(&self.reader);
            stored = version.filter(|_| digest.matches(all))?;
        }
        self.status().confirm(sent);
        drop(no_writer);
        // After a comparison, the store's version is unchanged. But the store is confirmed now, so
        // wake the reads that wait for a version.
        self.reader.wake_version_waits();
        Some(FreshnessCheckResult { at: sent, stored, newest: newest.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::join;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_permit_ends_at_the_deadline_of_the_check() {
        let metrics = Arc::new(InformerMetrics::new().unwrap());
        let checks =
            FreshnessChecker::new(InformerHandles::default(), metrics, NamespaceBuckets::default());
        let (payer, began) = ("ns".into(), Instant::now());
        let all = checks.permits.acquire_many(MAX_CONCURRENT.try_into().unwrap()).await.unwrap();
        let acquire = || async {
            checks.acquire_permit(&payer, Instant::now() + CHECK_TIMEOUT).await.map(drop)
        };
        assert_eq!(acquire().await, Err(too_many_requests()));
        assert_eq!(began.elapsed(), CHECK_TIMEOUT);
        let others_end = async {
            sleep(CHECK_TIMEOUT / 2).await;
            drop(all);
        };
        assert_eq!(join!(acquire(), others_end).0, Ok(()));
        assert_eq!(began.elapsed(), CHECK_TIMEOUT + CHECK_TIMEOUT / 2);
        checks.buckets.charge(&payer, 1_000, Instant::now());
        assert_eq!(
            acquire().await,
            Err(too_many_requests()),
            "the namespace is over its request limit"
        );
    }
}
