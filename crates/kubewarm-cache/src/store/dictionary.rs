//! Dictionaries: what the objects of one kind have in common, so that records need not repeat it.

use super::codec::LEVEL;
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
    /// Tables with records that need it.
    tables: AtomicUsize,
}

/// The dictionaries that the records of one table need: rarely more than one.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    dictionary: Arc<Dictionary>,
    rows: usize,
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
            tables: AtomicUsize::new(0),
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
    /// Counts one more record that needs `dictionary`.
    pub(super) fn enter(&mut self, dictionary: &Arc<Dictionary>) {
        let generation = dictionary.generation;
        if let Some(held) = self.held.iter_mut().find(|h| h.dictionary.generation == generation) {
            held.rows += 1;
            return;
        }
        dictionary.tables.fetch_add(1, Ordering::Relaxed);
        self.held.push(Held { dictionary: Arc::clone(dictionary), rows: 1 });
    }

    /// Counts one record less; a dictionary that no record needs is let go.
    pub(super) fn leave(&mut self, generation: u8) {
        let held = self.held.iter().position(|held| held.dictionary.generation == generation);
        let Some(at) = held else { return };
        if let Some(held) = self.held.get_mut(at) {
            held.rows = held.rows.saturating_sub(1);
            if held.rows == 0 {
                self.held.swap_remove(at);
            }
        }
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// The dictionary of this generation.
    pub(super) fn get(&self, generation: u8) -> Option<&Arc<Dictionary>> {
        let all = self.held.iter().map(|held| &held.dictionary);
        all.into_iter().find(|dictionary| dictionary.generation == generation)
    }

    /// This table's share: each dictionary's bytes divided by the tables that hold it.
    pub(super) fn bytes(&self) -> usize {
        let share = |held: &Held| {
            held.dictionary.bytes() / held.dictionary.tables.load(Ordering::Relaxed).max(1)
        };
        self.held.iter().map(share).sum()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.dictionary.tables.fetch_sub(1, Ordering::Relaxed);
    }
}
