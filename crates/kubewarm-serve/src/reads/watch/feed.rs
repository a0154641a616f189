//! A client's open watch, which produces chunks of events until it ends.

use super::{
    super::{
        ReadService, ReadSource, ServingIndex, access_loss_check::AccessLossCheck,
        cold_cause::ColdCause, covering_informers::CoveringInformers,
    },
    cursor::{WatchChunk, WatchCursor, WatchStep, error},
    deadlines::WatchDeadlines,
};
use crate::metrics::ClientWatchEnd;
use futures::future::{BoxFuture, FutureExt as _};
use kubewarm_api::model::{AccessLossPolicy, IndexDefinition, ProfileRef, ResourceVersion};
use kubewarm_cache::{informer::AccessCounter, store::FollowerLag};
use kubewarm_wire::{MediaType, ObjectRequest, StatusError};
use parking_lot::Mutex;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use std::{pin::pin, sync::Arc};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// A client's open watch. The watch keeps only its unsent initial objects in memory. All watches of
/// an informer read later changes from the same event log.
pub struct WatchFeed {
    /// The watch while it is open; `None` after it has ended. After the end, the client can still
    /// receive the chunk in `last`.
    open: Option<Box<ActiveWatch>>,
    last: Option<WatchChunk>,
    ended: Option<ClientWatchEnd>,
    media_type: MediaType,
}

/// How far a watch has read its informer's event log, for the list of open watches at
/// `/debug/watchers`.
#[derive(Clone, Debug, Default)]
pub struct WatchProgress {
    /// The resource version of the last event or bookmark; `None` before the first event.
    pub(super) position: Arc<Mutex<Option<ResourceVersion>>>,
    /// The number of changes in the event log that the watch has not examined; `None` for a watch
    /// that failed to start.
    pub(super) lag: Option<FollowerLag>,
}

pub(super) struct ActiveWatch {
    pub(super) reads: Arc<ReadService>,
    pub(super) request: ObjectRequest,
    pub(super) profile: Option<ProfileRef>,
    pub(super) source: ReadSource,
    pub(super) access_requirement: AccessLossCheck,
    /// Counts the changes of the informer's access; `None` if the informer does not exist.
    pub(super) access_counter: Option<AccessCounter>,
    /// The count at which the watch last checked `access_requirement`. The watch skips the check
    /// while the count stays the same. `None` before the first check, and after a change of the
    /// policy.
    pub(super) checked_at: Option<u64>,
    /// Ends when the profiles' informers have changed. `None` if the watch must check whether a
    /// profile still serves reads from its informer.
    pub(super) index_change: Option<BoxFuture<'static, ()>>,
    /// The profiles' informers at the watch's last check of the profiles; `None` before the first
    /// check. Each reconciliation that changes a decision makes a new index, so the watch skips the
    /// check while the index is the same.
    pub(super) checked_index: Option<Arc<ServingIndex>>,
    /// The field indexes of profiles that the watch's field selector names.
    pub(super) indexes: Vec<IndexDefinition>,
    pub(super) cursor: WatchCursor,
    pub(super) timing: WatchDeadlines,
}

impl WatchFeed {
    pub(super) fn new(open: ActiveWatch) -> Self {
        let media_type = open.cursor.media_type;
        Self { open: Some(Box::new(open)), last: None, ended: None, media_type }
    }

    pub(super) fn failed(failure: &StatusError, media_type: MediaType) -> Self {
        let end = if failure.code() == 504 {
            ClientWatchEnd::FutureVersion
        } else {
            ClientWatchEnd::Expired
        };
        let last = Some(error(failure, media_type));
        Self { open: None, last, ended: Some(end), media_type }
    }

    /// The encoding of the events.
    pub fn media_type(&self) -> MediaType {
        self.media_type
    }

