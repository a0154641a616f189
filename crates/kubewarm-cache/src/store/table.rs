//! A table: its contents behind a lock, and what is done with them from outside.

use super::{
    codec::{Codec, Context},
    contents::{Contents, Packed},
    kind::Kind,
    paths::Paths,
    query::Usage,
    record::{Encoding, Packing, Record, Undecodable},
    upkeep::{Job, Upkeep},
};
use kubewarm_api::model::{FieldPath, Gauge, ResourceVersion, Sensitivity};
use parking_lot::RwLock;
use std::sync::{
    Arc,
    atomic::{self, AtomicBool, AtomicU64},
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
    sensitivity: Sensitivity,
    pub(super) codec: Codec,
    /// What it shares with the tables of its kind.
    pub(super) kind: Arc<Kind>,
    /// Records that did not decode: each is a fault of ours.
    pub(super) undecodable: AtomicU64,
    /// What it holds, for whoever bounds it.
    gauge: Arc<Gauge>,
    /// Changed under the lock of the contents.
    is_closed: AtomicBool,
    /// Wakes those who follow it.
    pub(super) told: Arc<Notify>,
}

impl Table {
    /// An empty one.
    pub(super) fn new(
        codec: Codec,
        kind: Arc<Kind>,
        sensitivity: Sensitivity,
        gauge: Arc<Gauge>,
    ) -> Self {
        Self {
            contents: RwLock::default(),
            encoding: Encoding::Json,
            sensitivity,
            codec,
            kind,
            undecodable: AtomicU64::new(0),
            gauge,
            is_closed: AtomicBool::new(false),
            told: Arc::default(),
        }
    }

    /// The paths of the declared indexes now.
    pub(super) fn paths(&self) -> Arc<Paths> {
        Arc::clone(&self.contents.read().paths)
    }

    /// See [`Contents::raise`]; takes the write lock only if that changes anything.
    pub(super) fn raise(&self, version: &ResourceVersion) {
        if self.contents.read().version.as_ref() != Some(version) {
            self.contents.write().raise(version.clone());
        }
    }

    /// Unpacks the body of a row; `false`, counted and logged, if it does not decode.
    pub(super) fn unpack(&self, number: u32, context: &mut Context, into: &mut Vec<u8>) -> bool {
        let done = self.contents.read().unpack(number, context, into);
        self.count(done)
    }

    /// The rows from number `from` on, up to `limit`, and their records.
    pub(super) fn copy_rows(&self, from: u32, limit: usize) -> Vec<(u32, Record)> {
        let contents = self.contents.read();
        let numbers = contents.slab.numbers_from(from).take(limit);
        numbers.filter_map(|at| Some((at, contents.slab.get(at)?.record.clone()))).collect()
    }

    /// The numbers of up to `count` rows from all over the table.
    pub(super) fn spread(&self, count: usize) -> Vec<u32> {
        let contents = self.contents.read();
        let step = contents.order.len().div_ceil(count.max(1)).max(1);
        contents.slab.numbers_from(0).step_by(step).collect()
    }

    /// Declares which indexes there are, and has those completed that are new.
    pub(super) fn declare(self: &Arc<Self>, wanted: &[FieldPath], upkeep: &Upkeep) {
        let mut contents = self.contents.write();
        let gone = contents.declare(wanted);
        self.measure_locked(&contents);
        let underway = contents.declared.iter().any(|index| !index.state.is_complete());
        drop(contents);
        drop(gone);
        if underway {
            upkeep.push(Job::Index(Arc::downgrade(self)));
        }
    }

    /// The declared indexes that are not complete, and the declaration that they are of.
    pub(super) fn underway(&self) -> (Arc<Paths>, Paths) {
        let contents = self.contents.read();
        let underway = contents.declared.iter().filter(|index| !index.state.is_complete());
        (Arc::clone(&contents.paths), underway.map(|index| index.path.clone()).collect())
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

    /// Wakes those who follow it.
    pub(super) fn tell(&self) {
        self.told.notify_waiters();
    }

    /// Sets the gauge to what is held now.
    pub(super) fn measure(&self) {
        self.measure_locked(&self.contents.read());
    }

    /// Under the lock, so that whoever measures at the same moment sees the same. Nothing is measured once the
    /// table is closed, since its successor has the same gauge.
    fn measure_locked(&self, contents: &Contents) {
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
        self.tell();
    }

    /// Packs a body as the kind's records are packed now; a secret not at all.
    pub(super) fn pack(&self, name: &str, body: &[u8], context: &mut Context) -> Packed {
        if self.sensitivity == Sensitivity::Secret {
            return Packed { record: Record::new(name, Packing::Secret, body), with: None };
        }
        let with = self.kind.current();
        let record = context.pack(name, body, with.as_deref());
        self.kind.count();
        Packed { record, with }
    }

    /// Counts and logs what did not decode; answers whether it did.
    pub(super) fn count(&self, done: Result<(), Undecodable>) -> bool {
        if let Err(fault) = done {
            self.undecodable.fetch_add(1, atomic::Ordering::Relaxed);
            tracing::error!(%fault, "stored record does not decode; treated as absent");
        }
        done.is_ok()
    }
}
