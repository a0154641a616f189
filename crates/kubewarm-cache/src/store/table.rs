//! A table: its contents behind a lock, and what is done with them from outside.

use super::{
    codec::Context,
    contents::Contents,
    dictionary::Dictionary,
    kind::Kind,
    query::Usage,
    record::{Encoding, PackedRecord, Packing, Record},
    upkeep::complete_indexes,
};
use bytes::Bytes;
use kubewarm_api::model::{FieldPath, Gauge, ResourceVersion};
use kubewarm_wire::json::Paths;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::{
    Arc,
    atomic::{self, AtomicBool},
};
use tokio::sync::Notify;

/// The objects of one cell: one writer, any number of readers.
///
/// Locking: every reader and the writer take this one lock and no other table's with it. The writer
/// holds it for a few microseconds a delta, packing and unpacking outside; readers while they take
/// packed records, about 0.1 µs an object.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) contents: RwLock<Contents>,
    pub(super) encoding: Encoding,
    /// Whether it holds the payload of Secrets, which is not packed.
    is_secret: bool,
    /// What it shares with the tables of its kind.
    pub(super) kind: Arc<Kind>,
    /// What it holds, for whoever bounds it.
    gauge: Arc<Gauge>,
    /// Changed under the lock of the contents.
    is_closed: AtomicBool,
    /// Wakes those who follow it.
    pub(super) told: Arc<Notify>,
}

impl Table {
    /// An empty one.
    pub(super) fn new(kind: Arc<Kind>, is_secret: bool, gauge: Arc<Gauge>) -> Self {
        Self {
            contents: RwLock::default(),
            encoding: Encoding::Json,
            is_secret,
            kind,
            gauge,
            is_closed: AtomicBool::new(false),
            told: Arc::default(),
        }
    }

    /// The write lock, and what `entries` finds for the declared indexes. It searches outside the lock, and once more if
    /// indexes are declared meanwhile.
    pub(super) fn write_with<T>(
        &self,
        entries: impl Fn(&Paths) -> T,
    ) -> (T, RwLockWriteGuard<'_, Contents>) {
        let mut paths = Arc::clone(&self.contents.read().paths);
        loop {
            let found = entries(&paths);
            let contents = self.contents.write();
            if Arc::ptr_eq(&contents.paths, &paths) {
                return (found, contents);
            }
            paths = Arc::clone(&contents.paths);
        }
    }

    /// See [`Contents::raise`]; takes the write lock only if that changes anything.
    pub(super) fn raise(&self, version: &ResourceVersion) {
        if self.contents.read().version.as_ref() != Some(version) {
            self.contents.write().raise(version.clone());
        }
    }

    /// Unpacks a record of this table into `into`. A record that does not decode is counted and logged.
    pub(super) fn unpack<'a>(
        &self,
        record: &Record,
        with: Option<&Dictionary>,
        context: &mut Context,
        into: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        match context.unpack(record, with, into) {
            Ok(()) => Some(into),
            Err(fault) => {
                self.kind.count_decode_error();
                tracing::error!(%fault, "stored record does not decode; treated as absent");
                None
            }
        }
    }

    /// Unpacks the body of a row into `into`.
    pub(super) fn unpack_row<'a>(
        &self,
        number: u32,
        context: &mut Context,
        into: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let PackedRecord { record, dictionary } = self.contents.read().packed(number)?;
        self.unpack(&record, dictionary.as_deref(), context, into)
    }

    /// The body of a record; `None` if it does not decode.
    pub(super) fn body(&self, packed: &PackedRecord) -> Option<Bytes> {
        let (mut body, with) = (Vec::new(), packed.dictionary.as_deref());
        self.kind.codec.with(|context, _| {
            self.unpack(&packed.record, with, context, &mut body)?;
            Some(body.into())
        })
    }

    /// Up to `limit` rows from number `from` on.
    pub(super) fn copy_rows(&self, from: u32, limit: usize) -> Vec<(u32, PackedRecord)> {
        let contents = self.contents.read();
        let numbers = contents.slab.numbers_from(from).take(limit);
        numbers.filter_map(|at| Some((at, contents.packed(at)?))).collect()
    }

    /// The records of up to `count` rows from all over the table.
    pub(super) fn spread(&self, count: usize) -> Vec<PackedRecord> {
        let contents = self.contents.read();
        let step = contents.order.len().div_ceil(count.max(1)).max(1);
        contents.slab.numbers_from(0).step_by(step).filter_map(|at| contents.packed(at)).collect()
    }

    /// Declares which indexes there are, and has those completed that are new.
    pub(super) fn declare(self: &Arc<Self>, wanted: &[FieldPath]) {
        let mut contents = self.contents.write();
        let gone = contents.declare(wanted);
        self.measure(&contents);
        let underway = contents.declared.iter().any(|index| !index.is_complete);
        drop(contents);
        drop(gone);
        if underway {
            let table = Arc::downgrade(self);
            self.kind
                .upkeep
                .push(move || table.upgrade().iter().for_each(|it| complete_indexes(it)));
        }
    }

    /// How much it holds.
    pub(super) fn usage(&self) -> Usage {
        let contents = self.contents.read();
        Usage { objects: contents.order.len() as u64, bytes: contents.bytes() as u64 }
    }

    /// Whether nobody fills it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(atomic::Ordering::Relaxed)
    }

    /// Ends a change: sets the gauge, and wakes those who follow the table.
    pub(super) fn publish(&self, contents: RwLockWriteGuard<'_, Contents>) {
        self.measure(&contents);
        drop(contents);
        self.told.notify_waiters();
    }

    /// Sets the gauge to the objects and bytes of `contents`. The caller holds the table's lock, so two calls cannot
    /// overtake each other. A closed table leaves the gauge to its successor.
    pub(super) fn measure(&self, contents: &Contents) {
        if !self.is_closed() {
            self.gauge.set(contents.order.len() as u64, contents.bytes() as u64);
        }
    }

    /// Counts what it holds no more: it goes with its writer and its last reader.
    pub(super) fn close(&self) {
        let contents = self.contents.write();
        self.is_closed.store(true, atomic::Ordering::Relaxed);
        self.gauge.set(0, 0);
        drop(contents);
        self.told.notify_waiters();
    }

    /// Packs a body as the kind's records are packed now; a secret not at all.
    pub(super) fn pack(&self, name: &str, body: &[u8], context: &mut Context) -> PackedRecord {
        if self.is_secret {
            let record = Record::new(name, Packing::Secret, body);
            return PackedRecord { record, dictionary: None };
        }
        let packed = context.pack(name, body, self.kind.current().as_ref());
        self.kind.count();
        packed
    }
}
