//! Dictionaries: what the objects of one kind have in common, so that records need not repeat it.

use super::codec::LEVEL;
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, SafeResult, WriteBuf};

/// One trained dictionary, ready for both directions. Shared by the tables of its kind, and kept as
/// long as one record needs it.
pub(super) struct Dictionary {
    compress: CDict<'static>,
    decompress: DDict<'static>,
    generation: u8,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary").field("generation", &self.generation).finish_non_exhaustive()
    }
}

#[expect(dead_code, reason = "the next commit trains them")]
impl Dictionary {
    /// Of trained bytes; `None` if zstd does not take them.
    pub(super) fn new(bytes: &[u8], generation: u8) -> Option<Self> {
        let mut bytes = bytes.to_vec();
        // The number that a trained dictionary carries would be repeated in every frame; rows know
        // their dictionary already.
        bytes.get_mut(4..8)?.fill(0);
        Some(Self {
            compress: CDict::try_create(&bytes, LEVEL)?,
            decompress: DDict::try_create(&bytes)?,
            generation,
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
