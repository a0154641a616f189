//! Asks a second, short watch whether a quiet one has missed anything.
//!
//! A second watch from the version known, with `timeoutSeconds=4`, brings a bookmark in about 2 s on
//! a real server (1.36: 1.5 to 2.9 s; 2 and 3 brought none), behind whatever events there are. No
//! events before the bookmark: nothing was missed up to its version. Events: the quiet watch must
//! bring them too, or it is dead.

use super::{
    Timing,
    list_watch::{Heard, ListWatch},
};
use futures::{FutureExt as _, future::BoxFuture};
use kubewarm_api::model::{Fault, ResourceVersion};
use kubewarm_client::KeyedSemaphore;
use std::{future::pending, sync::Arc};
use tokio::time::Instant;

/// What the second watch brought.
#[derive(Debug)]
pub(super) struct Probed {
    /// When it was opened.
    pub(super) asked_at: Instant,
    /// From which version.
    pub(super) from: ResourceVersion,
    pub(super) heard: Heard,
}

/// The probe of one watch.
pub(super) struct Probe {
    state: State,
    not_before: Option<Instant>,
}

enum State {
    Idle,
    UnderWay(BoxFuture<'static, Result<Probed, Fault>>),
    /// Asked then, it saw an event of this version; the watch has until [`Probe::not_before`] to
    /// bring it.
    Expecting(Instant, ResourceVersion),
}

impl Probe {
    pub(super) fn idle() -> Self {
        Self { state: State::Idle, not_before: None }
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.state, State::UnderWay(_))
    }

    pub(super) fn is_waiting_for_events(&self) -> bool {
        matches!(self.state, State::Expecting(..))
    }

    /// When it was asked, and the version of the event that the watch must bring.
    pub(super) fn expected(&self) -> Option<(Instant, &ResourceVersion)> {
        match &self.state {
            State::Expecting(asked_at, version) => Some((*asked_at, version)),
            State::Idle | State::UnderWay(_) => None,
        }
    }

    /// No probe, and no conclusion from one, before this.
    pub(super) fn not_before(&self) -> Instant {
        self.not_before.unwrap_or_else(Instant::now)
    }

    /// Begins once `namespace` has a permit for it.
    pub(super) fn start(
        &mut self,
        list_watch: ListWatch,
        (probes, namespace): (KeyedSemaphore<Arc<str>>, Arc<str>),
        timing: &Timing,
        from: ResourceVersion,
    ) {
        let (lasting, within) = (timing.probe, timing.watch_headers);
        let asking = async move {
            let _permit = probes.acquire(&namespace).await;
            let asked_at = Instant::now();
            let heard = list_watch.tail(&from, lasting, within).await?.heard().await?;
            Ok(Probed { asked_at, from, heard })
        };
        self.state = State::UnderWay(asking.boxed());
    }

    /// The answer. Cancel safe; never ready while no probe is under way.
    pub(super) async fn answer(&mut self) -> Result<Probed, Fault> {
        match &mut self.state {
            State::UnderWay(answer) => answer.await,
            State::Idle | State::Expecting(..) => pending().await,
        }
    }

    /// Over; the next one not before `at`.
    pub(super) fn done(&mut self, at: Instant) {
        *self = Self { state: State::Idle, not_before: Some(at) };
    }

    /// The watch has until `until` to bring the event of `version`.
    pub(super) fn expect(&mut self, asked_at: Instant, version: ResourceVersion, until: Instant) {
        *self = Self { state: State::Expecting(asked_at, version), not_before: Some(until) };
    }

    /// It brought it.
    pub(super) fn met(&mut self) {
        self.done(Instant::now());
    }
}
