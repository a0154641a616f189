//! Pauses a list that exceeds the limits of its profiles, until the controller has decided.

use super::task::InformerTask;
use kubewarm_api::model::{FaultReason, RequestFault, UsageMeter};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Bytes of a list between two comparisons with the limits.
///
/// The value is small because several lists of a profile can run at once. Together they must not
/// exceed the limit by much.
const COMPARED_BYTES: usize = 1 << 20;
/// Minimum size that an object counts as, in bytes. So at most 64 objects arrive between two
/// comparisons.
const OBJECT_BYTES: usize = COMPARED_BYTES / 64;
/// Polling interval of a paused list. The controller decides within about 100 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum pause. A longer one means that the controller is stuck, and other lists need the slot.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Timeout of the request that counts the objects, long enough for a busy server. The list is
/// paused meanwhile. Without the count, kubewarm cannot report which limit would be enough.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

impl InformerTask {
    /// Pauses a list while it exceeds the limits of every profile that declares it. Returns whether
    /// it paused; the caller then restarts its own time limits.
    ///
    /// `bytes` is the size of the object that was just applied. The limits are compared only after
    /// 1 MiB. Before the controller is notified, the informer counts the objects on the API server.
    /// The controller then stops an informer that does not fit.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Throttled`] after a pause of one minute.
    pub(super) async fn wait_for_budget(&mut self, bytes: usize) -> Result<bool, RequestFault> {
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes.max(OBJECT_BYTES));
        if self.unchecked_bytes < COMPARED_BYTES {
            return Ok(false);
        }
        self.unchecked_bytes = 0;
        if !self.has_reported_excess && !self.gauge().is_within_all() {
            self.fetch_object_count().await;
        }
        self.notify_excess();
        let until = Instant::now() + MAX_PAUSE;
        let mut has_waited = false;
        while !self.gauge().can_grow() {
            if Instant::now() >= until {
                let message = "the limits on memory and objects have been exceeded for a minute";
                return Err(RequestFault::new(FaultReason::Throttled, message));
            }
            has_waited = true;
            sleep(POLL_INTERVAL).await;
        }
        Ok(has_waited)
    }

    /// Reads the number of objects from the API server, unless it is known. The API server does not
    /// report the number for lists with a selector.
    async fn fetch_object_count(&self) {
        if self.informer.status().report.expected.is_some() {
            return;
        }
        if let Ok(first) = self.list_watch.peek(COUNT_TIMEOUT).await {
            let expected = first.remaining_item_count.map(|behind| behind.saturating_add(1));
            self.informer.status().report.expected = expected;
        }
    }

    fn gauge(&self) -> Arc<UsageMeter> {
        self.informer.tuning(|tuning| Arc::clone(&tuning.gauge))
    }

    /// Notifies the controller once each time that the informer begins to exceed a limit.
    pub(super) fn notify_excess(&mut self) {
        let exceeded = !self.gauge().is_within_all();
        if exceeded && !self.has_reported_excess {
            self.shared.changes.notify();
        }
        self.has_reported_excess = exceeded;
    }
}
