//! Packs bodies and unpacks them, with contexts that all tables share.

use super::{
    dictionary::Dictionary,
    record::{Packing, Record, Undecodable},
};
use parking_lot::Mutex;
use std::sync::Arc;
use zstd::zstd_safe::{self, CCtx, DCtx};

/// Bodies above this stay as they are, and no frame may claim more: the API server's own limit for
/// one object is 1.5 MiB in etcd, a few times that over the wire.
pub(super) const MAX_BODY: usize = 256 << 20;

/// Level 1: with a dictionary, higher ones cost more and save nothing (docs/performance.md).
pub(super) const LEVEL: i32 = 1;

/// Bodies below this are not worth a frame of their own.
const TINY: usize = 64;

/// Contexts kept while idle: a context weighs some hundred KiB, and there are rarely more threads
/// at work in the store than this.
const IDLE_CONTEXTS: usize = 4;

/// Scratch memory that a context keeps between uses; a huge object's is given back.
const SCRATCH_BYTES: usize = 256 << 10;

/// What every zstd frame begins with; not stored.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The contexts of the process. Tables hold none of their own, so an idle table costs nothing here.
#[derive(Clone, Debug, Default)]
pub(super) struct Codec {
    idle: Arc<Mutex<Vec<Context>>>,
}

/// Memory to pack and unpack with.
pub(super) struct Context {
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
    packed: Vec<u8>,
    frame: Vec<u8>,
    /// For whoever holds the context: a body that was unpacked only to look into it.
    pub(super) body: Vec<u8>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Codec {
    /// Runs `work` with a context of its own.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Context) -> T) -> T {
        let idle = self.idle.lock().pop();
        let mut context = idle.unwrap_or_else(Context::new);
        let answer = work(&mut context);
        for scratch in [&mut context.packed, &mut context.frame, &mut context.body] {
            scratch.clear();
            scratch.shrink_to(SCRATCH_BYTES);
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONTEXTS {
            idle.push(context);
        }
        answer
    }
}

impl Context {
    fn new() -> Self {
        Self {
            compress: CCtx::create(),
            decompress: DCtx::create(),
            packed: Vec::new(),
            frame: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Packs a body, with the dictionary if there is one, into exactly the memory it needs.
    pub(super) fn pack(&mut self, name: &str, body: &[u8], with: Option<&Dictionary>) -> Record {
        if body.len() >= TINY && body.len() <= MAX_BODY {
            self.packed.clear();
            self.packed.reserve(zstd_safe::compress_bound(body.len()));
            let packed = match with {
                Some(dictionary) => dictionary.compress(&mut self.compress, &mut self.packed, body),
                None => self.compress.compress(&mut self.packed, body, LEVEL),
            };
            let packing = with.map_or(Packing::Zstd, |with| Packing::Dictionary(with.generation()));
            if packed.is_ok()
                && let Some(frame) = self.packed.strip_prefix(&MAGIC)
                && frame.len() < body.len()
            {
                return Record::new(name, packing, frame);
            }
        }
        Record::new(name, Packing::Plain, body)
    }

    /// Unpacks a body into `into`, whose contents go.
    ///
    /// # Errors
    ///
    /// [`Undecodable`]; `into` then holds nothing of use.
    pub(super) fn unpack(
        &mut self,
        packing: Packing,
        packed: &[u8],
        with: Option<&Dictionary>,
        into: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        into.clear();
        if packing == Packing::Plain {
            into.extend_from_slice(packed);
            return Ok(());
        }
        self.frame.clear();
        self.frame.extend_from_slice(&MAGIC);
        self.frame.extend_from_slice(packed);
        let size = zstd_safe::get_frame_content_size(&self.frame).ok().flatten();
        let size = size.ok_or(Undecodable::Frame)?;
        let size = usize::try_from(size).ok().filter(|&size| size <= MAX_BODY);
        let size = size.ok_or(Undecodable::Size)?;
        into.try_reserve_exact(size).map_err(|_| Undecodable::Size)?;
        let written = match (packing, with) {
            (Packing::Dictionary(_), Some(dictionary)) => {
                dictionary.decompress(&mut self.decompress, into, &self.frame)
            }
            (Packing::Dictionary(generation), None) => {
                return Err(Undecodable::Dictionary(generation));
            }
            (Packing::Plain | Packing::Zstd, _) => self.decompress.decompress(into, &self.frame),
        };
        match written {
            Ok(written) if written == size => Ok(()),
            Ok(_) | Err(_) => Err(Undecodable::Frame),
        }
    }
}
