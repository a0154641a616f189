//! Probes: a second, short watch shows whether a silent watch has missed events, and brings the store
//! to the version of a consistent list, which proves the store current (ADR 28).
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
    from: ResourceVersion,
    /// The value of `InformerTask::new_events` when the second watch was opened.
    new_events: u64,
    /// When kubewarm had sent the list that this probe is to prove. `None` for a probe that a freshness check
    /// requested.
    pending_since: Option<Instant>,
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
        let new_events = self.new_events;
        let pending_since = self.informer.status().pending_since();
        let probing = async move {
            let permit = shared.probes.acquire(&namespace).await;
            let timing = &shared.timing;
            let result = list_watch.probe(&from, timing.probe, timing.watch_headers).await?;
            drop(permit);
            if matches!(result, WatchProbeResult::Event(_)) {
                sleep(timing.probe_grace).await;
            }
            Ok(WatchProbe { from, new_events, pending_since, result })
        };
        probing.boxed().fuse()
    }

    /// Evaluates a probe. Returns the reason if the informer's own watch must end.
    pub(super) fn evaluate_probe(
        &mut self,
        probed: Result<WatchProbe, RequestFault>,
    ) -> Option<WatchStreamEnd> {
        let WatchProbe { from, new_events, pending_since, result } = match probed {
            Ok(probed) => probed,
            Err(fault) if fault.reason() == FaultReason::Gone => {
                return Some(WatchStreamEnd::Dead("the version is too old for a second watch"));
            }
            Err(fault) => {
                self.record_proof_fault(Verb::Watch, &fault);
                return None;
            }
        };
        self.informer.status().clear_refusal(Verb::Watch);
        match result {
            WatchProbeResult::Bookmark(version) => {
                if version.is_older_than(&from) {
                    return Some(WatchStreamEnd::VersionDecreased);
                }
                // The informer's own watch can have delivered a newer version during the probe.
                // Keep that newer version.
                if !self.version().is_some_and(|known| version.is_older_than(&known)) {
                    self.informer.apply(Delta::Progress(version.clone()));
                    self.probed = Some(version.clone());
                    self.informer.status().advance(version);
                }
                self.record_probe(pending_since);
                self.record_healthy();
            }
            WatchProbeResult::Event(version) if self.lacks(&version, new_events) => {
                return Some(WatchStreamEnd::Dead(
                    "a second watch received events that this one did not send",
                ));
            }
            WatchProbeResult::Event(_) => self.record_probe(pending_since),
            // The second watch was as silent as the first one, so it shows nothing about it.
            WatchProbeResult::Nothing(why) => {
                tracing::debug!(informer = %self.informer.key, why, "no proof");
                self.record_probe(pending_since);
            }
        }
        None
    }

    /// Records whether the store is current as of the list at `pending_since`. A newer list can wait by now.
    fn record_probe(&mut self, pending_since: Option<Instant>) {
        let Some(pending_since) = pending_since else { return };
        let current_at = self.informer.status().report.current_at;
        let is_proven = current_at >= Some(pending_since);
        self.proofs.record_probe(is_proven, Instant::now(), &self.shared.timing);
    }

    /// Whether the informer's own watch has not reached `version`, which the probe's watch received
    /// in an event. The informer's own watch had `new_events` when the probe began.
    fn lacks(&self, version: &ResourceVersion, new_events: u64) -> bool {
        let status = self.informer.status();
        status.version().is_some_and(|known| match known.partial_cmp(version) {
            Some(order) => order.is_lt(),
            // Resource versions that are not numbers have no order. So check whether the informer's own
            // watch has sent an event since.
            None => self.new_events == new_events,
        })
    }
}
