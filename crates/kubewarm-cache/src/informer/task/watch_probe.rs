//! Probes: a second, short watch shows whether a silent watch has missed events, and brings the
//! store to the version of a consistent list, which proves the store current (ADR 28).
//!
//! The second watch starts from the store's version with `timeoutSeconds=4`. An API server of
//! Kubernetes 1.36 first sends events, then a bookmark after 1.5 to 2.9 s. With `timeoutSeconds` of
//! 2 or 3, it sends no bookmark.
//!
//! - If the bookmark comes first, the silent watch has missed nothing up to the bookmark's version.
//! - If an event comes first, the silent watch must deliver it, too. Otherwise the silent watch is
//!   dead, and the informer opens another.
//!
//! The API server sends no bookmarks for kinds that it does not serve from its watch cache, such as
//! `events`. Silence proves nothing. For such a kind, the informer compares a small store with a
//! list of metadata instead. If both are equal, the store reaches the list's version, as with a
//! bookmark.

use super::{watch::WatchRun, watch_stream::WatchStreamEnd};
use crate::informer::{
    requests::{
        freshness_checker::{COMPARISON_PAUSE, list_names},
        list_watch_client::{ListWatchClient, WatchProbeResult},
    },
    shared_informer::SharedInformer,
    timing::InformerTiming,
};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{Delta, FaultReason, RequestFault, ResourceVersion, Verb};
use std::{mem, sync::Arc};
use tokio::time::{Instant, sleep, timeout, timeout_at};

#[derive(Debug)]
pub(crate) struct WatchProbe {
    from: ResourceVersion,
    /// The value of `WatchRun::new_events` when the second watch was opened. If the value has
    /// increased since, the informer's own watch works.
    new_events: u64,
    /// When kubewarm sent the consistent list to whose version this probe should bring the store.
    /// `None` if the store had reached the versions of all lists, and only a freshness check or a
    /// read requested the probe.
    pending_since: Option<Instant>,
    result: ProbeResult,
}

/// A failed request of a probe.
#[derive(Debug)]
pub(crate) struct ProbeFault {
    verb: Verb,
    fault: RequestFault,
}

#[derive(Debug)]
enum ProbeResult {
    /// The second watch's first event or bookmark.
    Watched(WatchProbeResult),
    /// The result of a comparison with a list of metadata.
    Compared(StoreComparison),
}

#[derive(Debug)]
enum StoreComparison {
    /// The store became equal to the list of this version within `InformerTiming::probe_grace`.
    Equal(ResourceVersion),
    Different,
    /// The list has more objects than one page.
    TooLarge,
    /// The list is older than the store.
    Older,
}

