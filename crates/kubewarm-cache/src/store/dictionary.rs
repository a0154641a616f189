//! Dictionaries: what the objects of one kind have in common, so that records need not repeat it.

use super::{
    codec::LEVEL,
    record::{PackedRecord, Packing, Record},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, SafeResult, WriteBuf};

/// One trained dictionary, ready for both directions. Shared by the tables of its kind, and kept as
/// long as one record needs it.
pub(super) struct Dictionary {
    compress: CDict<'static>,
    decompress: DDict<'static>,
    generation: u8,
    /// How many [`Dictionaries`] have it.
    users: AtomicUsize,
}

/// The dictionaries of the records in a table's rows, or in its event log. Usually there is one.
#[derive(Debug, Default)]
pub(super) struct Dictionaries(Vec<DictionaryUse>);

#[derive(Debug)]
struct DictionaryUse {
    dictionary: Arc<Dictionary>,
    records: usize,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Dictionary {
    /// Of trained bytes; `None` if zstd does not take them.
    pub(super) fn new(mut trained: Vec<u8>, generation: u8) -> Option<Self> {
        // The number that a trained dictionary carries would be repeated in every frame; records
        // know their dictionary already.
        trained.get_mut(4..8)?.fill(0);
        Some(Self {
            compress: CDict::try_create(&trained, LEVEL)?,
            decompress: DDict::try_create(&trained)?,
            generation,
            users: AtomicUsize::new(0),
        })
    }

    /// Which of its kind's dictionaries this is; 1 and up.
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// Bytes allocated, both directions together.
    pub(super) fn bytes(&self) -> usize {
        self.compress.sizeof() + self.decompress.sizeof()
    }

    /// Writes a frame over what `into` holds.
    pub(super) fn compress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut CCtx<'static>,
        into: &mut W,
        body: &[u8],
    ) -> SafeResult {
        context.compress_using_cdict(into, body, &self.compress)
    }

    /// Writes a frame's contents over what `into` holds.
    pub(super) fn decompress<W: WriteBuf + ?Sized>(
        &self,
        context: &mut DCtx<'static>,
        into: &mut W,
        frame: &[u8],
    ) -> SafeResult {
        context.decompress_using_ddict(into, frame, &self.decompress)
    }
}

impl Dictionaries {
    /// Counts one more record.
    pub(super) fn enter(&mut self, packed: &PackedRecord) {
        let Some(dictionary) = &packed.dictionary else { return };
        let generation = dictionary.generation;
        if let Some(held) = self.0.iter_mut().find(|it| it.dictionary.generation == generation) {
            held.records += 1;
            return;
        }
        dictionary.users.fetch_add(1, Ordering::Relaxed);
        self.0.push(DictionaryUse { dictionary: Arc::clone(dictionary), records: 1 });
    }

    /// Counts one record less; a dictionary that no record needs is dropped.
    pub(super) fn leave(&mut self, record: &Record) {
        let Packing::Dictionary(generation) = record.packing() else { return };
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

    /// The dictionary that a record of this packing needs.
    pub(super) fn get(&self, packing: Packing) -> Option<&Arc<Dictionary>> {
        let Packing::Dictionary(generation) = packing else { return None };
        let mut all = self.0.iter().map(|held| &held.dictionary);
        all.find(|dictionary| dictionary.generation == generation)
    }

    /// The share of these users: each dictionary's bytes divided by its number of users.
    pub(super) fn bytes(&self) -> usize {
        let share = |held: &DictionaryUse| {
            held.dictionary.bytes() / held.dictionary.users.load(Ordering::Relaxed).max(1)
        };
        self.0.iter().map(share).sum()
    }
}

impl Drop for DictionaryUse {
    fn drop(&mut self) {
        self.dictionary.users.fetch_sub(1, Ordering::Relaxed);
    }
}
