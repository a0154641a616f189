//! Applies the events of a watch to the store in order, and rejects invalid events.

use super::{
    InformerTask,
    watch_stream::{WatchStream, WatchStreamEnd},
};
use crate::informer::{
    DecodeStage, UndecodableObject, UpstreamEventType,
    upstream::{
        decoder::DecodeError,
        event_splitter::SplitEvent,
        partial_item::SplitItem,
        upstream_event::{Bookmark, UpstreamEvent},
    },
};
use jiff::Timestamp;
use kubewarm_api::model::{Delta, DeltaOutcome, ObjectKey, ResourceVersion};
use kubewarm_client::fault;
use tokio::time::Instant;

impl InformerTask {
    /// Splits the next event from the received bytes and applies it. Returns the reason if the
    /// watch must end.
    pub(crate) fn apply_next_event(&mut self, stream: &mut WatchStream) -> Option<WatchStreamEnd> {
        let chunk = stream.rest.clone();
        let (consumed, split) = stream.splitter.feed(&chunk);
        stream.rest = chunk.slice(consumed.min(chunk.len())..);
        let SplitEvent { item, event } = split?;
        let (bytes, whole) = (item.bytes(), matches!(item, SplitItem::Whole(_)));
        match event {
            Some(event) => {
                let end = self.apply_event(event, whole, stream.last_bytes_at);
                // `stream.events` shows whether the watch has worked, so do not count an event that
                // ends the watch.
                stream.events += u64::from(end.is_none());
                end
            }
            // Some servers end a watch with a `Status` that is not wrapped in an event.
            None if whole && bytes.starts_with(br#"{"kind":"Status""#) => {
                Some(WatchStreamEnd::ErrorEvent(fault::of_event(bytes)))
            }
            None if whole => {
                Some(self.undecodable_end(DecodeStage::WatchLine, "a line that is not an event"))
            }
            None => {
                Some(self.undecodable_end(DecodeStage::WatchLine, &self.oversized(bytes).problem))
            }
        }
    }

    /// Counts an undecodable event that names no object, and ends the watch.
    fn undecodable_end(&self, stage: DecodeStage, problem: &str) -> WatchStreamEnd {
        self.metrics.count_decode_error(stage);
        WatchStreamEnd::Undecodable(problem.to_owned())
    }

    fn apply_event(
        &mut self,
        event: UpstreamEvent<'_>,
        whole: bool,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        match event.kind {
            UpstreamEventType::Error => {
                self.metrics.count_event(event.kind, None);
                Some(WatchStreamEnd::ErrorEvent(event.fault()))
            }
            UpstreamEventType::Bookmark => self.apply_bookmark(event),
            UpstreamEventType::Added | UpstreamEventType::Modified if !whole => {
                let rejected = self.oversized(event.object);
                self.drop_undecodable(event, rejected, received)
            }
            UpstreamEventType::Added | UpstreamEventType::Modified => {
                self.apply_upsert(event, received)
            }
            UpstreamEventType::Deleted => self.apply_removal(event, received),
        }
    }

    fn apply_bookmark(&mut self, event: UpstreamEvent<'_>) -> Option<WatchStreamEnd> {
        self.metrics.count_event(event.kind, None);
        let Some(Bookmark { version, .. }) = event.bookmark() else {
            return Some(WatchStreamEnd::Undecodable("a bookmark without a version".to_owned()));
        };
        if let Some(known) = self.version().filter(|known| version.is_older_than(known)) {
            // The bookmark of a probe was faster than this one of the informer's own watch.
            let is_late = self.probed.as_ref() == Some(&known);
            return (!is_late).then_some(WatchStreamEnd::VersionDecreased);
        }
        self.informer.apply(Delta::Progress(version.clone()));
        {
            let mut status = self.informer.status();
            status.report.bookmark_time = Some(Timestamp::now());
            status.report.lacks_bookmarks = false;
            status.advance(version);
        }
        self.proofs.record_bookmark(Instant::now());
        self.record_healthy();
        None
    }

