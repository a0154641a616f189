//! A queue of background work on stores: filling indexes, and training dictionaries. Each
//! `StoreCatalog` runs this work in one maintenance thread, so that the work does not delay the
//! processing of watch events.

use super::{
    object_store::ObjectStore,
    packed_object::{BodyCompression, DetachedObject, indexed_values},
};
use kubewarm_wire::{ObjectBody, json::FieldPathSet};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

/// Maximum number of objects that a maintenance job processes in one step. During a step, the job
/// holds a store's write lock for less than a millisecond.
const STEP: usize = 128;

type MaintenanceJob = Box<dyn FnOnce() + Send>;

/// The job queue of the maintenance thread. The thread ends when the last clone of the queue is
/// dropped.
///
/// The queue needs no limit. It contains at most one training of a dictionary for each
/// `DictionaryGroup`, and one job for each change of the field indexes that profiles declare. A
/// queued job does not keep its store in memory.
#[derive(Clone, Debug)]
pub(super) struct MaintenanceQueue(mpsc::Sender<MaintenanceJob>);

impl Default for MaintenanceQueue {
    fn default() -> Self {
        let (sender, jobs) = mpsc::channel::<MaintenanceJob>();
        let work = || jobs.into_iter().for_each(run);
        if let Err(fault) = thread::Builder::new().name("store-upkeep".to_owned()).spawn(work) {
            tracing::warn!(%fault, "the maintenance thread cannot be started; its jobs run at once");
        }
        Self(sender)
    }
}

impl MaintenanceQueue {
    /// Queues `job` for the maintenance thread. A job must not queue another job, because
    /// [`MaintenanceQueue::settle`] does not wait for the second job.
    pub(super) fn push(&self, job: impl FnOnce() + Send + 'static) {
        // Sending fails only if the maintenance thread did not start. The calling thread then runs
        // the job.
        if let Err(mpsc::SendError(job)) = self.0.send(Box::new(job)) {
            run(job);
        }
    }

    /// Blocks until the maintenance thread has done all jobs that were queued before this call.
    pub(super) fn settle(&self) {
        let (done, settled) = mpsc::channel::<()>();
        self.push(move || drop(done));
        let _disconnected = settled.recv();
    }
}

/// Runs a job. If the job panics, the function logs an error, and the thread goes on with the next
/// job.
fn run(job: MaintenanceJob) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a maintenance job panicked and is not repeated");
    }
}

/// Compresses a store's objects again with the newest dictionary, [`STEP`] rows at a time. Skips
/// uncompressed objects, such as small objects and Secrets.
pub(super) fn repack(store: &ObjectStore) {
    let Some(with) = store.dictionary_group.current() else { return };
    let mut next = Some(0);
    while let Some(from) = next {
        let copies = store.copy_rows(from, STEP);
        next = copies.last().and_then(|(number, _)| number.checked_add(1));
        let newest = BodyCompression::Dictionary(with.generation());
        let old = copies.into_iter().filter(|(_, old)| old.record.packing() != newest).filter(
            |(_, old)| {
                !matches!(old.record.packing(), BodyCompression::None | BodyCompression::Secret)
            },
        );
        store.dictionary_group.contexts.with(|context, body| {
            let mut repacked = Vec::new();
            for (number, packed) in old {
                let DetachedObject { record, dictionary, encoding } = packed;
                if let Ok(name) = std::str::from_utf8(record.name())
                    && context.decompress(&record, dictionary.as_deref(), body).is_ok()
                {
                    let body = ObjectBody { encoding, bytes: body };
                    let again = context.pack(name, body, Some(&with), record.template().cloned());
                    repacked.push((number, record, again));
                }
            }
            let mut contents = store.contents.write();
            let mut gone = Vec::with_capacity(repacked.len());
            for (number, record, again) in repacked {
                // A row that the writer has changed since `copy_rows` already uses the newest
                // dictionary, so the job skips the row.
                if contents.slab.get(number).is_some_and(|row| row.record == record) {
                    gone.push(contents.repack(number, again));
                }
            }
            store.measure(&contents);
            drop(contents);
            drop(gone);
        });
    }
}

