//! Compression dictionaries. A dictionary contains text that many objects of a resource have in
//! common, so zstd stores that text only once.

use super::{
    compression_contexts::LEVEL,
    packed_object::{BodyCompression, DetachedObject, PackedObject},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, SafeResult, WriteBuf};

/// One zstd dictionary. It stays in memory while an object compressed with it exists, or while it
/// is the newest dictionary of its `DictionaryGroup`.
pub(super) struct CompressionDictionary {
    content: DictionaryContent,
    generation: u8,
    /// Number of [`DictionarySet`]s that contain this dictionary. Each of them counts an equal part
    /// of the dictionary's memory.
    users: AtomicUsize,
}

enum DictionaryContent {
    /// Bytes of stored objects, at most 8 KiB. zstd reads them for each object that it compresses.
    Objects(Vec<u8>),
    /// A trained dictionary with its tables, about 105 KiB. It makes objects smaller than bytes of
    /// stored objects do.
    Trained { compress: CDict<'static>, decompress: DDict<'static> },
}

/// The first bytes of a trained dictionary (RFC 8878, section 5).
const TRAINED_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// The dictionaries with which the objects of one store, or of one event log, are compressed.
/// Usually, one dictionary is enough.
#[derive(Debug, Default)]
pub(super) struct DictionarySet(Vec<DictionaryUseCount>);

#[derive(Debug)]
struct DictionaryUseCount {
    dictionary: Arc<CompressionDictionary>,
    records: usize,
}

impl std::fmt::Debug for CompressionDictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompressionDictionary")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl CompressionDictionary {
    /// Prepares a trained dictionary for compression and decompression. Returns `None` if zstd
    /// rejects the trained bytes.
    pub(super) fn trained(mut trained: Vec<u8>, generation: u8) -> Option<Self> {
        // Bytes 4 to 7 are the dictionary ID (RFC 8878). With the ID 0, zstd omits the ID from
        // every frame, which saves memory. A [`PackedObject`] stores the dictionary's `generation`
        // instead.
        trained.get_mut(4..8)?.fill(0);
        let compress = CDict::try_create(&trained, LEVEL)?;
        let decompress = DDict::try_create(&trained)?;
        let content = DictionaryContent::Trained { compress, decompress };
        Some(Self { content, generation, users: AtomicUsize::new(0) })
    }

    /// Creates a dictionary that consists of the bytes of objects. Returns `None` if the bytes
    /// begin like a trained dictionary, because zstd would then read them as one.
    pub(super) fn of_content(mut objects: Vec<u8>, generation: u8) -> Option<Self> {
        if objects.starts_with(&TRAINED_MAGIC) {
            return None;
        }
        objects.shrink_to_fit();
        let content = DictionaryContent::Objects(objects);
        Some(Self { content, generation, users: AtomicUsize::new(0) })
    }

    /// Returns the number of the dictionary within its `DictionaryGroup`, from 1 to 253. Each
    /// compressed object names its dictionary by this number, in one byte.
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// Returns the memory of the dictionary in bytes, for compression and decompression together.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            DictionaryContent::Objects(objects) => objects.capacity(),
            DictionaryContent::Trained { compress, decompress } => {
                compress.sizeof() + decompress.sizeof()
            }
        }
    }

    pub(super) fn compress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut CCtx<'static>,
        into: &mut W,
        body: &[u8],
    ) -> SafeResult {
        match &self.content {
            DictionaryContent::Objects(objects) => {
                context.compress_using_dict(into, body, objects, LEVEL)
            }
            DictionaryContent::Trained { compress, .. } => {
                context.compress_using_cdict(into, body, compress)
            }
        }
    }

    pub(super) fn decompress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut DCtx<'static>,
        into: &mut W,
        frame: &[u8],
    ) -> SafeResult {
        match &self.content {
            DictionaryContent::Objects(objects) => {
                context.decompress_using_dict(into, frame, objects)
            }
            DictionaryContent::Trained { decompress, .. } => {
                context.decompress_using_ddict(into, frame, decompress)
            }
        }
    }
}

impl DictionarySet {
    /// Counts `packed` as a user of its dictionary. Does nothing if `packed` has no dictionary.
    pub(super) fn enter(&mut self, packed: &DetachedObject) {
        let Some(dictionary) = &packed.dictionary else { return };
        let generation = dictionary.generation;
        if let Some(count) =
            self.0.iter_mut().find(|count| count.dictionary.generation == generation)
        {
            count.records += 1;
            return;
        }
        dictionary.users.fetch_add(1, Ordering::Relaxed);
        self.0.push(DictionaryUseCount { dictionary: Arc::clone(dictionary), records: 1 });
    }

    /// Stops counting `record` as a user of its dictionary. This `DictionarySet` drops a dictionary
    /// that has no users left.
    pub(super) fn leave(&mut self, record: &PackedObject) {
        let BodyCompression::Dictionary(generation) = record.packing() else { return };
        self.0.retain_mut(|count| {
            if count.dictionary.generation == generation {
                count.records = count.records.saturating_sub(1);
            }
            count.records > 0
        });
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// Returns the dictionary that decompresses an object with this [`BodyCompression`]. `None` if
    /// the object was compressed without a dictionary or is not compressed.
    pub(super) fn get(&self, packing: BodyCompression) -> Option<&Arc<CompressionDictionary>> {
        let BodyCompression::Dictionary(generation) = packing else { return None };
        let mut all = self.0.iter().map(|count| &count.dictionary);
        all.find(|dictionary| dictionary.generation == generation)
    }

    /// Returns the memory of the dictionaries in bytes. A dictionary can be in several sets; each
    /// set then counts an equal part of the dictionary's bytes.
    pub(super) fn bytes(&self) -> usize {
        let share = |count: &DictionaryUseCount| {
            count.dictionary.bytes() / count.dictionary.users.load(Ordering::Relaxed).max(1)
        };
        self.0.iter().map(share).sum()
    }
}

impl Drop for DictionaryUseCount {
    fn drop(&mut self) {
        self.dictionary.users.fetch_sub(1, Ordering::Relaxed);
    }
}
