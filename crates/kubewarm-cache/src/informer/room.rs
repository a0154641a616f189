//! Holds a list back that has used up what its profiles leave it, until that has been decided upon.

use super::task::Task;
use kubewarm_api::model::{Fault, Gauge, Reason};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Bytes of a list between two comparisons with the limits: few, since several lists of a profile may be under way, and
/// all of them together must not come far beyond the limit.
const COMPARED_BYTES: usize = 1 << 20;
/// The least that an object counts as, in bytes. At most 64 objects arrive between two comparisons.
const OBJECT_BYTES: usize = COMPARED_BYTES / 64;
/// Between two looks while held back; a decision takes some 100 ms.
const PAUSE: Duration = Duration::from_millis(20);
/// Nobody decides for so long only if something is wrong; the list's slot is needed by others.
const PATIENCE: Duration = Duration::from_mins(1);
/// For the server to say how many objects there are, also a busy one: without that number nobody can say what
/// would be enough. The list waits, and does not fit anyway.
const COUNT_WITHIN: Duration = Duration::from_secs(10);

impl Task {
    /// Pauses a list while it exceeds a limit. `bytes` is the size of the object before. Returns whether the list paused:
    /// then its time limits begin again. Not every call compares the limits.
    ///
    /// The controller stops an informer that does not fit. Before the controller is notified, the informer counts
    /// the objects on the API server.
    ///
    /// # Errors
    ///
    /// [`Reason::Throttled`] after a minute.
    pub(super) async fn wait_for_room(&mut self, bytes: usize) -> Result<bool, Fault> {
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes.max(OBJECT_BYTES));
        if self.unchecked_bytes < COMPARED_BYTES {
            return Ok(false);
        }
        self.unchecked_bytes = 0;
        if !self.has_told_excess && !self.gauge().is_within_all() {
            self.learn_length().await;
        }
        self.tell_of_excess();
        let until = Instant::now() + PATIENCE;
        let mut has_waited = false;
        while !self.gauge().may_grow() {
            if Instant::now() >= until {
                let message = "the limits on memory and objects have left no room for a minute";
                return Err(Fault::new(Reason::Throttled, message));
            }
            has_waited = true;
            sleep(PAUSE).await;
        }
        Ok(has_waited)
    }

    /// Asks how many objects the list will have, unless that is known. A server does not say it of
    /// what a selector selects.
    async fn learn_length(&self) {
        if self.informer.status().report.expected.is_some() {
            return;
        }
        if let Ok(first) = self.list_watch.peek(COUNT_WITHIN).await {
            let expected = first.remaining_item_count.map(|behind| behind.saturating_add(1));
            self.informer.status().report.expected = expected;
        }
    }

    fn gauge(&self) -> Arc<Gauge> {
        self.informer.tuning(|tuning| Arc::clone(&tuning.gauge))
    }

    /// Has the controller look, once for each time that a limit begins to be exceeded.
    pub(super) fn tell_of_excess(&mut self) {
        let exceeded = !self.gauge().is_within_all();
        if exceeded && !self.has_told_excess {
            self.shared.changes.notify();
        }
        self.has_told_excess = exceeded;
    }
}
