//! Bodies as gzip, as the API server compresses them: what is longer than 128 KiB, for those who take it. A piece
//! at a time, so that a list is never held whole.

use crate::reads::Cut;
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

/// The API server's level: most of what there is to gain, for the least time.
const LEVEL: Compression = Compression::fast();
/// A piece from here on is compressed by another thread: it takes longer than all that is done for most requests,
/// and everybody whose connection lives on this one would wait.
const LARGE: usize = 32 << 10;
/// Pieces that are compressed at once, whoever they are for: the processors have tables to keep warm, too.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, NonZeroUsize::get)));

type Encoder = Box<GzEncoder<Vec<u8>>>;

/// Whether a client takes gzip, by its first `Accept-Encoding`. As the API server reads it: weights are not known.
pub(super) fn is_taken(accept_encoding: Option<&[u8]>) -> bool {
    let mut codings = accept_encoding.unwrap_or_default().split(|byte| *byte == b',');
    codings.any(|coding| coding.trim_ascii() == b"gzip")
}

/// `pieces` as one gzip stream. Polls for the next piece once the compressed part before it is taken.
pub(super) fn compressed<S>(pieces: S) -> impl Stream<Item = io::Result<Bytes>>
where
    S: Stream<Item = Result<Bytes, Cut>>,
{
    let encoder = Box::new(GzEncoder::new(Vec::new(), LEVEL));
    stream::try_unfold((Box::pin(pieces), Some(encoder)), |(mut pieces, encoder)| async move {
        let Some(mut encoder) = encoder else { return Ok(None) };
        while let Some(piece) = pieces.try_next().await.map_err(io::Error::other)? {
            encoder = compress(encoder, piece).await?;
            let part = mem::take(encoder.get_mut());
            // The encoder may keep all of a short piece for later.
            if !part.is_empty() {
                return Ok(Some((Bytes::from(part), (pieces, Some(encoder)))));
            }
        }
        let end = encoder.finish()?;
        Ok(Some((Bytes::from(end), (pieces, None))))
    })
}

/// Writes `piece` to `encoder`, which the result returns.
async fn compress(mut encoder: Encoder, piece: Bytes) -> io::Result<Encoder> {
    if piece.len() < LARGE {
        encoder.write_all(&piece)?;
        return Ok(encoder);
    }
    // Never closed.
    let _turn = TURNS.acquire().await.ok();
    let writing = spawn_blocking(move || encoder.write_all(&piece).map(|()| encoder));
    writing.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use futures::StreamExt as _;
    use std::{cell::Cell, io::Read as _, pin::pin, rc::Rc};

    fn unpacked(parts: &[Bytes]) -> Vec<u8> {
        let mut whole = Vec::new();
        GzDecoder::new(&*parts.concat()).read_to_end(&mut whole).unwrap();
        whole
    }

    #[test]
    fn gzip_is_taken_by_those_who_name_it() {
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
            assert_eq!(is_taken(header.map(str::as_bytes)), expected, "{header:?}");
        }
    }

    #[tokio::test]
    async fn what_is_compressed_is_what_was_written() {
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
    async fn a_piece_is_asked_for_when_the_last_has_been_taken() {
        let asked = Rc::new(Cell::new(0));
        let counted = Rc::clone(&asked);
        let mut random = fastrand::Rng::with_seed(1);
        let pieces = (0..100).map(move |_| {
            counted.set(counted.get() + 1);
            Ok(std::iter::repeat_with(|| random.u8(..)).take(LARGE * 4).collect())
        });
        let mut parts = pin!(compressed(stream::iter(pieces)));
        for taken in 1..5 {
            parts.next().await.unwrap().unwrap();
            assert_eq!(asked.get(), taken);
        }
    }

    #[tokio::test]
    async fn a_list_that_is_cut_is_cut_here() {
        let pieces = [Ok(vec![b'x'; LARGE].into()), Err(Cut), Ok(vec![b'y'; LARGE].into())];
        let parts: Vec<_> = compressed(stream::iter(pieces)).collect().await;
        assert!(parts.last().unwrap().is_err());
        let sent: Vec<_> = parts.into_iter().filter_map(Result::ok).collect();
        let mut whole = Vec::new();
        let end = GzDecoder::new(&*sent.concat()).read_to_end(&mut whole);
        assert!(end.is_err(), "half of it does not look like all of it");
    }
}
