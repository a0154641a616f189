//! Applies the events of a watch to the store in order, and rejects invalid ones.

use super::{
    DecodeStage, UndecodableObject, UpstreamEventType,
    list::oversized,
    list_splitter::SplitItem,
    peek::tombstone,
    task::InformerTask,
    upstream_event::{Bookmark, UpstreamEvent},
    watch_stream::{WatchStream, WatchStreamEnd},
};
use jiff::Timestamp;
use kubewarm_api::model::{Delta, DeltaOutcome, ResourceVersion};
use kubewarm_client::fault;
use tokio::time::Instant;

impl InformerTask {
    /// Splits the next event off the received bytes and applies it. Returns the reason if the watch
    /// must end.
    pub(super) fn cut(&mut self, stream: &mut WatchStream) -> Option<WatchStreamEnd> {
        let chunk = stream.rest.clone();
        let (consumed, piece) = stream.lines.feed(&chunk);
        stream.rest = chunk.slice(consumed.min(chunk.len())..);
        let (line, whole) = match piece? {
            SplitItem::Whole(line) => (line, true),
            SplitItem::Oversized(head) => (head, false),
        };
        let event = if whole { UpstreamEvent::parse(line) } else { UpstreamEvent::of_head(line) };
        match event {
            Some(event) => {
                let end = self.take(event, whole, stream.heard);
                // An event that ends the watch is no sign that the watch works.
                stream.events += u64::from(end.is_none());
                end
            }
            // Some servers end a watch with a `Status` that is not wrapped in an event.
            None if whole && line.starts_with(br#"{"kind":"Status""#) => {
                Some(WatchStreamEnd::Told(fault::of_event(line)))
            }
            None if whole => Some(self.nonsense(DecodeStage::WatchLine, "a line that is no event")),
            None => Some(self.nonsense(DecodeStage::WatchLine, &oversized(line).problem)),
        }
    }

    /// Counts an undecodable event that names no object, and ends the watch.
    fn nonsense(&self, stage: DecodeStage, problem: &str) -> WatchStreamEnd {
        self.metrics.count_decode_error(stage);
        WatchStreamEnd::Nonsense(problem.to_owned())
    }

    fn take(
        &mut self,
        event: UpstreamEvent<'_>,
        whole: bool,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        match event.kind {
            UpstreamEventType::Error => {
                self.metrics.count_event(event.kind, None);
                Some(WatchStreamEnd::Told(fault::of_event(event.object)))
            }
            UpstreamEventType::Bookmark => self.take_bookmark(event),
            UpstreamEventType::Added | UpstreamEventType::Modified if !whole => {
                let rejected = oversized(event.object);
                self.give_up(event, rejected, received)
            }
            UpstreamEventType::Added | UpstreamEventType::Modified => {
                self.take_upsert(event, received)
            }
            UpstreamEventType::Deleted => self.take_removal(event, received),
        }
    }

    fn take_bookmark(&mut self, event: UpstreamEvent<'_>) -> Option<WatchStreamEnd> {
        self.metrics.count_event(event.kind, None);
        let Some(Bookmark { version, .. }) = Bookmark::parse(event.object) else {
            return Some(WatchStreamEnd::Nonsense("a bookmark without a version".to_owned()));
        };
        if self.version().is_some_and(|known| version.is_older_than(&known)) {
            return Some(WatchStreamEnd::WentBack);
        }
        self.informer.apply(Delta::Progress(version.clone()));
        {
            let mut status = self.informer.status();
            status.report.bookmark_time = Some(Timestamp::now());
            status.report.version = Some(version);
            status.current(Instant::now());
        }
        self.healthy();
        None
    }

    fn take_upsert(
        &mut self,
        event: UpstreamEvent<'_>,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let item = match self.decoder.decode(event.object) {
            Ok(item) => item,
            Err(rejected) => return self.give_up(event, rejected, received),
        };
        let version = item.version.clone();
        if self.informer.status().is_replay(version.as_ref()) {
            // The object is not in the store. The event is either new, or a replay for an object
            // that was deleted since.
            if !self.informer.reader.holds(&item.namespace, &item.name) {
                return Some(WatchStreamEnd::Disordered);
            }
            self.informer.apply(Delta::Upsert(item));
            self.metrics.count_event(event.kind, Some(received.elapsed()));
            return None;
        }
        self.informer.status().decodable(&item.namespace, &item.name);
        let outcome = self.informer.apply(Delta::Upsert(item));
        self.moved(event.kind, outcome, version, received);
        None
    }

    fn take_removal(
        &mut self,
        event: UpstreamEvent<'_>,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let Some(gone) = tombstone(event.object) else {
            return Some(self.nonsense(DecodeStage::WatchObject, "the deletion names no object"));
        };
        self.informer.status().decodable(&gone.namespace, &gone.name);
        let version = gone.version.clone();
        let outcome = self.informer.apply(Delta::Remove(gone));
        self.moved(event.kind, outcome, version, received);
        None
    }

    /// After each applied event: updates version, freshness and metrics. Notifies the controller if
    /// it reads this store itself.
    fn moved(
        &mut self,
        kind: UpstreamEventType,
        outcome: DeltaOutcome,
        version: Option<ResourceVersion>,
        received: Instant,
    ) {
        let lag = received.elapsed();
        let had_fault = {
            let mut status = self.informer.status();
            self.news += u64::from(status.event(version, lag));
            status.report.fault.is_some()
        };
        if had_fault || self.has_reported_silence {
            self.healthy();
        }
        self.metrics.count_event(kind, Some(lag));
        if self.is_followed && outcome != DeltaOutcome::Outdated {
            self.shared.changes.notify();
        }
    }

    /// Removes an undecodable object from the store and reports it, so that its old version is not
    /// served.
    ///
    /// If the event is a replay of an older version, the store does not change. If the object has
    /// no readable name, the watch ends and a relist follows.
    fn give_up(
        &mut self,
        event: UpstreamEvent<'_>,
        rejected: UndecodableObject,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let Some(gone) = tombstone(event.object) else {
            return Some(self.nonsense(DecodeStage::WatchObject, &rejected.problem));
        };
        let version = gone.version.clone();
        let was_held = self.informer.reader.holds(&gone.namespace, &gone.name);
        let outcome = self.informer.apply(Delta::Remove(gone));
        if was_held && outcome == DeltaOutcome::Outdated {
            self.metrics.count_decode_error(DecodeStage::WatchObject);
        } else {
            self.reject(rejected, DecodeStage::WatchObject);
        }
        self.moved(event.kind, outcome, version, received);
        None
    }
}
