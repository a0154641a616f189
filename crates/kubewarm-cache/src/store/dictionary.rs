//! Compression dictionaries: text that many objects of a resource contain, stored once for all of them.

use super::{
    codec::LEVEL,
    packed_object::{BodyPacking, DetachedObject, PackedObject},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, SafeResult, WriteBuf};

/// One trained dictionary, prepared for compression and decompression. It stays in memory while it is the newest of
/// its `DictionaryGroup` or a packed object needs it.
pub(super) struct CompressionDictionary {
    compress: CDict<'static>,
    decompress: DDict<'static>,
    generation: u8,
    /// Number of [`DictionarySet`] that contain it.
    users: AtomicUsize,
}

/// The dictionaries that the rows of one store need, or its event log. Usually there is one.
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
    /// Prepares a trained dictionary. Returns `None` if zstd rejects its bytes.
    pub(super) fn new(mut trained: Vec<u8>, generation: u8) -> Option<Self> {
        // Bytes 4 to 7 are the dictionary ID (RFC 8878). With the ID 0, zstd omits the ID from every frame. Packed
        // objects identify their dictionary by generation.
        trained.get_mut(4..8)?.fill(0);
        Some(Self {
            compress: CDict::try_create(&trained, LEVEL)?,
            decompress: DDict::try_create(&trained)?,
            generation,
            users: AtomicUsize::new(0),
        })
    }

    /// Number of the dictionary within its `DictionaryGroup`, from 1 to 253.
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// Bytes allocated for compression and decompression together.
    pub(super) fn bytes(&self) -> usize {
        self.compress.sizeof() + self.decompress.sizeof()
    }

    /// Replaces the contents of `into` with a zstd frame of `body`.
    pub(super) fn compress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut CCtx<'static>,
        into: &mut W,
        body: &[u8],
    ) -> SafeResult {
        context.compress_using_cdict(into, body, &self.compress)
    }

    /// Replaces the contents of `into` with the unpacked frame.
    pub(super) fn decompress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut DCtx<'static>,
        into: &mut W,
        frame: &[u8],
    ) -> SafeResult {
        context.decompress_using_ddict(into, frame, &self.decompress)
    }
}

impl DictionarySet {
    /// Counts one more packed object, if it needs a dictionary.
    pub(super) fn enter(&mut self, packed: &DetachedObject) {
        let Some(dictionary) = &packed.dictionary else { return };
        let generation = dictionary.generation;
        if let Some(held) = self.0.iter_mut().find(|it| it.dictionary.generation == generation) {
            held.records += 1;
            return;
        }
        dictionary.users.fetch_add(1, Ordering::Relaxed);
        self.0.push(DictionaryUseCount { dictionary: Arc::clone(dictionary), records: 1 });
    }

    /// Counts one packed object less. A dictionary that no counted object needs is dropped.
    pub(super) fn leave(&mut self, record: &PackedObject) {
        let BodyPacking::Dictionary(generation) = record.packing() else { return };
        self.0.retain_mut(|held| {
            if held.dictionary.generation == generation {
                held.records = held.records.saturating_sub(1);
            }
            held.records > 0
        });
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// Returns the dictionary of this packing, or `None` if the packing uses no dictionary.
    pub(super) fn get(&self, packing: BodyPacking) -> Option<&Arc<CompressionDictionary>> {
        let BodyPacking::Dictionary(generation) = packing else { return None };
        let mut all = self.0.iter().map(|held| &held.dictionary);
        all.find(|dictionary| dictionary.generation == generation)
    }

    /// Bytes charged to the owner: each dictionary's bytes divided by its number of users.
    pub(super) fn bytes(&self) -> usize {
        let share = |held: &DictionaryUseCount| {
            held.dictionary.bytes() / held.dictionary.users.load(Ordering::Relaxed).max(1)
        };
        self.0.iter().map(share).sum()
    }
}

impl Drop for DictionaryUseCount {
    fn drop(&mut self) {
        self.dictionary.users.fetch_sub(1, Ordering::Relaxed);
    }
}
