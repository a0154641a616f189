//! Pauses a list whose profiles all exceed their limits, until the controller stops the informer or
//! the usage falls.

use super::task::InformerTask;
use kubewarm_api::model::{FaultReason, RequestFault, UsageMeter};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Number of bytes that a list receives between two comparisons with the limits of its profiles.
///
/// The number is small because several lists of one profile can run at once, and together they must
/// not exceed its limit by much.
const COMPARED_BYTES: usize = 1 << 20;
/// An object with fewer bytes counts as this number of bytes. So a list receives at most 64 objects
/// between two comparisons.
const OBJECT_BYTES: usize = COMPARED_BYTES / 64;
/// Interval at which a paused list checks whether it can continue. The controller decides within
/// about 100 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum pause of a list. A longer pause means that the controller is stuck, and other lists need
/// the list slot.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Timeout of the request for the number of objects, long enough for a busy server. The list is
/// paused meanwhile. Without the number, kubewarm cannot report which limit would be enough.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

impl InformerTask {
    /// Pauses a list while every profile that declares the informer exceeds its limits. Returns
    /// whether the list paused; the caller then restarts its own time limits.
    ///
    /// `bytes` is the size of the object that was just applied. The method compares with the limits
    /// once per MiB. When a limit is first exceeded, it requests the number of objects and then
    /// notifies the controller. The controller stops an informer that does not fit into the limits.
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

    /// Requests the number of objects from the API server, unless the status already has it. The
    /// API server does not report the number for lists with a selector.
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
        self.informer.settings(|settings| Arc::clone(&settings.gauge))
    }

    /// Notifies the controller each time that the usage of one of the informer's profiles begins to
    /// exceed a limit.
    pub(super) fn notify_excess(&mut self) {
        let exceeded = !self.gauge().is_within_all();
        if exceeded && !self.has_reported_excess {
            self.shared.changes.notify();
        }
        self.has_reported_excess = exceeded;
    }
}
