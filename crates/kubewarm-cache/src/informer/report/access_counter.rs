//! Shows open watches of clients at low cost whether their access to an informer's store can have
//! changed.

use super::status::InformerStatus;
use kubewarm_api::model::AccessLossPolicy;
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Counts the changes of one informer after which [`InformerReport::serves`] or
/// [`InformerReport::losses`] can differ. A watch of a client reads the informer's report again
/// only if this count has changed. Cheap to clone.
///
/// [`InformerReport::serves`]: crate::informer::InformerReport::serves
/// [`InformerReport::losses`]: crate::informer::InformerReport::losses
#[derive(Clone, Debug, Default)]
pub struct AccessCounter(Arc<AtomicU64>);

/// The locked status of an informer. If its holder changes whether clients can read the store, the
/// guard increments the informer's [`AccessCounter`], so that no place that changes the status can
/// forget it.
pub(crate) struct StatusGuard<'a> {
    status: MutexGuard<'a, InformerStatus>,
    before: ServingState,
    counter: &'a AccessCounter,
}

/// The parts of an informer's status that decide whether clients can read the store: the result of
/// `serves` for each policy, and the value of `listed_in`. `listed_in` counts because a store that
/// was listed before a rejection stays blocked until a relist.
type ServingState = ([bool; 2], Option<u64>);

impl AccessCounter {
    /// Returns the number of changes until now. Read the count before the report, so that a change
    /// after the report raises the count and is noticed. Cost: one atomic read.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds a change. The caller still holds the lock of the changed state, so a watch that reads
    /// the new count also reads the new state.
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl<'a> StatusGuard<'a> {
    pub(crate) fn new(status: &'a Mutex<InformerStatus>, counter: &'a AccessCounter) -> Self {
        let status = status.lock();
        Self { before: serving_state(&status), status, counter }
    }
}

fn serving_state(status: &InformerStatus) -> ServingState {
    let policies = [AccessLossPolicy::Reject, AccessLossPolicy::ServeStale];
    (policies.map(|policy| status.report.serves(policy)), status.listed_in())
}

impl Deref for StatusGuard<'_> {
    type Target = InformerStatus;

    fn deref(&self) -> &InformerStatus {
        &self.status
    }
}

impl DerefMut for StatusGuard<'_> {
    fn deref_mut(&mut self) -> &mut InformerStatus {
        &mut self.status
    }
}

impl Drop for StatusGuard<'_> {
    fn drop(&mut self) {
        if serving_state(&self.status) != self.before {
            self.counter.increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::{FirstSyncMethod, Verb};
    use kubewarm_api::model::{FaultReason, RequestFault};
    use std::time::Duration;
    use tokio::time::Instant;

    type StatusChange<'a> = &'a dyn Fn(&mut InformerStatus);

    #[test]
    fn the_counter_counts_only_changes_of_what_clients_can_read() {
        let (status, counter) = (Mutex::new(InformerStatus::new()), AccessCounter::default());
        let fail = |status: &mut InformerStatus, reason| {
            status.record_fault(Verb::List, &RequestFault::new(reason, "no"), 1, Duration::ZERO);
        };
        let list = |status: &mut InformerStatus, refusals| {
            status.record_list(&7.into(), FirstSyncMethod::List, Instant::now(), refusals);
        };
        let steps: [(StatusChange<'_>, bool); 8] = [
            (&|status| fail(status, FaultReason::Unreachable), false),
            (&|status| list(status, 0), true),
            (&|status| status.record_event(Some(&8.into()), Duration::ZERO), false),
            (&|status| fail(status, FaultReason::Forbidden), true),
            (&|status| fail(status, FaultReason::NotServed), true),
            (&|status| status.report.fault = None, true),
            (&|status| list(status, 1), true),
            (&InformerStatus::reset, true),
        ];
        for (at, (step, is_counted)) in steps.iter().enumerate() {
            let before = counter.get();
            step(&mut StatusGuard::new(&status, &counter));
            assert_eq!(counter.get() > before, *is_counted, "step {at}");
        }
    }
}
