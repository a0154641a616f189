//! Compresses and decompresses objects with zstd. All stores of one `StoreCatalog` share the zstd
//! contexts (the states of compressors and decompressors).

use super::{
    dictionary::CompressionDictionary,
    packed_object::{BodyCompression, DetachedObject, PackedObject},
    template_set::SharedTemplate,
};
use kubewarm_wire::ObjectBody;
use parking_lot::Mutex;
use std::{mem, sync::Arc};
use zstd::zstd_safe::{self, CCtx, DCtx};

/// Maximum size of an object that a store compresses, in bytes. A larger object stays uncompressed.
/// So a zstd frame that declares a larger size is damaged, and `unpack` rejects the frame before it
/// allocates memory.
///
/// etcd accepts at most 1.5 MiB for one object by default. The same object as JSON can be a few
/// times larger.
pub(super) const MAX_BODY: usize = 256 << 20;

/// Compression level of zstd. With a dictionary, a higher level takes more time and saves no
/// memory.
pub(super) const LEVEL: i32 = 1;

/// An object below this size, in bytes, stays uncompressed, because compression would save nothing.
const MIN_COMPRESSED_BYTES: usize = 64;

/// Maximum number of idle zstd contexts in memory. A context takes some hundred KiB, and more than
/// four threads rarely use contexts at once.
const IDLE_CONTEXTS: usize = 4;

/// Maximum bytes that each scratch buffer of an idle zstd context keeps. The rest is freed, so that
/// one large object does not occupy memory afterwards.
const SCRATCH_BYTES: usize = 256 << 10;

/// Every zstd frame begins with this magic number. The store leaves it out of its frames, which
/// saves 4 bytes for each object.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Maximum size of the head of a zstd frame behind [`MAGIC`], in bytes (RFC 8878, section 3.1.1.1).
const FRAME_HEAD: usize = 14;

/// The zstd contexts that no thread is using. A store takes a context from this pool only while it
/// compresses or decompresses. So an idle store needs no memory for contexts.
#[derive(Clone, Debug, Default)]
pub(super) struct CompressionContextPool {
    idle: Arc<Mutex<Vec<CompressionContext>>>,
}

/// A zstd compressor and a zstd decompressor, with their scratch buffers.
pub(super) struct CompressionContext {
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
    packed: Vec<u8>,
    pub(super) frame: Vec<u8>,
    /// Scratch buffer for one decompressed body.
    body: Vec<u8>,
    /// Scratch buffer for one reduced body (an object without the part of its managedFields that
    /// its template contains).
    pub(super) reduced: Vec<u8>,
}

impl std::fmt::Debug for CompressionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompressionContext").finish_non_exhaustive()
    }
}

