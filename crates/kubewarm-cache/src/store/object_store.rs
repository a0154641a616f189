//! One store: its data with a lock, and the operations that the writer, the readers and the
//! maintenance thread share.

use super::{
    compression_contexts::CompressionContext,
    contents::StoreContents,
    dictionary::CompressionDictionary,
    dictionary_group::DictionaryGroup,
    dispatch::KeptLabels,
    maintenance_queue::complete_indexes,
    packed_object::{BodyCompression, DetachedObject, PackedObject},
    reader::{ObjectKeyRef, StoreUsage},
    template_set::{SharedTemplate, TemplateSet},
};
use bytes::Bytes;
use kubewarm_api::model::{FieldPath, ResourceVersion, UsageMeter};
use kubewarm_wire::{ManagedFieldsTemplate, ObjectBody, json::FieldPathSet};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{self, AtomicBool},
    },
};
use tokio::sync::Notify;

/// The objects of one informer, with one writer and any number of readers.
///
/// A thread locks at most one store at a time. The writer holds the lock for a few microseconds for
/// each added, changed or deleted object, and compresses outside the lock. A reader holds the lock
/// for about 0.1 µs for each object that it collects.
#[derive(Debug)]
pub(super) struct ObjectStore {
    pub(super) contents: RwLock<StoreContents>,
    /// Whether the store contains Secrets with their payload. The store does not compress such
    /// objects, because a zstd context or a dictionary would keep copies of the payload.
    is_secret: bool,
    /// The dictionary, zstd contexts and job queue that this store shares with other stores of the
    /// same profile namespace, identity, resource and projection.
    pub(super) dictionary_group: Arc<DictionaryGroup>,
    templates: Arc<TemplateSet>,
    /// The meter of objects and bytes in the store. They count against the memory and object limits
    /// of profiles.
    meter: Arc<UsageMeter>,
    /// Whether the store was closed. The flag changes only under the write lock of `contents`.
    is_closed: AtomicBool,
    /// The store wakes tasks that wait for a version through this `Notify`, when its version can
    /// have changed. A bookmark wakes only these tasks, because it brings followers nothing.
    pub(super) version_changed: Notify,
}

impl ObjectStore {
    pub(super) fn new(
        dictionary_group: Arc<DictionaryGroup>,
        is_secret: bool,
        meter: Arc<UsageMeter>,
    ) -> Self {
        Self {
            contents: RwLock::default(),
            is_secret,
            dictionary_group,
            templates: Arc::default(),
            meter,
            is_closed: AtomicBool::new(false),
            version_changed: Notify::new(),
        }
    }

    /// Runs `entries` without the store's lock to compute an object's index entries, then takes the
    /// write lock. Returns the entries and the locked contents.
    ///
    /// The set of field paths, or whether followers need labels, can change before this method
    /// takes the lock. The entries would then be incomplete, so the method runs `entries` again.
    pub(super) fn write_with<T>(
        &self,
        entries: impl Fn(&FieldPathSet, KeptLabels) -> T,
    ) -> (T, RwLockWriteGuard<'_, StoreContents>) {
        let to_read = |contents: &StoreContents| {
            (Arc::clone(&contents.paths), contents.dispatch.kept_labels())
        };
        let (mut paths, mut kept) = to_read(&self.contents.read());
        loop {
            let entries = entries(&paths, kept);
            let contents = self.contents.write();
            if Arc::ptr_eq(&contents.paths, &paths) && contents.dispatch.kept_labels() == kept {
                return (entries, contents);
            }
            (paths, kept) = to_read(&contents);
        }
    }

    /// Sets the store's version to `version`, unless `version` is older. Takes the write lock only
    /// if `version` differs from the store's version.
    pub(super) fn raise(&self, version: &ResourceVersion) {
        if self.contents.read().version.as_ref() != Some(version) {
            let mut contents = self.contents.write();
            contents.raise_version(version.clone());
            self.publish_version(contents);
        }
    }

