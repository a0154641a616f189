//! Applies the events of a watch to the store in order, and rejects invalid events.

use super::{
    watch::WatchRun,
    watch_stream::{WatchStream, WatchStreamEnd},
};
use crate::informer::{DecodeStage, shared_informer::SharedInformer};
use jiff::Timestamp;
use kubewarm_api::model::{Delta, DeltaOutcome, InformerKey, ObjectKey, ResourceVersion};
use kubewarm_client::fault;
use kubewarm_wire::upstream::{
    Bookmark, DecodeError, RejectedObject, SplitEvent, SplitItem, UpstreamEvent, UpstreamEventType,
};
use tokio::time::Instant;

impl WatchRun<'_> {
    /// Splits the next event from the received bytes and applies it. Returns the reason if the
    /// watch must end.
    pub(crate) fn apply_next_event(&mut self, stream: &mut WatchStream) -> Option<WatchStreamEnd> {
        let chunk = stream.rest.clone();
        let (consumed, split) = stream.splitter.feed(&chunk);
        stream.rest = chunk.slice(consumed.min(chunk.len())..);
        let SplitEvent { item, event } = split?;
        let (bytes, is_whole) = (item.bytes(), matches!(item, SplitItem::Whole(_)));
        match event {
            Some(event) => {
                let end = self.apply_event(event, is_whole, stream.last_bytes_at);
                // `stream.events` shows whether the watch has worked, so do not count an event that
                // ends the watch.
                stream.events += u64::from(end.is_none());
                end
            }
            // Some servers end a watch with a `Status` that is not wrapped in an event.
            None if is_whole && bytes.starts_with(br#"{"kind":"Status""#) => {
                Some(WatchStreamEnd::ErrorEvent(fault::of_status(bytes)))
            }
            None if is_whole => {
                Some(self.undecodable_end(DecodeStage::WatchLine, "a line that is not an event"))
            }
            None => {
                Some(self.undecodable_end(
                    DecodeStage::WatchLine,
                    &self.session.oversized(bytes).problem,
                ))
            }
        }
    }

    /// Counts an undecodable event that names no object, and ends the watch.
    fn undecodable_end(&self, stage: DecodeStage, problem: &str) -> WatchStreamEnd {
        self.session.metrics.count_decode_error(stage);
        WatchStreamEnd::Undecodable(problem.to_owned())
    }

    fn apply_event(
        &mut self,
        event: UpstreamEvent<'_>,
        is_whole: bool,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        match event.kind {
            UpstreamEventType::Error => {
                self.session.metrics.count_event(event.kind, None);
                Some(WatchStreamEnd::ErrorEvent(fault::of_event(&event)))
            }
            UpstreamEventType::Bookmark => self.apply_bookmark(event),
            UpstreamEventType::Added | UpstreamEventType::Modified if !is_whole => {
                let rejected = self.session.oversized(event.object);
                self.drop_undecodable(event, rejected, received)
            }
            UpstreamEventType::Added | UpstreamEventType::Modified => {
                self.apply_upsert(event, received)
            }
            UpstreamEventType::Deleted => self.apply_removal(event, received),
        }
    }

    fn apply_bookmark(&mut self, event: UpstreamEvent<'_>) -> Option<WatchStreamEnd> {
        self.session.metrics.count_event(event.kind, None);
        let Some(Bookmark { version, .. }) = event.bookmark() else {
            return Some(WatchStreamEnd::Undecodable("a bookmark without a version".to_owned()));
        };
        if let Some(known) = self.session.version().filter(|known| version.is_older_than(known)) {
            // The bookmark of a probe (a second, short watch) has already raised the store's
            // version. This older bookmark of the informer's own watch was only slower.
            let is_late = self.probed.as_ref() == Some(&known);
            return (!is_late).then_some(WatchStreamEnd::VersionDecreased);
        }
        self.session.informer.apply(Delta::Progress(version.clone()));
        self.proofs.record_bookmark(Instant::now());
        self.reset_backoff_if_settled();
        {
            let mut status = self.session.informer.status();
            status.report.bookmark_time = Some(Timestamp::now());
            status.report.lacks_bookmarks = false;
            status.report.fault = None;
            status.reach(&version);
        }
        self.end_silence();
        None
    }

    fn apply_upsert(
        &mut self,
        event: UpstreamEvent<'_>,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let item = match self.session.decoder.decode(event.object) {
            Ok(item) => item,
            Err(DecodeError::Undecodable(rejected)) => {
                return self.drop_undecodable(event, rejected, received);
            }
            Err(DecodeError::NeedsJson(object)) => {
                return Some(WatchStreamEnd::NeedsJson(object));
            }
        };
        let reported = find_reported(
            self.session.rejected,
            &self.session.informer,
            &item.namespace,
            &item.name,
        );
        let version = item.version.clone();
        match self.session.informer.apply(Delta::WatchEvent(item)) {
            DeltaOutcome::OutOfOrder => return Some(WatchStreamEnd::OutOfOrder),
            DeltaOutcome::Replayed => {
                self.session.metrics.count_event(event.kind, Some(received.elapsed()));
            }
            outcome @ (DeltaOutcome::Added
            | DeltaOutcome::Modified
            | DeltaOutcome::Replaced
            | DeltaOutcome::Removed
            | DeltaOutcome::Unchanged
            | DeltaOutcome::Outdated
            | DeltaOutcome::Noted
            | DeltaOutcome::Swept { .. }) => {
                self.end_undecodable(reported);
                self.record_event(event.kind, outcome, version, received);
            }
        }
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
        let reported = find_reported(
            self.session.rejected,
            &self.session.informer,
            &gone.namespace,
            &gone.name,
        );
        let version = gone.version.clone();
        let outcome = self.session.informer.apply(Delta::Remove(gone));
        // The deletion can be older than the state that kubewarm could not decode. The store has no
        // version of that state, so end the watch and relist.
        if reported.is_some() && outcome == DeltaOutcome::Replayed {
            return Some(WatchStreamEnd::OutOfOrder);
        }
        self.end_undecodable(reported);
        self.record_event(event.kind, outcome, version, received);
        None
    }

    /// Removes the undecodable object `reported` from the informer's report, because the store has
    /// applied a later state of the object. The event log drops its earlier changes: watches from
    /// there would miss the undecodable states.
    fn end_undecodable(&self, reported: Option<ObjectKey>) {
        if let Some(object) = reported {
            self.session.informer.apply(Delta::Unreadable);
            self.session.informer.status().remove_undecodable(&object);
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
        let reached = version.filter(|_| outcome != DeltaOutcome::Replayed);
        self.new_events += u64::from(reached.is_some());
        let had_fault = {
            let mut status = self.session.informer.status();
            status.record_event(reached.as_ref(), lag);
            status.report.fault.is_some()
        };
        if had_fault || self.has_reported_silence {
            self.record_healthy();
        }
        self.session.metrics.count_event(kind, Some(lag));
        let is_change = !matches!(outcome, DeltaOutcome::Outdated | DeltaOutcome::Replayed);
        if is_change && is_followed(&self.session.informer.key) {
            self.session.shared.changes.notify();
        }
    }

    /// Reports an undecodable object, and removes its previous version from the store. The report
    /// comes first, so that no client mistakes the removal for a deletion.
    ///
    /// An event that is not newer than the stored object changes nothing. In two cases, the watch
    /// ends and the informer relists: the object's name is unreadable, or the store lacks the
    /// object although the event is not newer than the store.
    fn drop_undecodable(
        &mut self,
        event: UpstreamEvent<'_>,
        rejected: RejectedObject,
        received: Instant,
    ) -> Option<WatchStreamEnd> {
        let Some(gone) = event.tombstone() else {
            return Some(self.undecodable_end(DecodeStage::WatchObject, &rejected.problem));
        };
        let version = gone.version.clone();
        if let Some(version) = &version
            && self.session.version().is_some_and(|reached| *version <= reached)
        {
            let current = self.session.informer.reader.object_version(&gone.namespace, &gone.name);
            if current.as_ref().is_none_or(|current| current >= version) {
                self.session.metrics.count_decode_error(DecodeStage::WatchObject);
                return current.is_none().then_some(WatchStreamEnd::OutOfOrder);
            }
        }
        self.session.reject(rejected, DecodeStage::WatchObject);
        let outcome = self.session.informer.apply(Delta::Remove(gone));
        self.record_event(event.kind, outcome, version, received);
        None
    }
}

/// Returns the object's key if the object can be among the undecodable objects in the report,
/// otherwise `None`. `rejected` is the number of these objects.
fn find_reported(
    rejected: u64,
    informer: &SharedInformer,
    namespace: &str,
    name: &str,
) -> Option<ObjectKey> {
    // Usually no object is undecodable, and events then need no lock.
    if rejected == 0 {
        return None;
    }
    informer.status().find_undecodable(namespace, name)
}

/// Whether the controller must be notified of every event of this informer. True only for the
/// informers of Namespaces and CacheProfiles, because the controller reads their stores. These
/// objects rarely change, so the notifications cost little.
fn is_followed(key: &InformerKey) -> bool {
    let resource = key.resource.group_resource();
    key.is_own() || (resource.group(), resource.resource()) == ("", "namespaces")
}
