//! Probes: a second, short watch shows whether a silent watch has missed events.
//!
//! The second watch starts from the store's version with `timeoutSeconds=4`. An API server of
//! Kubernetes 1.36 first sends events, then a bookmark after 1.5 to 2.9 s. With `timeoutSeconds` of
//! 2 or 3, it sends no bookmark.
//!
//! - If the bookmark comes first, the silent watch has missed nothing up to the bookmark's version.
//! - If an event comes first, the silent watch must deliver it, too. Otherwise the silent watch is
//!   dead, and the informer opens another.

use super::{
    list_watch_client::WatchProbeResult, task::InformerTask, watch_stream::WatchStreamEnd,
};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{Delta, FaultReason, RequestFault, ResourceVersion, Verb};
use std::sync::Arc;
use tokio::time::{Instant, sleep};

#[derive(Debug)]
pub(super) struct WatchProbe {
    /// When the second watch was opened.
    requested_at: Instant,
    from: ResourceVersion,
    result: WatchProbeResult,
}

impl InformerTask {
    /// Starts a probe when the limit on concurrent probes of the profile's namespace permits it. If
    /// the probe's watch receives an event, the future completes `InformerTiming::probe_grace`
    /// later. Until then, the informer's own watch must deliver the event.
    pub(super) fn probe(&self) -> Fuse<BoxFuture<'static, Result<WatchProbe, RequestFault>>> {
        let Some(from) = self.version() else { return Fuse::terminated() };
        let namespace = self.namespace_of_profile();
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let probing = async move {
            let permit = shared.probes.acquire(&namespace).await;
            let timing = &shared.timing;
            let requested_at = Instant::now();
            let result = list_watch.probe(&from, timing.probe, timing.watch_headers).await?;
            drop(permit);
            if matches!(result, WatchProbeResult::Event(_)) {
                sleep(timing.probe_grace).await;
            }
            Ok(WatchProbe { requested_at, from, result })
        };
        probing.boxed().fuse()
    }

    /// Evaluates a probe. Returns the earliest time of the next probe, or the reason why the
    /// informer's own watch must end.
    pub(super) fn evaluate_probe(
        &mut self,
        probed: Result<WatchProbe, RequestFault>,
    ) -> Result<Instant, WatchStreamEnd> {
        let pause = self.shared.timing.probe_pause;
        let WatchProbe { requested_at, from, result } = match probed {
            Ok(probed) => probed,
            Err(fault) if fault.reason() == FaultReason::Gone => {
                return Err(WatchStreamEnd::Dead("the version is too old for a second watch"));
            }
            Err(fault) => {
                self.metrics.count_request_error(Verb::Watch, fault.code());
                let delay =
                    self.backoff.record_failure(fault.retry_after(), fastrand::f64()).max(pause);
                self.informer.status().record_fault(
                    Verb::Watch,
                    &fault,
                    self.backoff.failures(),
                    delay,
                );
                self.shared.changes.notify();
                return Ok(Instant::now() + delay);
            }
        };
        self.informer.status().clear_refusal(Verb::Watch);
        match result {
            WatchProbeResult::Bookmark(version) => {
                if version.is_older_than(&from) {
                    return Err(WatchStreamEnd::VersionDecreased);
                }
                // The informer's own watch can have delivered a newer version during the probe.
                // Keep that newer version.
                if !self.version().is_some_and(|known| version.is_older_than(&known)) {
                    self.informer.apply(Delta::Progress(version.clone()));
                    self.informer.status().report.version = Some(version);
                }
                self.informer.status().confirm(requested_at);
                self.record_healthy();
            }
            WatchProbeResult::Event(version) if self.lacks(&version, requested_at) => {
                return Err(WatchStreamEnd::Dead(
                    "a second watch received events that this one did not send",
                ));
            }
            WatchProbeResult::Event(_) => {}
            WatchProbeResult::Nothing(why) => return Err(WatchStreamEnd::Dead(why)),
        }
        Ok(Instant::now())
    }

    /// Whether the informer's own watch has not reached `version`, which the probe's watch received
    /// in an event. The probe began at `requested_at`.
    fn lacks(&self, version: &ResourceVersion, requested_at: Instant) -> bool {
        let status = self.informer.status();
        status.version().is_some_and(|known| match known.partial_cmp(version) {
            Some(order) => order.is_lt(),
            // Resource versions that are not numbers have no order. So check whether the store was
            // confirmed since `requested_at`, for example by an event of the informer's own watch.
            None => status.report.current_at.is_none_or(|current| current < requested_at),
        })
    }
}
