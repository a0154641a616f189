//! Work on tables that no delta waits for, on one thread for each catalog.

use super::{
    record::{PackedRecord, Packing},
    table::Table,
};
use kubewarm_wire::json::Paths;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

/// Rows that are worked on between two locks of the table: its write lock is held for well under a
/// millisecond at a time.
const STEP: usize = 128;

type Job = Box<dyn FnOnce() + Send>;

/// The queue of a thread that ends with the last clone. It needs no bound of its own: a table or a kind is in it at
/// most once for each kind of job and change of its declaration. A job holds tables and kinds weakly.
#[derive(Clone, Debug)]
pub(super) struct Upkeep(mpsc::Sender<Job>);

impl Default for Upkeep {
    fn default() -> Self {
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = || jobs.into_iter().for_each(run);
        if let Err(fault) = thread::Builder::new().name("store-upkeep".to_owned()).spawn(work) {
            tracing::warn!(%fault, "no thread for the store's upkeep; its jobs run at once");
        }
        Self(sender)
    }
}

impl Upkeep {
    /// Has `job` done soon. It must not push another one: [`Upkeep::settle`] would not wait for that.
    pub(super) fn push(&self, job: impl FnOnce() + Send + 'static) {
        // Only without a thread does nobody receive it.
        if let Err(mpsc::SendError(job)) = self.0.send(Box::new(job)) {
            run(job);
        }
    }

    /// Waits until everything is done that was pushed before. For tests and measurements.
    pub(super) fn settle(&self) {
        let (done, settled) = mpsc::channel::<()>();
        self.push(move || drop(done));
        let _disconnected = settled.recv();
    }
}

/// The jobs behind one that panics are done all the same.
fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a job of the store's upkeep panicked; left undone");
    }
}

/// Packs every record with the newest dictionary of its kind, a step at a time.
pub(super) fn repack(table: &Table) {
    let Some(with) = table.kind.current() else { return };
    let mut next = Some(0);
    while let Some(from) = next {
        let copies = table.copy_rows(from, STEP);
        next = copies.last().and_then(|(number, _)| number.checked_add(1));
        let newest = Packing::Dictionary(with.generation());
        let old = copies
            .into_iter()
            .filter(|(_, old)| old.record.packing() != newest)
            .filter(|(_, old)| !matches!(old.record.packing(), Packing::Plain | Packing::Secret));
        table.kind.codec.with(|context, body| {
            let mut repacked = Vec::new();
            for (number, packed) in old {
                if let Ok(name) = std::str::from_utf8(packed.record.name())
                    && let Some(body) =
                        table.unpack(&packed.record, packed.dictionary.as_deref(), context, body)
                {
                    let again = context.pack(name, body, Some(&with));
                    repacked.push((number, packed.record, again));
                }
            }
            let mut contents = table.contents.write();
            let mut gone = Vec::with_capacity(repacked.len());
            for (number, record, again) in repacked {
                // What changed meanwhile is packed with the newest dictionary already.
                if contents.slab.get(number).is_some_and(|row| row.record == record) {
                    gone.push(contents.repack(number, again));
                }
            }
            table.measure(&contents);
            drop(contents);
            drop(gone);
        });
    }
}

/// Brings every row into the declared indexes. The writer has put what it changes into them since they were declared, so
/// putting a row in a second time changes nothing.
///
/// It ends early if indexes are declared meanwhile: that declaration has pushed a job of its own.
pub(super) fn complete_indexes(table: &Table) {
    let contents = table.contents.read();
    if contents.declared.iter().all(|index| index.is_complete) {
        return;
    }
    let declared = Arc::clone(&contents.paths);
    drop(contents);
    let mut next = Some(0);
    while let Some(from) = next {
        next = index_step(table, &declared, from);
    }
}

/// Works on up to [`STEP`] rows from number `from` on. Returns where to go on; `None` at the end, or if indexes have been
/// declared since `declared`: one of the same path may be another one, and empty.
fn index_step(table: &Table, declared: &Arc<Paths>, from: u32) -> Option<u32> {
    let copies = table.copy_rows(from, STEP);
    let next = copies.last().and_then(|(number, _)| number.checked_add(1));
    table.kind.codec.with(|context, body| {
        let mut values_of = |PackedRecord { record, dictionary }: &PackedRecord| {
            let body = table.unpack(record, dictionary.as_deref(), context, body);
            body.map_or_else(Vec::new, |body| table.encoding.field_values(body, declared))
        };
        let found: Vec<_> = copies
            .into_iter()
            .map(|(number, packed)| (number, values_of(&packed), packed.record))
            .collect();
        let mut contents = table.contents.write();
        if !Arc::ptr_eq(&contents.paths, declared) {
            return None;
        }
        for (number, mut values, record) in found {
            let Some(now) = contents.packed(number) else { continue };
            if now.record != record {
                // A change meanwhile is rare enough to be read under the lock.
                values = values_of(&now);
            }
            contents.index(number, &values);
        }
        if next.is_none() {
            contents.declared.iter_mut().for_each(|index| index.is_complete = true);
        }
        table.measure(&contents);
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        codec::Codec,
        kind::{DecodeErrorCounter, Kind},
        samples::{body, cell, upsert},
        writer::Writer,
    };
    use kubewarm_api::model::{DeltaSink as _, FieldPath};
    use std::time::Duration;

    #[test]
    fn a_step_for_an_index_that_was_dropped_and_declared_again_does_not_complete_the_new_one() {
        let resource = cell("pods").resource;
        let counter = DecodeErrorCounter::default();
        let kind = Arc::new(Kind::new(resource, Codec::default(), Upkeep::default(), counter));
        let table = Table::new(kind, false, Arc::default());
        let table = Arc::new(table);
        let mut writer = Writer::new(Arc::clone(&table));
        writer.apply(upsert("a/x", 1, "1", &body("{}", r#","a":1"#)));
        let wanted = [FieldPath::parse("a").unwrap()];
        let declare = |paths: &[FieldPath]| drop(table.contents.write().declare(paths));
        declare(&wanted);
        let declared = Arc::clone(&table.contents.read().paths);
        declare(&[]);
        declare(&wanted);
        // The only row was done for the index that is gone.
        assert_eq!(index_step(&table, &declared, 1), None);
        let is_complete = || table.contents.read().declared.iter().all(|index| index.is_complete);
        assert!(!is_complete());
        complete_indexes(&table);
        assert!(is_complete());
    }

    #[test]
    fn a_job_that_panics_holds_up_no_other() {
        let upkeep = Upkeep::default();
        for _ in 0..2 {
            upkeep.push(|| panic!("a job of a test"));
            let (tell, told) = mpsc::channel();
            let settling = upkeep.clone();
            thread::spawn(move || {
                settling.settle();
                tell.send(())
            });
            told.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }
}
