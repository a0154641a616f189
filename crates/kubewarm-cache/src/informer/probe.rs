//! Asks a second, short watch whether a quiet one has missed anything.
//!
//! A second watch from the version known, with `timeoutSeconds=4`, brings a bookmark in about 2 s on
//! a real server (1.36: 1.5 to 2.9 s; 2 and 3 brought none), behind whatever events there are. No
//! events before the bookmark: nothing was missed up to its version. Events: the quiet watch must
//! bring them too, or it is dead.

use super::{list_watch::Heard, stream::End, task::Task};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
};
use kubewarm_api::model::{Delta, Fault, Reason, ResourceVersion, Verb};
use std::sync::Arc;
use tokio::time::{Instant, sleep};

/// What the second watch brought.
#[derive(Debug)]
pub(super) struct Probed {
    /// When it was opened.
    asked_at: Instant,
    /// From which version.
    from: ResourceVersion,
    heard: Heard,
}

impl Task {
    /// Begins a probe as soon as the namespace has a permit for it. It ends when the watch should have brought what
    /// the probe saw.
    pub(super) fn probe(&self) -> Fuse<BoxFuture<'static, Result<Probed, Fault>>> {
        let Some(from) = self.version() else { return Fuse::terminated() };
        let namespace = self.namespace_of_profile();
        let (list_watch, shared) = (self.list_watch.clone(), Arc::clone(&self.shared));
        let probing = async move {
            let permit = shared.probes.acquire(&namespace).await;
            let timing = &shared.timing;
            let asked_at = Instant::now();
            let heard = list_watch.probe(&from, timing.probe, timing.watch_headers).await?;
            drop(permit);
            if matches!(heard, Heard::Event(_)) {
                sleep(timing.probe_grace).await;
            }
            Ok(Probed { asked_at, from, heard })
        };
        probing.boxed().fuse()
    }

    /// When the next probe may begin, unless this one shows that the watch is over.
    pub(super) fn judge(&mut self, probed: Result<Probed, Fault>) -> Result<Instant, End> {
        let pause = self.shared.timing.probe_pause;
        let Probed { asked_at, from, heard } = match probed {
            Ok(probed) => probed,
            Err(fault) if fault.reason() == Reason::Gone => {
                return Err(End::Dead("the version is too old for a second watch"));
            }
            Err(fault) => {
                self.metrics.count_request_error(Verb::Watch, fault.code());
                let delay = self.backoff.failed(fault.retry_after(), fastrand::f64()).max(pause);
                self.informer.status().fault(Verb::Watch, &fault, self.backoff.failures(), delay);
                self.shared.changes.notify();
                return Ok(Instant::now() + delay);
            }
        };
        self.informer.status().refused_no_more(Verb::Watch);
        match heard {
            Heard::Bookmark(version) => {
                if version.is_older_than(&from) {
                    return Err(End::WentBack);
                }
                // The watch itself may have brought more while it was asked.
                if !self.version().is_some_and(|known| version.is_older_than(&known)) {
                    self.informer.apply(Delta::Progress(version.clone()));
                    self.informer.status().report.version = Some(version);
                }
                self.informer.status().current(asked_at);
                self.healthy();
            }
            Heard::Event(version) if self.lacks(&version, asked_at) => {
                return Err(End::Dead("a second watch saw events that this one did not bring"));
            }
            Heard::Event(_) => {}
            Heard::Nothing(why) => return Err(End::Dead(why)),
        }
        Ok(Instant::now())
    }

    /// Whether the watch has not come to this version, of an event that was sent after `asked_at`.
    fn lacks(&self, version: &ResourceVersion, asked_at: Instant) -> bool {
        let status = self.informer.status();
        status.version().is_some_and(|known| match known.partial_cmp(version) {
            Some(order) => order.is_lt(),
            // Without an order of versions: whether anything came at all.
            None => status.report.current_at.is_none_or(|current| current < asked_at),
        })
    }
}
