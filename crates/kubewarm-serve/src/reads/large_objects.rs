//! Limits the memory of large objects in the responses of one user.
//!
//! kubewarm encodes a response in pieces of [`PIECE_BYTES`], but never splits an object between two
//! encodings. So a client that reads slowly can make kubewarm keep a whole object for each of its
//! requests. A response with a large object therefore waits for permits before kubewarm
//! decompresses the object, and the encoded bytes keep the permits.

use super::read_response::PIECE_BYTES;
use crate::callers::PERMIT_BYTES;
use bytes::Bytes;
use kubewarm_api::model::ObjectEncoding;
use kubewarm_client::{KeyedPermit, SemaphoreShare};
use kubewarm_wire::MediaType;

/// The maximum number of bytes that JSON has for one byte of protobuf: in a string, JSON needs six
/// bytes (`\u0001`) for a control character.
const JSON_BYTES_PER_BYTE: usize = 6;

/// The permits of one user for large objects.
#[derive(Clone, Debug)]
pub struct LargeObjectPermits(SemaphoreShare);

/// The permits of one response for large objects.
#[derive(Clone, Debug)]
pub(super) struct ResponseObjectPermits {
    permits: LargeObjectPermits,
    /// The maximum number of encoded bytes for one byte of a stored object.
    growth: usize,
}

/// Encoded bytes that keep the permit of a large object. `B` is `Vec<u8>`, or `Bytes` that watches
/// share.
struct CountedBytes<B> {
    bytes: B,
    _permit: KeyedPermit,
}

impl LargeObjectPermits {
    /// Each permit of `share` covers [`PERMIT_BYTES`] bytes of memory.
    pub const fn new(share: SemaphoreShare) -> Self {
        Self(share)
    }

    /// The permits of a response whose objects are stored in `encoding` and sent as `media_type`.
    pub(super) fn of_response(
        &self,
        encoding: ObjectEncoding,
        media_type: MediaType,
    ) -> ResponseObjectPermits {
        let growth = match (encoding, media_type) {
            (ObjectEncoding::Protobuf(_), MediaType::Json) => JSON_BYTES_PER_BYTE,
            (ObjectEncoding::Protobuf(_), MediaType::Protobuf) | (ObjectEncoding::Json, _) => 1,
        };
        ResponseObjectPermits { permits: self.clone(), growth }
    }
}

impl ResponseObjectPermits {
    /// The length of the longest stored object that needs no permit, because its encoding has at
    /// most [`PIECE_BYTES`].
    pub(super) const fn small_length(&self) -> usize {
        PIECE_BYTES / self.growth
    }

    /// Waits until the memory for the encoding of an object of `stored` bytes is free. Returns
    /// `None` at once if the object needs no permit. Cancel safe.
    ///
    /// The wait has no time limit, but each holder of permits either reads its response at the
    /// minimum rate, or kubewarm closes its connection.
    pub(super) async fn acquire(&self, stored: usize) -> Option<KeyedPermit> {
        if stored <= self.small_length() {
            return None;
        }
        let bytes = stored.saturating_mul(self.growth);
        self.permits.0.acquire(bytes.div_ceil(PERMIT_BYTES)).await
    }
}

/// Returns `bytes`, which keep `permit` until the last reference to them is dropped. Releases the
/// permit if the bytes are not more than a piece, such as the row of a `Table`.
pub(super) fn counted<B>(bytes: B, permit: Option<KeyedPermit>) -> Bytes
where
    B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
{
    match permit {
        Some(permit) if bytes.as_ref().len() > PIECE_BYTES => {
            Bytes::from_owner(CountedBytes { bytes, _permit: permit })
        }
        Some(_) | None => bytes.into(),
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for CountedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}
