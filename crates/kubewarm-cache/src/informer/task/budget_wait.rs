//! Pauses an informer's list for two reasons:
//!
//! - Every profile that declares the informer exceeds its limit on memory or objects. The pause
//!   ends when one profile is within its limits again, or when the controller stops the informer.
//! - The thread that compresses stored objects again, with a better dictionary, is late.

use super::list::ListRun;
use crate::informer::shared_informer::SharedInformer;
use kubewarm_api::model::{FaultReason, RequestFault};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Number of bytes that an informer's list receives before kubewarm checks the limits on memory and
/// objects. Each profile that declares the informer can set such limits.
///
/// The number is small because several lists of one profile can run together. Together, these lists
/// must not exceed the profile's limit by much.
const COMPARED_BYTES: usize = 1 << 20;
/// An object below this size counts as this number of bytes towards [`COMPARED_BYTES`]. So kubewarm
/// checks the profiles' limits at least once per 64 objects.
const OBJECT_BYTES: usize = COMPARED_BYTES / 64;
/// Interval at which a paused list checks whether its informer's profiles are within their limits
/// on memory and objects. The controller needs about 100 ms to stop an informer whose profiles
/// exceed these limits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum pause of a list. A paused list still counts against the limit on concurrent lists. A
/// longer pause means that the controller is stuck.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Maximum pause for compression. One thread compresses the stores of all kinds, so compression can
/// be late for long. The list then goes on, and the process needs more memory than its stores
/// report.
const MAX_COMPRESSION_PAUSE: Duration = Duration::from_secs(5);
/// Timeout of the request for the total number of the informer's objects, long enough for a busy
/// API server. The list is paused during this request. From the total number, kubewarm computes
/// which limit on objects would be sufficient, and reports this limit to the user.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

impl ListRun<'_> {
    /// Pauses a list while every profile that declares the informer exceeds its limit on memory or
    /// objects, and while too many of the listed objects still wait for their compression. Returns
    /// `true` if the list paused, so that the caller restarts its own time limits, which must not
    /// count the pause.
    ///
    /// `bytes` is the size of the object that the list just added to the store. To stay cheap, the
    /// method compares usage with the limits only once per MiB of received objects.
    ///
    /// When the usage first exceeds a limit, the method requests the total number of objects, from
    /// which kubewarm reports the sufficient limit. Then the method notifies the controller, which
    /// stops an informer that does not fit.
    ///
    /// # Errors
    ///
    /// [`FaultReason::Throttled`] after a pause of one minute.
    pub(crate) async fn wait_for_budget(&mut self, bytes: usize) -> Result<bool, RequestFault> {
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes.max(OBJECT_BYTES));
        if self.unchecked_bytes < COMPARED_BYTES {
            return Ok(false);
        }
        self.unchecked_bytes = 0;
        if !self.session.has_reported_excess() && !self.session.meter().is_within_all() {
            self.fetch_object_count().await;
        }
        self.session.notify_excess();
        let mut has_waited = self.wait_for_compression().await;
        let until = Instant::now() + MAX_PAUSE;
        while !self.session.meter().can_grow() {
            if Instant::now() >= until {
                let message = "the limits on memory and objects have been exceeded for a minute";
                return Err(RequestFault::new(FaultReason::Throttled, message));
            }
            has_waited = true;
            sleep(POLL_INTERVAL).await;
        }
        Ok(has_waited)
    }

    /// Waits until the store's objects are compressed with the dictionary that kubewarm makes at
    /// present, for at most 5 s. Otherwise, a list that is faster than compression makes the
    /// process much larger than the accounted bytes. Returns whether it waited.
    async fn wait_for_compression(&self) -> bool {
        let until = Instant::now() + MAX_COMPRESSION_PAUSE;
        let mut has_waited = false;
        while self.session.informer.reader.awaits_dictionary() && Instant::now() < until {
            has_waited = true;
            sleep(POLL_INTERVAL).await;
        }
        has_waited
    }

    /// Requests the informer's total number of objects from the API server, unless the informer's
    /// status already contains this number. For lists with a selector, the API server does not
    /// report the number.
    async fn fetch_object_count(&self) {
        if self.session.informer.status().report.expected.is_some() {
            return;
        }
        let _counting = ObjectCountGuard::new(&self.session.informer);
        if let Ok(first) = self.session.list_watch.peek(COUNT_TIMEOUT).await {
            let expected = first.remaining_item_count.map(|behind| behind.saturating_add(1));
            self.session.informer.status().report.expected = expected;
        }
    }
}

/// Sets [`InformerReport::is_counting`](crate::informer::InformerReport::is_counting) to true until
/// the guard is dropped, also if the task ends before the response.
struct ObjectCountGuard<'a>(&'a SharedInformer);

impl<'a> ObjectCountGuard<'a> {
    fn new(informer: &'a SharedInformer) -> Self {
        informer.status().report.is_counting = true;
        Self(informer)
    }
}

impl Drop for ObjectCountGuard<'_> {
    fn drop(&mut self) {
        self.0.status().report.is_counting = false;
    }
}
