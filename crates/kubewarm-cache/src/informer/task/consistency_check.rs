//! Consistency checks: an informer periodically compares its store with a list, because a watch
//! that misses an event looks like a healthy watch.
//!
//! The list is at the store's exact resource version, so changes during the check have no effect. A
//! check compares only names, UIDs and resource versions, because each change gives an object a new
//! version.

use super::{watch::WatchRun, watch_stream::WatchStreamEnd};
use crate::informer::requests::{digest::ObjectSetDigest, request_builder::ListPaging};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{FaultReason, MetricOutcome, RequestFault};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Result of a consistency check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyResult {
    /// The store contains the same objects as the list of the consistency check.
    Equal,
    /// The store differs from the list of the consistency check. The informer relists.
    Different,
    /// kubewarm could not compare the store with a list. Either an object is undecodable, or
    /// resource versions are not numbers, or the API server cannot list at the store's resource
    /// version.
    Skipped,
    /// The list request of the consistency check failed, for example because the API server
    /// rejected it or did not respond.
    Failed,
}

/// Time limit for each page of the list that is compared with the store. The limit is long, because
/// no client waits for a consistency check.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Time to the consistency check of a store that was copied from another replica, before its random
/// factor: at most 10 minutes. The profile's own period can be longer, or it can have none.
const COPY_CHECK: Duration = Duration::from_mins(8);

/// When consistency checks are due.
pub(crate) struct ConsistencySchedule {
    /// Start of the last check. Before the first check, this is the start of the task's run.
    checked_at: Instant,
    /// Random factor from 0.8 to 1.2 for the period. The factor spreads the checks of informers
    /// that started together.
    jitter: f64,
}

impl ConsistencySchedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self { checked_at: now, jitter: 0.8 + 0.4 * fastrand::f64() }
    }
}

impl WatchRun<'_> {
    /// Waits until the next consistency check is due. If the profile disables consistency checks,
    /// the future never completes, except for a copied store. Cancel safe.
    pub(crate) fn consistency_check_due(&self) -> impl Future<Output = ()> + use<> {
        let declared = self.session.informer.settings(|settings| settings.consistency_check_period);
        let copied = self.session.informer.status().is_unchecked_copy().then_some(COPY_CHECK);
        let period = [declared, copied].into_iter().flatten().min();
        let due = period.and_then(|period| {
            self.checks.checked_at.checked_add(period.mul_f64(self.checks.jitter))
        });
        async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        }
    }

    /// Starts a consistency check. If kubewarm cannot compare the store now, for example because
    /// the store lacks an undecodable object, the check counts as skipped. The method then returns
    /// a terminated future.
    ///
    /// Each request of the check counts against the rate limit of the profile's namespace.
    /// Consistency checks use at most half of this limit; the other half is for access checks.
    pub(crate) fn start_consistency_check(
        &mut self,
    ) -> Fuse<BoxFuture<'static, ConsistencyResult>> {
        self.checks.checked_at = Instant::now();
        let (stored, version) = ObjectSetDigest::new().of_store(&self.session.informer.reader);
        let is_whole = self.session.rejected == 0;
        let Some(at) = version.filter(|version| is_whole && !version.is_opaque()) else {
            self.session.metrics.count_consistency_check(ConsistencyResult::Skipped);
            return Fuse::terminated();
        };
        let (list_watch, shared) =
            (self.session.list_watch.clone(), Arc::clone(&self.session.shared));
        let limit = self.session.informer.settings(|settings| settings.lists.page_size);
        let namespace = self.session.namespace_of_profile();
        let check = async move {
            let _permit = shared.consistency_checks.acquire(&namespace).await;
            let mut listed = stored.empty();
            let mut token = String::new();
            loop {
                while let Err(open_at) = shared.buckets.try_take_spare(&namespace, Instant::now()) {
                    sleep_until(open_at).await;
                }
                let part = ListPaging::Page { limit, token: &token };
                let page = match listed.add_page(&list_watch, Some(&at), part, PAGE_TIMEOUT).await {
                    Ok(page) => page,
                    Err(fault) => return ConsistencyResult::failed(&fault),
                };
                if page.version().ok().as_ref() != Some(&at) {
                    return ConsistencyResult::Skipped;
                }
                if page.token.is_empty() {
                    let is_equal = stored.matches(&listed);
                    return if is_equal {
                        ConsistencyResult::Equal
                    } else {
                        ConsistencyResult::Different
                    };
                }
                token = page.token;
            }
        };
        check.boxed().fuse()
    }

    /// Counts the result of a consistency check. If the store differs from the list, logs the
    /// difference and returns the reason to end the watch.
    pub(crate) fn finish_consistency_check(
        &self,
        result: ConsistencyResult,
    ) -> Option<WatchStreamEnd> {
        self.session.metrics.count_consistency_check(result);
        if result == ConsistencyResult::Equal {
            self.session.informer.status().record_equal();
        }
        if result != ConsistencyResult::Different {
            return None;
        }
        tracing::error!(
            informer = %self.session.informer.key,
            version = self.session.version().map(|version| version.to_string()),
            "the store differs from the API server at the same version; listing again"
        );
        Some(WatchStreamEnd::Inconsistent)
    }
}

impl ConsistencyResult {
    /// The value of label `outcome` of `kubewarm_consistency_checks_total`. A consistency check
    /// that found a difference counts as `success`, because kubewarm completed the check.
    pub(crate) const fn outcome(self) -> MetricOutcome {
        match self {
            Self::Equal | Self::Different => MetricOutcome::Success,
            Self::Skipped => MetricOutcome::Cancelled,
            Self::Failed => MetricOutcome::Error,
        }
    }

    fn failed(fault: &RequestFault) -> Self {
        // The API server no longer has the store's resource version, or does not support
        // `resourceVersionMatch=Exact`.
        if matches!(fault.reason(), FaultReason::Gone | FaultReason::Unsupported) {
            return Self::Skipped;
        }
        tracing::debug!(%fault, "nothing to compare with");
        Self::Failed
    }
}