/// Adds the field values of every stored object to the field indexes that profiles declare. Values
/// that the writer has already added stay the same.
///
/// If the set of field indexes changes, the function returns early, because each such change queues
/// another job, which fills all indexes.
pub(super) fn complete_indexes(store: &ObjectStore) {
    let contents = store.contents.read();
    if contents.declared.iter().all(|index| index.is_complete) {
        return;
    }
    let declared = Arc::clone(&contents.paths);
    drop(contents);
    let mut next = Some(0);
    while let Some(from) = next {
        next = index_step(store, &declared, from);
    }
}

/// Adds the objects in up to [`STEP`] rows, from row number `from`, to the field indexes of the
/// paths `declared`. Returns the row number at which the next step starts, or `None` after the last
/// row.
///
/// Also returns `None` if the store's set of field indexes is no longer `declared`. An index of the
/// same path can then be new and empty.
fn index_step(store: &ObjectStore, declared: &Arc<FieldPathSet>, from: u32) -> Option<u32> {
    let copies = store.copy_rows(from, STEP);
    let next = copies.last().and_then(|(number, _)| number.checked_add(1));
    store.dictionary_group.contexts.with(|context, body| {
        let mut values_of = |packed: &DetachedObject| {
            let body = store.unpack_detached(packed, context, body);
            body.map_or_else(Vec::new, |body| indexed_values(body, declared))
        };
        let results: Vec<_> = copies
            .into_iter()
            .map(|(number, packed)| (number, values_of(&packed), packed.record))
            .collect();
        let mut contents = store.contents.write();
        if !Arc::ptr_eq(&contents.paths, declared) {
            return None;
        }
        for (number, mut values, record) in results {
            let Some(now) = contents.packed(number) else { continue };
            if now.record != record {
                // The object in this row has changed since `copy_rows`. This case is rare, so read
                // the object's JSON again under the store's lock.
                values = values_of(&now);
            }
            contents.index(number, &values);
        }
        if next.is_none() {
            contents.declared.iter_mut().for_each(|index| index.is_complete = true);
        }
        store.measure(&contents);
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        compression_contexts::CompressionContextPool,
        dictionary_group::{DecodeErrorCounter, DictionaryCost, DictionaryGroup},
        fixtures::{body, informer_key, upsert},
        writer::StoreWriter,
    };
    use kubewarm_api::model::{DeltaSink as _, FieldPath};
    use std::time::Duration;

    #[test]
    fn a_step_for_a_dropped_index_does_not_complete_its_successor() {
        let resource = informer_key("pods").resource;
        let counter = DecodeErrorCounter::default();
        let kind = Arc::new(DictionaryGroup::new(
            resource,
            CompressionContextPool::default(),
            MaintenanceQueue::default(),
            counter,
            DictionaryCost::Counted,
        ));
        let store = ObjectStore::new(kind, false, Arc::default());
        let store = Arc::new(store);
        let mut writer = StoreWriter::new(Arc::clone(&store));
        writer.apply(upsert("a/x", 1, "1", &body("{}", r#","a":1"#)));
        let query = [FieldPath::parse("a").unwrap()];
        let declare = |paths: &[FieldPath]| drop(store.contents.write().declare(paths));
        declare(&query);
        let declared = Arc::clone(&store.contents.read().paths);
        declare(&[]);
        declare(&query);
        // The test has dropped the first index of `a`, which contained row 0, and has created a
        // second index of `a`. A step for the first index must not mark the second index as
        // complete.
        assert_eq!(index_step(&store, &declared, 1), None);
        let is_complete = || store.contents.read().declared.iter().all(|index| index.is_complete);
        assert!(!is_complete());
        complete_indexes(&store);
        assert!(is_complete());
    }

    #[test]
    fn later_jobs_run_after_a_job_that_panics() {
        let upkeep = MaintenanceQueue::default();
        for _ in 0..2 {
            upkeep.push(|| panic!("expected in this test"));
            let (sender, receiver) = mpsc::channel();
            let settling = upkeep.clone();
            thread::spawn(move || {
                settling.settle();
                sender.send(())
            });
            receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }
}