    fn apply_upsert(
        &mut self,
        event: UpstreamEvent<'_>,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let item = match self.decoder.decode(event.object) {
            Ok(item) => item,
            Err(DecodeError::Undecodable(rejected)) => {
                return self.drop_undecodable(event, rejected, received);
            }
            Err(DecodeError::NeedsJson(object)) => {
                return Some(WatchStreamEnd::NeedsJson(object));
            }
        };
        let version = item.version.clone();
        if self.informer.status().is_replay(version.as_ref()) {
            // The store has reached the event's version but lacks the object. Either the event
            // arrived out of order, or the object was deleted after this version. kubewarm cannot
            // distinguish the two cases, so end the watch.
            if !self.informer.reader.contains(&item.namespace, &item.name) {
                return Some(WatchStreamEnd::OutOfOrder);
            }
            self.informer.apply(Delta::Upsert(item));
            self.metrics.count_event(event.kind, Some(received.elapsed()));
            return None;
        }
        let reported = self.informer.status().find_undecodable(&item.namespace, &item.name);
        let outcome = self.informer.apply(Delta::Upsert(item));
        self.end_undecodable(reported);
        self.record_event(event.kind, outcome, version, received);
        None
    }

    fn apply_removal(
        &mut self,
        event: UpstreamEvent<'_>,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let Some(gone) = event.tombstone() else {
            return Some(
                self.undecodable_end(DecodeStage::WatchObject, "the deletion names no object"),
            );
        };
        let version = gone.version.clone();
        let (reported, is_replay) = {
            let status = self.informer.status();
            let reported = status.find_undecodable(&gone.namespace, &gone.name);
            (reported, status.is_replay(version.as_ref()))
        };
        // The deletion can be older than the state that kubewarm could not decode. The store has no
        // version of that state, so end the watch and relist.
        if reported.is_some() && is_replay {
            return Some(WatchStreamEnd::OutOfOrder);
        }
        let outcome = self.informer.apply(Delta::Remove(gone));
        self.end_undecodable(reported);
        self.record_event(event.kind, outcome, version, received);
        None
    }

    /// Ends the report of the undecodable object `reported`, whose next state the store has applied. The event log
    /// lacks the object's undecodable states, so it restarts before the report ends.
    fn end_undecodable(&self, reported: Option<ObjectKey>) {
        if let Some(object) = reported {
            self.informer.apply(Delta::Unreadable);
            self.informer.status().remove_undecodable(&object);
        }
    }

    /// Records an applied event in the informer's status and metrics. Notifies the controller if
    /// the controller itself reads the informer's store, for example the store of Namespaces.
    fn record_event(
        &mut self,
        kind: UpstreamEventType,
        outcome: DeltaOutcome,
        version: Option<ResourceVersion>,
        received: Instant,
    ) {
        let lag = received.elapsed();
        let had_fault = {
            let mut status = self.informer.status();
            self.new_events += u64::from(status.record_event(version, lag));
            status.report.fault.is_some()
        };
        if had_fault || self.has_reported_silence {
            self.record_healthy();
        }
        self.metrics.count_event(kind, Some(lag));
        if self.is_followed && outcome != DeltaOutcome::Outdated {
            self.shared.changes.notify();
        }
    }

    /// Reports an undecodable object, and removes its previous version from the store. The report comes first, so
    /// that no client mistakes the removal for a deletion.
    ///
    /// An event that is not newer than the stored object changes nothing. If the event is older than the store, which
    /// lacks the object, or if the object's name is unreadable, the watch ends and the informer relists.
    fn drop_undecodable(
        &mut self,
        event: UpstreamEvent<'_>,
        rejected: UndecodableObject,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let Some(gone) = event.tombstone() else {
            return Some(self.undecodable_end(DecodeStage::WatchObject, &rejected.problem));
        };
        let version = gone.version.clone();
        if let Some(version) = &version
            && self.informer.status().is_replay(Some(version))
        {
            let held = self.informer.reader.object_version(&gone.namespace, &gone.name);
            if held.as_ref().is_none_or(|held| held >= version) {
                self.metrics.count_decode_error(DecodeStage::WatchObject);
                return held.is_none().then_some(WatchStreamEnd::OutOfOrder);
            }
        }
        self.reject(rejected, DecodeStage::WatchObject);
        let outcome = self.informer.apply(Delta::Remove(gone));
        self.record_event(event.kind, outcome, version, received);
        None
    }
}