    /// The informer that serves the watch, with its freshness at the start of the watch. `None` if
    /// the watch failed to start or has ended.
    pub fn source(&self) -> Option<&ReadSource> {
        self.open.as_ref().map(|open| &open.source)
    }

    /// Whether the watch has not sent all initial objects yet. A watch keeps its unsent initial
    /// objects in memory.
    pub fn is_beginning(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.cursor.is_beginning())
    }

    /// Releases the memory for the watch's next large object. Call this function while the watch
    /// may send nothing, so that other watches can use the memory.
    pub fn release_memory(&mut self) {
        if let Some(open) = &mut self.open {
            open.cursor.release();
        }
    }

    /// How far the watch has read its informer's event log. Empty if the watch failed to start or
    /// has ended.
    pub fn progress(&self) -> WatchProgress {
        self.open.as_ref().map(|open| open.cursor.progress()).unwrap_or_default()
    }

    /// The time at which the watch ends because of its timeout; now if it has ended.
    pub fn timeout(&self) -> Instant {
        self.open.as_ref().map_or_else(Instant::now, |open| open.timing.end)
    }

    /// Why the watch has ended, or will end after the next chunk. `None` while the watch is open.
    pub fn ended(&self) -> Option<ClientWatchEnd> {
        self.ended
    }

    /// Returns the next chunk of events; `None` after the watch has ended. Cancel safe: if the
    /// caller drops the call, no event is lost.
    pub async fn next(&mut self) -> Option<WatchChunk> {
        // All wake-ups of this call share one timer, because most of them do not change the
        // deadline. The first `reset` below sets the deadline.
        let mut deadline = pin!(sleep_until(Instant::now()));
        loop {
            let Some(open) = &mut self.open else { return self.last.take() };
            open.cursor.yield_if_over().await;
            // The watch subscribes to the store's changes before it reads the event log, so that a
            // change during the read still wakes the watch.
            let changed = open.cursor.change_notifier();
            let mut changed = pin!(changed.notified());
            changed.as_mut().enable();
            let step = open.step(Instant::now());
            let until = match step {
                // A bookmark that is due waits for the large object, too.
                WatchStep::NeedsMemory(_) => open.timing.end,
                WatchStep::Piece(_) | WatchStep::Quiet(_) | WatchStep::End(..) => {
                    open.timing.next_deadline()
                }
            };
            if deadline.deadline() != until {
                deadline.as_mut().reset(until);
            }
            let ActiveWatch { cursor, index_change, .. } = &mut **open;
            match step {
                WatchStep::NeedsMemory(length) => select! {
                    () = cursor.acquire(length) => {}
                    () = finish(index_change) => {}
                    () = deadline.as_mut() => {}
                },
                WatchStep::Piece(piece) if piece.events > 0 => return Some(piece),
                // No examined change concerns the watch. If the scan budget is used up, the loop
                // yields before it examines more changes.
                WatchStep::Piece(_) => {}
                WatchStep::Quiet(_) => select! {
                    () = changed => {}
                    () = finish(index_change) => {}
                    () = deadline.as_mut() => {}
                },
                WatchStep::End(end, last) => {
                    (self.open, self.last, self.ended) = (None, last, Some(end));
                }
            }
        }
    }
}

impl Serialize for WatchProgress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let position = self.position.lock().as_ref().map(ToString::to_string);
        let mut state = to.serialize_struct("Progress", 2)?;
        state.serialize_field("position", &position)?;
        state.serialize_field("behind", &self.lag.as_ref().map_or(0, FollowerLag::changes))?;
        state.end()
    }
}

/// Waits for the end of `change`, and then replaces it by `None`. Cancel safe.
async fn finish(change: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(unfinished) = change {
        unfinished.await;
    }
    *change = None;
}