    /// Decompresses the object `record` into `into`. If this fails, logs and counts the error and
    /// returns `None`.
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
                tracing::error!(%fault, "a stored object is damaged; restart this replica");
                None
            }
        }
    }

    pub(super) fn unpack_row<'a>(
        &self,
        number: u32,
        context: &mut CompressionContext,
        into: &'a mut Vec<u8>,
    ) -> Option<ObjectBody<'a>> {
        let packed = self.contents.read().packed(number)?;
        self.unpack_detached(&packed, context, into)
    }

    pub(super) fn unpack_detached<'a>(
        &self,
        packed: &DetachedObject,
        context: &mut CompressionContext,
        into: &'a mut Vec<u8>,
    ) -> Option<ObjectBody<'a>> {
        let bytes = self.unpack(&packed.record, packed.dictionary.as_deref(), context, into)?;
        Some(ObjectBody { encoding: packed.encoding, bytes })
    }

    /// Decompresses an object into a new allocation. Returns `None` if this fails.
    pub(super) fn body(&self, packed: &DetachedObject) -> Option<Bytes> {
        let (mut body, with) = (Vec::new(), packed.dictionary.as_deref());
        self.dictionary_group.contexts.with(|context, _| {
            self.unpack(&packed.record, with, context, &mut body)?;
            Some(body.into())
        })
    }

    /// Returns the packed objects of up to `limit` rows, in ascending order of the row numbers,
    /// starting at number `from`.
    pub(super) fn copy_rows(&self, from: u32, limit: usize) -> Vec<(u32, DetachedObject)> {
        let contents = self.contents.read();
        let numbers = contents.slab.numbers_from(from).take(limit);
        numbers.filter_map(|at| Some((at, contents.packed(at)?))).collect()
    }

    /// Returns up to `count` packed (usually compressed) objects, evenly spread over the store's
    /// rows.
    pub(super) fn spread(&self, count: usize) -> Vec<DetachedObject> {
        let contents = self.contents.read();
        let step = contents.order.len().div_ceil(count.max(1)).max(1);
        contents.slab.numbers_from(0).step_by(step).filter_map(|at| contents.packed(at)).collect()
    }

    /// Makes the store index exactly the field paths in `paths`, and queues a maintenance job that
    /// fills the added indexes.
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
                .push(move || store.upgrade().iter().for_each(|store| complete_indexes(store)));
        }
    }

    pub(super) fn usage(&self) -> StoreUsage {
        let contents = self.contents.read();
        StoreUsage { objects: contents.order.len() as u64, bytes: self.bytes(&contents) }
    }

    fn bytes(&self, contents: &StoreContents) -> u64 {
        (contents.bytes() + self.templates.bytes()) as u64
    }

    /// Whether the store was closed, or another store was opened for the same informer key.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(atomic::Ordering::Relaxed)
    }

    /// Ends a change of the store: updates the `UsageMeter` (number of objects and bytes), releases
    /// the store's lock and wakes each [`EventLogFollower`](super::EventLogFollower) that the
    /// change can concern. A follower prepares to wait before it reads, and reads under the store's
    /// lock, so it either reads the change or wakes here.
    pub(super) fn publish(&self, mut contents: RwLockWriteGuard<'_, StoreContents>) {
        if contents.order.len() == 0 {
            self.templates.forget_unused();
        }
        let epoch = contents.log.epoch;
        let woken = contents.dispatch.take_woken(epoch);
        self.publish_version(contents);
        for follower in woken {
            follower.notify_waiters();
        }
    }

    /// Ends a change of the store's version alone. It wakes no
    /// [`EventLogFollower`](super::EventLogFollower), because the event log has no new change.
    pub(super) fn publish_version(&self, mut contents: RwLockWriteGuard<'_, StoreContents>) {
        let first = contents.log.first();
        contents.dispatch.trim(first);
        self.measure(&contents);
        // Wake waiting tasks only if the version has changed: a list changes many objects, but the
        // version only once.
        let StoreContents { announced, version, .. } = &mut *contents;
        let has_new_version = announced != version;
        if has_new_version {
            announced.clone_from(version);
        }
        drop(contents);
        if has_new_version {
            self.version_changed.notify_waiters();
        }
    }

    /// Sets the `UsageMeter` to the objects and bytes of `contents`. The caller holds the store's
    /// lock, so an older value never overwrites a newer value.
    ///
    /// A closed store does not set the meter, because the next store of the same informer key uses
    /// the same meter.
    pub(super) fn measure(&self, contents: &StoreContents) {
        if !self.is_closed() {
            self.meter.set(contents.order.len() as u64, self.bytes(contents));
        }
    }

    /// Marks the store as closed, sets the `UsageMeter` to 0 and wakes the store's
    /// [`EventLogFollower`](super::EventLogFollower)s. The memory stays allocated until the writer
    /// and all readers are dropped.
    pub(super) fn close(&self) {
        let contents = self.contents.write();
        self.is_closed.store(true, atomic::Ordering::Relaxed);
        self.meter.set(0, 0);
        let all = contents.dispatch.all();
        drop(contents);
        for follower in all {
            follower.notify_waiters();
        }
    }

    /// Compresses an object with the newest dictionary. If enough other objects have the same
    /// managedFields, the packed object contains only a pointer to them. A Secret stays
    /// uncompressed and whole.
    pub(super) fn pack(
        &self,
        key: ObjectKeyRef<'_>,
        body: ObjectBody<'_>,
        context: &mut CompressionContext,
    ) -> DetachedObject {
        let name = str::from_utf8(key.name).unwrap_or_default();
        if self.is_secret {
            let record = PackedObject::new(name, BodyCompression::Secret, None, body.bytes);
            return DetachedObject { record, dictionary: None, encoding: body.encoding };
        }
        let with = self.dictionary_group.current();
        let mut reduced = mem::take(&mut context.reduced);
        let template = self.reduce(key, body, &mut reduced, &mut context.frame);
        let bytes = if template.is_some() { &reduced } else { body.bytes };
        let packed = context.pack(name, ObjectBody { bytes, ..body }, with.as_ref(), template);
        context.reduced = reduced;
        packed
    }

    /// Counts a stored object, because this count decides when kubewarm tries to make the next
    /// dictionary. Secrets do not count, because they stay uncompressed.
    pub(super) fn count_packed(&self) {
        if !self.is_secret {
            self.dictionary_group.count_packed();
        }
    }

    /// Writes an object's reduced body (the object without the part of its managedFields that its
    /// template contains) into `reduced`, and returns its template. Returns `None` if the object
    /// must be stored whole: because few other objects have the same template, or because reduced
    /// body and template together would not give exactly the same bytes. Replaces the contents of
    /// `joined`, a scratch buffer.
    fn reduce(
        &self,
        key: ObjectKeyRef<'_>,
        body: ObjectBody<'_>,
        reduced: &mut Vec<u8>,
        joined: &mut Vec<u8>,
    ) -> Option<Arc<SharedTemplate>> {
        let template = ManagedFieldsTemplate::split(body, reduced)?;
        let shared = self.templates.share(key, template)?;
        shared.template.join(reduced, joined)?;
        (joined == body.bytes).then_some(shared)
    }
}
