//! One store: its data behind a lock, and the operations of the writer, the readers and the maintenance thread.

use super::{
    codec::CompressionContext,
    contents::StoreContents,
    dictionary::CompressionDictionary,
    dictionary_group::DictionaryGroup,
    maintenance_queue::complete_indexes,
    packed_object::{BodyEncoding, BodyPacking, DetachedObject, PackedObject},
    reader::StoreUsage,
};
use bytes::Bytes;
use kubewarm_api::model::{FieldPath, ResourceVersion, UsageMeter};
use kubewarm_wire::json::FieldPathSet;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::{
    Arc,
    atomic::{self, AtomicBool},
};
use tokio::sync::Notify;

/// The objects of one informer, with one writer and any number of readers.
///
/// Locking: a thread holds the lock of at most one store. The writer holds it for a few microseconds a delta, and
/// packs and unpacks outside it. A reader holds it while it collects packed objects, about 0.1 µs each.
#[derive(Debug)]
pub(super) struct ObjectStore {
    pub(super) contents: RwLock<StoreContents>,
    pub(super) encoding: BodyEncoding,
    /// Whether the store contains Secrets with their payload, which are never compressed.
    is_secret: bool,
    /// Dictionary, codec and job queue of all stores with the same resource and projection.
    pub(super) dictionary_group: Arc<DictionaryGroup>,
    /// Reports objects and bytes to the budgets that limit them.
    gauge: Arc<UsageMeter>,
    /// Changes only under the write lock of `contents`.
    is_closed: AtomicBool,
    /// Wakes the followers after each change and when the store is closed.
    pub(super) changed: Arc<Notify>,
}

impl ObjectStore {
    pub(super) fn new(
        dictionary_group: Arc<DictionaryGroup>,
        is_secret: bool,
        gauge: Arc<UsageMeter>,
    ) -> Self {
        Self {
            contents: RwLock::default(),
            encoding: BodyEncoding::Json,
            is_secret,
            dictionary_group,
            gauge,
            is_closed: AtomicBool::new(false),
            changed: Arc::default(),
        }
    }

    /// Runs `entries` outside the lock to find index entries, then takes the write lock. Returns both.
    ///
    /// If the declared indexes have changed in between, `entries` runs again.
    pub(super) fn write_with<T>(
        &self,
        entries: impl Fn(&FieldPathSet) -> T,
    ) -> (T, RwLockWriteGuard<'_, StoreContents>) {
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

    /// Raises the version as [`StoreContents::raise_version`] does. Takes the write lock only if the version differs.
    pub(super) fn raise(&self, version: &ResourceVersion) {
        if self.contents.read().version.as_ref() != Some(version) {
            self.contents.write().raise_version(version.clone());
        }
    }

    /// Unpacks a body into `into`. If the body does not decode, logs and counts the error and returns `None`.
    pub(super) fn unpack<'a>(
        &self,
        record: &PackedObject,
        with: Option<&CompressionDictionary>,
        context: &mut CompressionContext,
        into: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        match context.unpack(record, with, into) {
            Ok(()) => Some(into),
            Err(fault) => {
                self.dictionary_group.count_decode_error();
                tracing::error!(%fault, "stored record does not decode; treated as absent");
                None
            }
        }
    }

    pub(super) fn unpack_row<'a>(
        &self,
        number: u32,
        context: &mut CompressionContext,
        into: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let DetachedObject { record, dictionary } = self.contents.read().packed(number)?;
        self.unpack(&record, dictionary.as_deref(), context, into)
    }

    /// Unpacks a body into new memory. Returns `None` if the body does not decode.
    pub(super) fn body(&self, packed: &DetachedObject) -> Option<Bytes> {
        let (mut body, with) = (Vec::new(), packed.dictionary.as_deref());
        self.dictionary_group.codec.with(|context, _| {
            self.unpack(&packed.record, with, context, &mut body)?;
            Some(body.into())
        })
    }

    /// Returns up to `limit` rows with numbers from `from`.
    pub(super) fn copy_rows(&self, from: u32, limit: usize) -> Vec<(u32, DetachedObject)> {
        let contents = self.contents.read();
        let numbers = contents.slab.numbers_from(from).take(limit);
        numbers.filter_map(|at| Some((at, contents.packed(at)?))).collect()
    }

    /// Returns up to `count` packed objects, evenly spread over the store.
    pub(super) fn spread(&self, count: usize) -> Vec<DetachedObject> {
        let contents = self.contents.read();
        let step = contents.order.len().div_ceil(count.max(1)).max(1);
        contents.slab.numbers_from(0).step_by(step).filter_map(|at| contents.packed(at)).collect()
    }

    /// Changes the declared indexes, and queues the job that completes new ones.
    pub(super) fn declare(self: &Arc<Self>, paths: &[FieldPath]) {
        let mut contents = self.contents.write();
        let gone = contents.declare(paths);
        self.measure(&contents);
        let underway = contents.declared.iter().any(|index| !index.is_complete);
        drop(contents);
        drop(gone);
        if underway {
            let store = Arc::downgrade(self);
            self.dictionary_group
                .maintenance
                .push(move || store.upgrade().iter().for_each(|it| complete_indexes(it)));
        }
    }

    pub(super) fn usage(&self) -> StoreUsage {
        let contents = self.contents.read();
        StoreUsage { objects: contents.order.len() as u64, bytes: contents.bytes() as u64 }
    }

    /// Whether the store was closed or replaced.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(atomic::Ordering::Relaxed)
    }

    /// Ends a change: updates the gauge, releases the lock and wakes the followers.
    pub(super) fn publish(&self, contents: RwLockWriteGuard<'_, StoreContents>) {
        self.measure(&contents);
        drop(contents);
        self.changed.notify_waiters();
    }

    /// Sets the gauge to the objects and bytes of `contents`. The caller holds the store's lock, so a newer value is
    /// never overwritten by an older one.
    ///
    /// A closed store does not set the gauge, because its successor uses the same gauge.
    pub(super) fn measure(&self, contents: &StoreContents) {
        if !self.is_closed() {
            self.gauge.set(contents.order.len() as u64, contents.bytes() as u64);
        }
    }

    /// Marks the store as closed, sets the gauge to 0 and wakes the followers. The writer and the readers still hold
    /// the memory.
    pub(super) fn close(&self) {
        let contents = self.contents.write();
        self.is_closed.store(true, atomic::Ordering::Relaxed);
        self.gauge.set(0, 0);
        drop(contents);
        self.changed.notify_waiters();
    }

    /// Packs a body with the newest dictionary, and counts it for the next training. A Secret stays uncompressed and
    /// is not counted.
    pub(super) fn pack(
        &self,
        name: &str,
        body: &[u8],
        context: &mut CompressionContext,
    ) -> DetachedObject {
        if self.is_secret {
            let record = PackedObject::new(name, BodyPacking::Secret, body);
            return DetachedObject { record, dictionary: None };
        }
        let packed = context.pack(name, body, self.dictionary_group.current().as_ref());
        self.dictionary_group.count_packed();
        packed
    }
}
