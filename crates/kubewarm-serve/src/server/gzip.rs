//! Compresses response bodies of more than 128 KiB with gzip if the client accepts gzip, as the API
//! server does. Compresses a list in pieces, so that the complete list is never in memory.

use crate::reads::{ListEncodingError, PIECE_BYTES};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{Stream, TryStreamExt as _, stream};
use std::{
    io::{self, Write as _},
    mem,
    num::NonZeroUsize,
    sync::LazyLock,
    thread,
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// The gzip level that the API server uses too. This level is the fastest, and gives most of the
/// reduction in size.
const LEVEL: Compression = Compression::fast();
/// From this size in bytes, a thread of the blocking pool compresses a piece of a body. On the
/// connection's own thread, a large piece would delay the other connections of this thread.
const LARGE: usize = 32 << 10;
/// Limits concurrent compressions of large body pieces to one per processor. More compressions at
/// once would delay the informers.
static COMPRESSIONS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, NonZeroUsize::get)));

type GzipEncoder = Box<GzEncoder<Vec<u8>>>;

/// Whether the value of the first `Accept-Encoding` header contains `gzip`. As in the API server,
/// `gzip` with a weight such as `gzip;q=1.0` does not count.
pub(super) fn accepts_gzip(accept_encoding: Option<&[u8]>) -> bool {
    let mut codings = accept_encoding.unwrap_or_default().split(|byte| *byte == b',');
    codings.any(|coding| coding.trim_ascii() == b"gzip")
}

/// Compresses the `pieces` of a response body to one gzip stream. To limit memory, the returned
/// stream requests the next piece only after hyper has received the previous compressed bytes. It
/// compresses a large object in slices, which share the object's permit: compressed at once, the
/// object would stay in memory without the permit.
pub(super) fn compressed<S>(pieces: S) -> impl Stream<Item = io::Result<Bytes>>
where
    S: Stream<Item = Result<Bytes, ListEncodingError>>,
{
    let encoder = Box::new(GzEncoder::new(Vec::new(), LEVEL));
    let state = (Box::pin(pieces), Some(encoder), Bytes::new());
    stream::try_unfold(state, |(mut pieces, encoder, mut piece)| async move {
        let Some(mut encoder) = encoder else { return Ok(None) };
        loop {
            if piece.is_empty() {
                let Some(next) = pieces.try_next().await.map_err(io::Error::other)? else { break };
                piece = next;
            }
            let slice = piece.split_to(piece.len().min(PIECE_BYTES));
            encoder = compress(encoder, slice).await?;
            let part = mem::take(encoder.get_mut());
            // The gzip encoder can buffer a short piece of a body completely and return no bytes.
            if !part.is_empty() {
                return Ok(Some((Bytes::from(part), (pieces, Some(encoder), piece))));
            }
        }
        let end = encoder.finish()?;
        Ok(Some((Bytes::from(end), (pieces, None, Bytes::new()))))
    })
}

/// Compresses `piece` with `encoder`: a small piece on this thread, a large piece on a
/// blocking-pool thread.
async fn compress(mut encoder: GzipEncoder, piece: Bytes) -> io::Result<GzipEncoder> {
    if piece.len() < LARGE {
        encoder.write_all(&piece)?;
        return Ok(encoder);
    }
    let _permit = COMPRESSIONS.acquire().await.ok();
    let writing = spawn_blocking(move || encoder.write_all(&piece).map(|()| encoder));
    writing.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use futures::StreamExt as _;
    use std::{cell::Cell, io::Read as _, pin::pin, rc::Rc, sync::Arc};

    fn unpacked(parts: &[Bytes]) -> Vec<u8> {
        let mut whole = Vec::new();
        GzDecoder::new(&*parts.concat()).read_to_end(&mut whole).unwrap();
        whole
    }

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        for (header, expected) in [
            (Some("gzip"), true),
            (Some("deflate, gzip"), true),
            (Some("br,gzip ,identity"), true),
            (Some("gzip;q=1.0"), false),
            (Some("gzip;q=0"), false),
            (Some("GZIP"), false),
            (Some("*"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(accepts_gzip(header.map(str::as_bytes)), expected, "{header:?}");
        }
    }

    #[tokio::test]
    async fn decompressed_bytes_equal_the_input() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut text = |length| -> Vec<u8> {
            std::iter::repeat_with(|| random.alphanumeric() as u8).take(length).collect()
        };
        let pieces = [text(10), text(LARGE + 1), Vec::new(), text(LARGE * 5), text(1_000)];
        let each = pieces.clone().into_iter().map(|piece| Ok(piece.into()));
        let parts: Vec<_> = compressed(stream::iter(each)).collect().await;
        let parts: Vec<_> = parts.into_iter().map(Result::unwrap).collect();
        assert!(parts.len() > 2 && parts.iter().all(|part| !part.is_empty()));
        assert_eq!(unpacked(&parts), pieces.concat());
    }

    #[tokio::test]
    async fn a_piece_is_polled_only_after_the_last_part_was_taken() {
        let asked = Rc::new(Cell::new(0));
        let counted = Rc::clone(&asked);
        let mut random = fastrand::Rng::with_seed(1);
        let pieces = (0..100).map(move |_| {
            counted.set(counted.get() + 1);
            Ok(std::iter::repeat_with(|| random.u8(..)).take(PIECE_BYTES).collect())
        });
        let mut parts = pin!(compressed(stream::iter(pieces)));
        for taken in 1..5 {
            parts.next().await.unwrap().unwrap();
            assert_eq!(asked.get(), taken);
        }
    }

    /// A large object with its permit.
    struct PermittedObject {
        bytes: Vec<u8>,
        _permit: Arc<()>,
    }

    impl AsRef<[u8]> for PermittedObject {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    #[tokio::test]
    async fn a_large_object_keeps_its_permit_until_its_last_slice_is_compressed() {
        let permit = Arc::new(());
        let mut random = fastrand::Rng::with_seed(1);
        let bytes = std::iter::repeat_with(|| random.u8(..)).take(PIECE_BYTES * 5).collect();
        let object = PermittedObject { bytes, _permit: Arc::clone(&permit) };
        let piece = Bytes::from_owner(object);
        let mut parts = pin!(compressed(stream::iter([Ok(piece)])));
        for _ in 0..4 {
            let part = parts.next().await.unwrap().unwrap();
            assert!(part.len() <= PIECE_BYTES + PIECE_BYTES / 8, "{}", part.len());
            assert_eq!(Arc::strong_count(&permit), 2);
        }
        while parts.next().await.is_some() {}
        assert_eq!(Arc::strong_count(&permit), 1);
    }

    #[tokio::test]
    async fn a_truncated_list_gives_an_incomplete_gzip_stream() {
        let pieces = [
            Ok(vec![b'x'; LARGE].into()),
            Err(ListEncodingError::AccessLost),
            Ok(vec![b'y'; LARGE].into()),
        ];
        let parts: Vec<_> = compressed(stream::iter(pieces)).collect().await;
        assert!(parts.last().unwrap().is_err());
        let sent: Vec<_> = parts.into_iter().filter_map(Result::ok).collect();
        let mut whole = Vec::new();
        let end = GzDecoder::new(&*sent.concat()).read_to_end(&mut whole);
        assert!(end.is_err());
    }
}