impl WatchRun<'_> {
    /// Starts a probe (a second, short watch, which shows whether the informer's own watch is dead)
    /// when the limit on concurrent probes of the profile's namespace permits it. If the probe
    /// receives an event, the future waits until the informer's own watch has brought the event to
    /// the store, at most for `InformerTiming::probe_grace`.
    pub(crate) fn probe(&self) -> Fuse<BoxFuture<'static, Result<WatchProbe, ProbeFault>>> {
        let Some(from) = self.session.version() else { return Fuse::terminated() };
        let namespace = self.session.namespace_of_profile();
        let (list_watch, shared) =
            (self.session.list_watch.clone(), Arc::clone(&self.session.shared));
        let metrics = Arc::clone(&self.session.metrics);
        let new_events = self.new_events;
        let pending_since = self.session.informer.status().pending_since();
        let is_compared = self.session.informer.status().report.lacks_bookmarks
            && self.session.informer.is_comparable();
        let informer = Arc::clone(&self.session.informer);
        let probing = async move {
            let permit = shared.probes.acquire(&namespace).await;
            let timing = &shared.timing;
            let verb = if is_compared { Verb::List } else { Verb::Watch };
            metrics.count_freshness_request(verb);
            if is_compared {
                let compared = compare(&informer, &from, &list_watch, timing).await;
                let compared = compared.map_err(|fault| ProbeFault { verb, fault })?;
                let result = ProbeResult::Compared(compared);
                return Ok(WatchProbe { from, new_events, pending_since, result });
            }
            let watched = list_watch.probe(&from, timing.probe, timing.watch_headers).await;
            let result = watched.map_err(|fault| ProbeFault { verb, fault })?;
            drop(permit);
            if let WatchProbeResult::Event(version) = &result {
                // For versions without an order, `>=` is true only if both are equal.
                let arrived = informer.reader.wait_for_version(|current| current >= Some(version));
                let _late = timeout(timing.probe_grace, arrived).await;
            }
            let result = ProbeResult::Watched(result);
            Ok(WatchProbe { from, new_events, pending_since, result })
        };
        probing.boxed().fuse()
    }

    /// Evaluates a probe. Returns the reason if the informer's own watch must end.
    pub(crate) fn evaluate_probe(
        &mut self,
        probed: Result<WatchProbe, ProbeFault>,
    ) -> Option<WatchStreamEnd> {
        let WatchProbe { from, new_events, pending_since, result } = match probed {
            Ok(probed) => probed,
            Err(ProbeFault { fault, .. }) if fault.reason() == FaultReason::Gone => {
                return Some(WatchStreamEnd::Dead("the version is too old for a second watch"));
            }
            Err(ProbeFault { verb, fault }) => {
                self.record_proof_fault(verb, &fault);
                return None;
            }
        };
        let result = match result {
            ProbeResult::Watched(result) => result,
            ProbeResult::Compared(compared) => {
                return self.evaluate_comparison(compared, pending_since, new_events);
            }
        };
        self.session.informer.status().clear_refusal(Verb::Watch);
        match result {
            WatchProbeResult::Bookmark(version) => {
                if version.is_older_than(&from) {
                    return Some(WatchStreamEnd::VersionDecreased);
                }
                self.session.informer.status().report.lacks_bookmarks = false;
                self.advance_to(version, Delta::Progress);
                self.record_probe(pending_since);
                self.record_healthy();
            }
            WatchProbeResult::Event(version) if self.lacks(&version, new_events) => {
                return Some(WatchStreamEnd::Dead(
                    "a second watch received events that this one did not send",
                ));
            }
            WatchProbeResult::Event(_) | WatchProbeResult::Unclear => {
                self.record_probe(pending_since);
            }
            // The second watch was as silent as the first one, so it shows nothing about the first
            // one.
            WatchProbeResult::Silent => {
                let lacked =
                    mem::replace(&mut self.session.informer.status().report.lacks_bookmarks, true);
                // After the first silent probe, compare a small store with a list at once: without
                // `record_probe`, no pause follows.
                if lacked || !self.session.informer.is_comparable() {
                    self.record_probe(pending_since);
                }
            }
        }
        None
    }

    fn evaluate_comparison(
        &mut self,
        compared: StoreComparison,
        pending_since: Option<Instant>,
        new_events: u64,
    ) -> Option<WatchStreamEnd> {
        // An undecodable object is in the list, but never in the store. So a difference does not
        // show that the watch missed events.
        let is_whole = !self.session.informer.status().has_undecodable();
        match compared {
            StoreComparison::Older => return Some(WatchStreamEnd::VersionDecreased),
            StoreComparison::Different if is_whole && self.new_events == new_events => {
                let why = "a list has other objects, and this watch did not send them";
                return Some(WatchStreamEnd::Dead(why));
            }
            // Each change gives an object a new version. So equal objects show that the store has
            // reached the list's version, and kubewarm can answer reads that wait for this version.
            StoreComparison::Equal(version) => {
                self.advance_to(version, Delta::Equal);
                self.record_healthy();
            }
            StoreComparison::Different | StoreComparison::TooLarge => {}
        }
        self.record_probe(pending_since);
        None
    }

    /// Records that the store's objects have the state of `version`. The informer's own watch can
    /// have delivered a newer version during the probe, which then stays.
    fn advance_to(
        &mut self,
        version: ResourceVersion,
        delta: fn(ResourceVersion) -> Delta<'static>,
    ) {
        if !self.session.version().is_some_and(|known| version.is_older_than(&known)) {
            self.session.informer.apply(delta(version.clone()));
            self.session.informer.status().reach(&version);
            self.probed = Some(version);
        }
    }

    /// Records whether the probe has proven the store current as of the list at `pending_since`,
    /// which decides when the next probe follows. Newer lists, whose versions the store has
    /// possibly not reached, do not count.
    fn record_probe(&mut self, pending_since: Option<Instant>) {
        let Some(pending_since) = pending_since else { return };
        let current_at = self.session.informer.status().report.current_at;
        let is_proven = current_at >= Some(pending_since);
        self.proofs.record_probe(is_proven, Instant::now(), &self.session.shared.timing);
    }

    /// Whether the informer's own watch has not delivered `version`, which the probe's watch
    /// received in an event. `new_events` is the number of events that the informer's own watch had
    /// delivered when the probe began.
    fn lacks(&self, version: &ResourceVersion, new_events: u64) -> bool {
        self.session.version().is_some_and(|known| match known.partial_cmp(version) {
            Some(order) => order.is_lt(),
            // Resource versions that are not numbers have no order. So check whether the informer's
            // own watch has sent an event since.
            None => self.new_events == new_events,
        })
    }
}

/// Compares the store with a list of metadata until both are equal, at most for
/// `InformerTiming::probe_grace`: the watch can deliver the last changes after the list. If they
/// are equal, the store is current as of the list. The store had the version `from` before the
/// list.
async fn compare(
    informer: &SharedInformer,
    from: &ResourceVersion,
    list_watch: &ListWatchClient,
    timing: &InformerTiming,
) -> Result<StoreComparison, RequestFault> {
    let sent = Instant::now();
    let (newest, all) = list_names(list_watch, timing.list_for_proof).await?;
    if newest.is_older_than(from) {
        return Ok(StoreComparison::Older);
    }
    if all.is_none() {
        return Ok(StoreComparison::TooLarge);
    }
    let until = Instant::now() + timing.probe_grace;
    loop {
        let stored = informer.reader.version();
        if informer.confirm(sent, &newest, all.as_ref()).is_some() {
            return Ok(StoreComparison::Equal(newest));
        }
        let changed = informer.reader.wait_for_version(|version| version != stored.as_ref());
        if timeout_at(until, changed).await.is_err() {
            return Ok(StoreComparison::Different);
        }
        sleep(COMPARISON_PAUSE).await;
    }
}