impl ActiveWatch {
    fn step(&mut self, now: Instant) -> WatchStep {
        // A watch with many events does not wait for the change, so it looks at each step.
        let change = self.index_change.as_mut();
        if change.is_none_or(|change| change.now_or_never().is_some()) {
            // The wait begins before the check, so that no change between them is lost.
            self.index_change = Some((self.reads.dependencies.serving_index_change)());
            if !self.is_declared() {
                return self.cursor.expire(ClientWatchEnd::InformerGone);
            }
        }
        if let Some(end) = self.check_access() {
            return end;
        }
        if now >= self.timing.end {
            return WatchStep::End(ClientWatchEnd::Timeout, None);
        }
        let step = self.cursor.next(&self.reads.change_cache);
        let WatchStep::Quiet(version) = step else { return step };
        if self.timing.bookmark.is_none_or(|at| now < at) {
            return WatchStep::Quiet(version);
        }
        // The watch has sent all changes, and the time of its next bookmark has come.
        self.timing.bookmark = self.timing.bookmark_after(now);
        let bookmark = version.and_then(|version| self.cursor.bookmark_at(version));
        bookmark.map_or(WatchStep::Quiet(None), WatchStep::Piece)
    }

    /// Ends the watch if it can no longer read the informer's store. Reads only one number if the
    /// informer's access has not changed since the last call.
    fn check_access(&mut self) -> Option<WatchStep> {
        // If the informer loses access, the watch must not send the remaining initial objects, even
        // if the informer regains access. Later events need no such check: if the API server has
        // rejected the informer, kubewarm empties the store, and this ends the watch.
        if !self.cursor.is_beginning() {
            self.access_requirement.losses = None;
        }
        let count = self.access_counter.as_ref().map(AccessCounter::get);
        if count.is_some() && count == self.checked_at {
            return None;
        }
        self.checked_at = count;
        let report = self.reads.dependencies.reports.get_summary(&self.source.informer);
        if self.access_requirement.permit(report.as_ref()) {
            return None;
        }
        let gone = ClientWatchEnd::InformerGone;
        let denied = report.filter(|report| report.lost_at.is_some() || report.is_forbidden());
        let Some(denied) = denied else { return Some(self.cursor.expire(gone)) };
        let failure = ColdCause::of(&denied).watch_error(self.request.resource.group_resource());
        Some(WatchStep::End(gone, Some(error(&failure, self.cursor.media_type))))
    }

    /// Whether a profile still serves reads from the informer. Reads the profiles only if they have
    /// changed since the last call, and then also their policy.
    fn is_declared(&mut self) -> bool {
        let Ok(index) = self.reads.serving_index() else { return false };
        if self.checked_index.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, &index)) {
            return true;
        }
        let Some(policy) = self.policy(&index) else { return false };
        (self.access_requirement.policy, self.checked_at) = (policy, None);
        self.checked_index = Some(index);
        true
    }

    /// The strictest `onAccessLost` policy of the profiles that still serve reads from the
    /// informer; `None` if no profile serves reads from the informer any more.
    fn policy(&self, serving_index: &ServingIndex) -> Option<AccessLossPolicy> {
        let operator_namespace = &self.reads.dependencies.operator_namespace;
        let covering = CoveringInformers::find(
            serving_index,
            &self.request,
            self.profile.as_ref(),
            operator_namespace,
        )
        .ok()?;
        covering.policy(&self.source.informer, &self.indexes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_that_cannot_start_sends_one_error_event_and_ends() {
        for (failure, end) in [
            (StatusError::watch_lost(), ClientWatchEnd::Expired),
            (StatusError::too_large_version(&9.into(), &7.into()), ClientWatchEnd::FutureVersion),
        ] {
            let code = format!("\"code\":{}}}", failure.code());
            let mut feed = WatchFeed::failed(&failure, MediaType::Json);
            let piece = feed.next().await.expect("an error event");
            let line = String::from_utf8_lossy(&piece.lines);
            assert!(line.contains(&code), "{line}");
            assert_eq!(feed.ended(), Some(end));
            assert!(feed.next().await.is_none());
        }
    }
}
