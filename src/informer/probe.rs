//! Asks a second, short watch whether a quiet one has missed anything.
//!
//! A second watch from the version known, with `timeoutSeconds=4`, brings a bookmark in about 2 s on
//! a real server (1.36: 1.5 to 2.9 s; 2 and 3 brought none), behind whatever events there are. No
//! events before the bookmark: nothing was missed up to its version. Events: the quiet watch must
//! bring them too, or it is dead.

use super::{
    Slots, Timing,
    endpoint::Endpoint,
    event::{Bookmark, Event},
    lines::LineSplitter,
    peek::tombstone,
    split::{MAX_OBJECT, Piece},
    task::Shared,
    upstream,
};
use crate::{
    cluster::fault,
    informer::EventKind,
    model::{Fault, MemberOf, ResourceVersion},
};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use std::{future::pending, sync::Arc};
use tokio::time::{Instant, timeout_at};

/// What the second watch brought.
#[derive(Debug)]
pub(super) enum Heard {
    /// A bookmark and nothing before it.
    Nothing { asked_at: Instant, from: ResourceVersion, version: ResourceVersion },
    /// An event of this version.
    Events { asked_at: Instant, version: ResourceVersion },
    /// Something that is no bookmark and cannot be read.
    Unclear,
    /// Not even a bookmark.
    Silence,
}

/// The probe of one watch.
pub(super) struct Probe {
    state: State,
    not_before: Option<Instant>,
}

enum State {
    Idle,
    UnderWay(BoxFuture<'static, Result<Heard, Fault>>),
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

    pub(super) fn start(
        &mut self,
        shared: &Arc<Shared>,
        client: Arc<kube::Client>,
        endpoint: &Endpoint,
        member: MemberOf,
        from: ResourceVersion,
    ) {
        let slots = shared.probes.clone();
        let (endpoint, timing) = (endpoint.clone(), shared.timing.clone());
        self.state = State::UnderWay(ask(client, slots, member, endpoint, timing, from).boxed());
    }

    /// The answer. Cancel safe; never ready while no probe is under way.
    pub(super) async fn heard(&mut self) -> Result<Heard, Fault> {
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

async fn ask(
    client: Arc<kube::Client>,
    slots: Slots,
    member: MemberOf,
    endpoint: Endpoint,
    timing: Timing,
    from: ResourceVersion,
) -> Result<Heard, Fault> {
    let _slot = slots.acquire(&member).await;
    let asked_at = Instant::now();
    let request = endpoint.watch(&from, timing.probe);
    let mut chunks = upstream::open(&client, request, timing.watch_headers).await?;
    let mut lines = LineSplitter::new(MAX_OBJECT);
    let until = Instant::now() + timing.probe * 2;
    while let Ok(Some(chunk)) = timeout_at(until, chunks.next()).await {
        let chunk = chunk?;
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let (consumed, piece) = lines.feed(rest);
            if let Some(piece) = piece {
                return heard_in(&piece, asked_at, &from);
            }
            rest = rest.get(consumed..).unwrap_or_default();
        }
    }
    Ok(Heard::Silence)
}

/// What one line says.
fn heard_in(piece: &Piece<'_>, asked_at: Instant, from: &ResourceVersion) -> Result<Heard, Fault> {
    let event = match piece {
        Piece::Whole(line) => Event::parse(line).ok(),
        Piece::Oversized(head) => Event::of_head(head),
    };
    let Some(event) = event else { return Ok(Heard::Unclear) };
    let heard = match event.kind {
        EventKind::Error => return Err(fault::of_event(event.object)),
        EventKind::Bookmark => Bookmark::parse(event.object)
            .and_then(|bookmark| ResourceVersion::parse(&bookmark.version))
            .map(|version| Heard::Nothing { asked_at, from: from.clone(), version }),
        EventKind::Added | EventKind::Modified | EventKind::Deleted => tombstone(event.object)
            .ok()
            .and_then(|object| object.version)
            .map(|version| Heard::Events { asked_at, version }),
    };
    // Something happened that cannot be told from a change.
    Ok(heard.unwrap_or(Heard::Unclear))
}