impl CompressionContextPool {
    /// Runs `work` with a zstd context that no other thread uses. `work` also receives an empty
    /// scratch buffer for a decompressed object.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut CompressionContext, &mut Vec<u8>) -> T,
    ) -> T {
        let idle = self.idle.lock().pop();
        let mut context = idle.unwrap_or_else(CompressionContext::new);
        let mut body = mem::take(&mut context.body);
        let answer = work(&mut context, &mut body);
        context.body = body;
        let CompressionContext { packed, frame, body, reduced, .. } = &mut context;
        for scratch in [packed, frame, body, reduced] {
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

impl CompressionContext {
    fn new() -> Self {
        Self {
            compress: CCtx::create(),
            decompress: DCtx::create(),
            packed: Vec::new(),
            frame: Vec::new(),
            body: Vec::new(),
            reduced: Vec::new(),
        }
    }

    /// Compresses the bytes of an object, with the dictionary `with` or without a dictionary. With
    /// a `template`, these are the bytes of the reduced body (the object without the part of its
    /// managedFields that the template contains). The body stays uncompressed if it does not
    /// shrink, or if its size is below [`MIN_COMPRESSED_BYTES`] or above [`MAX_BODY`].
    pub(super) fn pack(
        &mut self,
        name: &str,
        body: ObjectBody<'_>,
        with: Option<&Arc<CompressionDictionary>>,
        template: Option<Arc<SharedTemplate>>,
    ) -> DetachedObject {
        let ObjectBody { encoding, bytes: body } = body;
        if body.len() >= MIN_COMPRESSED_BYTES && body.len() <= MAX_BODY {
            self.packed.clear();
            self.packed.reserve(zstd_safe::compress_bound(body.len()));
            let packed = match with {
                Some(dictionary) => dictionary.compress(&mut self.compress, &mut self.packed, body),
                None => self.compress.compress(&mut self.packed, body, LEVEL),
            };
            let packing = with.map_or(BodyCompression::Zstd, |with| {
                BodyCompression::Dictionary(with.generation())
            });
            if packed.is_ok()
                && let Some(frame) = self.packed.strip_prefix(&MAGIC)
                && frame.len() < body.len()
            {
                let record = PackedObject::new(name, packing, template, frame);
                return DetachedObject { record, dictionary: with.map(Arc::clone), encoding };
            }
        }
        DetachedObject {
            record: PackedObject::new(name, BodyCompression::None, template, body),
            dictionary: None,
            encoding,
        }
    }

    /// Decompresses the object `record`, and replaces the contents of `into` with its bytes.
    ///
    /// # Errors
    ///
    /// Returns the reason if the object cannot be decompressed. `into` then contains no usable
    /// bytes.
    pub(super) fn unpack(
        &mut self,
        record: &PackedObject,
        with: Option<&CompressionDictionary>,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let Some(shared) = record.template() else { return self.decompress(record, with, into) };
        let mut reduced = mem::take(&mut self.reduced);
        let joined = self.decompress(record, with, &mut reduced).and_then(|()| {
            shared
                .template
                .join(&reduced, into)
                .ok_or("its template does not match, or there is no memory")
        });
        self.reduced = reduced;
        joined
    }

    /// Decompresses the packed bytes of `record` like [`CompressionContext::unpack`]. But if the
    /// object has a template, `into` then contains only the reduced body (the object without the
    /// part of its managedFields that the template contains).
    pub(super) fn decompress(
        &mut self,
        record: &PackedObject,
        with: Option<&CompressionDictionary>,
        into: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        into.clear();
        let packing = record.packing();
        match packing {
            BodyCompression::None | BodyCompression::Secret => {
                into.extend_from_slice(record.packed());
                return Ok(());
            }
            BodyCompression::Zstd | BodyCompression::Dictionary(_) => {}
        }
        let size = decompressed_length(record)?;
        self.frame.clear();
        self.frame.extend_from_slice(&MAGIC);
        self.frame.extend_from_slice(record.packed());
        into.try_reserve_exact(size).map_err(|_| "there is no memory for the body")?;
        let written = match (packing, with) {
            (BodyCompression::Dictionary(_), Some(dictionary)) => {
                dictionary.decompress(&mut self.decompress, into, &self.frame)
            }
            (BodyCompression::Dictionary(_), None) => return Err("its dictionary is missing"),
            (BodyCompression::None | BodyCompression::Secret | BodyCompression::Zstd, _) => {
                self.decompress.decompress(into, &self.frame)
            }
        };
        if written.is_ok_and(|written| written == size) {
            Ok(())
        } else {
            Err("the frame is damaged")
        }
    }
}

/// Returns the number of bytes of the object `record`. Reads it from the head of the zstd frame,
/// and decompresses nothing.
///
/// # Errors
///
/// Returns the reason if the head is damaged.
pub(super) fn body_length(record: &PackedObject) -> Result<usize, &'static str> {
    let removed = record.template().map_or(0, |shared| shared.template.removed());
    Ok(decompressed_length(record)? + removed)
}

fn decompressed_length(record: &PackedObject) -> Result<usize, &'static str> {
    let packed = record.packed();
    if matches!(record.packing(), BodyCompression::None | BodyCompression::Secret) {
        return Ok(packed.len());
    }
    let mut head = [0; MAGIC.len() + FRAME_HEAD];
    for (to, from) in head.iter_mut().zip(MAGIC.iter().chain(packed)) {
        *to = *from;
    }
    let head = head.get(..MAGIC.len() + packed.len().min(FRAME_HEAD)).unwrap_or_default();
    let size = zstd_safe::get_frame_content_size(head).ok().flatten();
    let size = size.ok_or("the frame has no size")?;
    let size = usize::try_from(size).ok().filter(|&size| size <= MAX_BODY);
    size.ok_or("the frame has a size beyond the limit of 256 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trained() -> Arc<CompressionDictionary> {
        let mut samples = Vec::new();
        let mut sizes = Vec::new();
        for n in 0..400_u32 {
            let number = n.wrapping_mul(0x9e37_79b9);
            let body = format!(
                r#"{{"metadata":{{"name":"app-{number}","labels":{{"app":"a{n}"}}}},"spec":{{"nodeName":"node-{}"}}}}"#,
                number % 7
            );
            sizes.push(body.len());
            samples.extend_from_slice(body.as_bytes());
        }
        let mut bytes = Vec::with_capacity(4096);
        zstd_safe::train_from_buffer(&mut bytes, &samples, &sizes).unwrap();
        Arc::new(CompressionDictionary::trained(bytes, 1).unwrap())
    }

    fn of_content() -> Arc<CompressionDictionary> {
        let objects =
            r#"{"metadata":{"name":"app-7","labels":{"app":"a7"}},"spec":{"nodeName":"node-7"}}"#;
        let dictionary = CompressionDictionary::of_content(objects.as_bytes().to_vec(), 1);
        Arc::new(dictionary.unwrap())
    }

    fn round_trip(
        body: &[u8],
        with: Option<&Arc<CompressionDictionary>>,
    ) -> (PackedObject, Vec<u8>) {
        CompressionContextPool::default().with(|context, _| {
            let body = ObjectBody::json(body);
            let DetachedObject { record, dictionary, .. } = context.pack("x", body, with, None);
            let mut back = b"left over".to_vec();
            context.unpack(&record, dictionary.as_deref(), &mut back).unwrap();
            assert_eq!(body_length(&record), Ok(back.len()));
            (record, back)
        })
    }

    #[test]
    fn a_dictionary_makes_packed_bodies_smaller() {
        let body =
            r#"{"metadata":{"name":"app-1","labels":{"app":"a1"}},"spec":{"nodeName":"node-9"}}"#;
        let (plain, _) = round_trip(body.as_bytes(), None);
        for with in [trained(), of_content()] {
            let (record, back) = round_trip(body.as_bytes(), Some(&with));
            assert_eq!(back, body.as_bytes());
            assert_eq!(record.packing(), BodyCompression::Dictionary(1));
            let (packed, plain) = (record.packed().len(), plain.packed().len());
            assert!(packed * 2 < plain, "{packed} {plain}");
        }
    }

    #[test]
    fn objects_that_zstd_would_take_for_a_trained_dictionary_are_none() {
        let forged = [&[0x37, 0xa4, 0x30, 0xec][..], &[b'a'; 200]].concat();
        assert!(CompressionDictionary::of_content(forged.clone(), 1).is_none());
        assert!(CompressionDictionary::of_content(forged[1..].to_vec(), 1).is_some());
    }

    #[test]
    fn small_or_random_bodies_stay_uncompressed() {
        let random: Vec<u8> =
            (0..200_u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        for body in [&b"{}"[..], b"", &[b'a'; MIN_COMPRESSED_BYTES - 1], &random] {
            let (record, back) = round_trip(body, Some(&trained()));
            assert_eq!((record.packing(), &*back), (BodyCompression::None, body));
        }
    }

    #[test]
    fn damaged_frames_are_an_error() {
        let body = "a body that is long enough to be packed, ".repeat(8);
        let with = trained();
        let (record, _) = round_trip(body.as_bytes(), Some(&with));
        CompressionContextPool::default().with(|context, into| {
            for length in 0..record.packed().len() {
                let cut =
                    PackedObject::new("x", record.packing(), None, &record.packed()[..length]);
                assert!(context.unpack(&cut, Some(&with), into).is_err(), "{length}");
            }
            assert_eq!(context.unpack(&record, None, into), Err("its dictionary is missing"));
            // The zstd frame declares a single segment of 2^63 bytes. `unpack` rejects it before it
            // allocates memory.
            let huge = [0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0];
            let huge = PackedObject::new("x", BodyCompression::Zstd, None, &huge);
            let refused = context.unpack(&huge, None, into).unwrap_err();
            assert!(refused.contains("limit"), "{refused}");
        });
    }

    #[test]
    fn idle_contexts_are_reused_and_bounded() {
        let contexts = CompressionContextPool::default();
        contexts.with(|_, _| {
            contexts
                .with(|_, _| contexts.with(|_, _| contexts.with(|_, _| contexts.with(|_, _| ()))));
        });
        assert_eq!(contexts.idle.lock().len(), IDLE_CONTEXTS);
        contexts.with(|_, body| body.reserve(1 << 20));
        assert!(
            contexts.idle.lock().iter().all(|context| context.body.capacity() <= SCRATCH_BYTES)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_body_unpacks_unchanged(body: Vec<u8>, text in "[a-c\":{}]{0,2000}", form in 0..3_usize) {
            let with = [None, Some(trained()), Some(of_content())][form].clone();
            prop_assert_eq!(round_trip(&body, with.as_ref()).1, body);
            prop_assert_eq!(round_trip(text.as_bytes(), with.as_ref()).1, text.as_bytes());
        }

        #[test]
        fn arbitrary_bytes_unpack_or_return_an_error(packed: Vec<u8>) {
            for with in [trained(), of_content()] {
                CompressionContextPool::default().with(|context, into| {
                    for packing in [BodyCompression::None, BodyCompression::Zstd, BodyCompression::Dictionary(1)] {
                        let record = PackedObject::new("x", packing, None, &packed);
                        let _ = context.unpack(&record, Some(&with), into);
                    }
                });
            }
        }
    }
}
