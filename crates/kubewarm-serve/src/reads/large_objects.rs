//! Limits the memory of large objects in the responses of one user.
//!
//! kubewarm encodes a response in pieces of [`PIECE_BYTES`], but never splits an object between two
//! encodings. So a client that reads slowly can make kubewarm keep a whole object for each of its
//! requests. A response with a large object therefore waits for permits, and has nothing of the
//! object in memory while it waits. The encoded bytes then keep the permits.

use super::read_response::PIECE_BYTES;
use crate::callers::{PERMIT_BYTES, UserPermits};
use bytes::Bytes;
use kubewarm_api::model::ObjectEncoding;
use kubewarm_client::KeyedPermit;
use kubewarm_wire::MediaType;

/// The number of bytes in JSON for each byte of protobuf that a permit covers: in a string, JSON
/// needs six bytes (`\u0001`) for a control character. A message of only numbers and booleans can
/// grow more, and its permit covers only a part of the difference.
const JSON_BYTES_PER_BYTE: usize = 6;

/// The permits of one response for large objects.
#[derive(Clone, Debug)]
pub(super) struct LargeObjectPermits {
    permits: UserPermits,
    /// The maximum number of encoded bytes for one byte of a stored object.
    growth: usize,
}

/// The permit to encode one large object.
#[derive(Debug)]
pub(super) struct ObjectPermit {
    permit: KeyedPermit,
    /// The number of permits that the response asked for. `permit` can have fewer, because an
    /// object can be larger than the user's part.
    count: usize,
}

/// The memory for an object is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryInUse;

/// Encoded bytes that keep the permit of a large object.
struct PermittedBytes {
    bytes: Bytes,
    _permit: KeyedPermit,
}

impl LargeObjectPermits {
    /// The permits of a response whose objects are stored in `encoding` and sent as `media_type`.
    /// Each permit of `permits` covers [`PERMIT_BYTES`] bytes of memory.
    pub(super) fn new(
        permits: &UserPermits,
        encoding: ObjectEncoding,
        media_type: MediaType,
    ) -> Self {
        let growth = match (encoding, media_type) {
            (ObjectEncoding::Protobuf(_), MediaType::Json) => JSON_BYTES_PER_BYTE,
            (ObjectEncoding::Protobuf(_), MediaType::Protobuf) | (ObjectEncoding::Json, _) => 1,
        };
        Self { permits: permits.clone(), growth }
    }

    /// The length of the longest stored object that needs no permit, because its encoding has at
    /// most [`PIECE_BYTES`].
    pub(super) const fn small_length(&self) -> usize {
        PIECE_BYTES / self.growth
    }

    /// Whether kubewarm may encode an object of `stored` bytes with `permit`.
    pub(super) fn suffices(&self, permit: Option<&ObjectPermit>, stored: usize) -> bool {
        let held = permit.map_or(0, |permit| permit.count);
        self.count(stored).is_none_or(|count| count <= held)
    }

    /// Waits until the memory for the encoding of an object of `stored` bytes is free. Returns
    /// `None` at once if the object needs no permit. Cancel safe.
    ///
    /// The wait has no time limit, but kubewarm closes the connections of the permits' holders if
    /// they read too slowly.
    pub(super) fn acquire(
        &self,
        stored: usize,
    ) -> impl Future<Output = Option<ObjectPermit>> + Send + use<> {
        let (permits, count) = (self.permits.clone(), self.count(stored));
        async move {
            let count = count?;
            permits.acquire(count).await.map(|permit| ObjectPermit { permit, count })
        }
    }

    /// Returns the permit for an object of `stored` bytes, or `None` if the object needs no permit.
    /// Uses the permit `held` if it suffices, and otherwise releases it.
    ///
    /// # Errors
    ///
    /// [`MemoryInUse`] if the response must wait for the permit.
    pub(super) fn acquire_now(
        &self,
        stored: usize,
        held: Option<ObjectPermit>,
    ) -> Result<Option<ObjectPermit>, MemoryInUse> {
        let Some(count) = self.count(stored) else { return Ok(None) };
        if let Some(held) = held.filter(|held| held.count >= count) {
            return Ok(Some(held));
        }
        let permit = self.permits.acquire_now(count).map_err(|_exhausted| MemoryInUse)?;
        Ok(Some(ObjectPermit { permit, count }))
    }

    /// The number of permits for an object of this length; `None` if it needs none.
    fn count(&self, stored: usize) -> Option<usize> {
        let bytes = stored.saturating_mul(self.growth);
        (stored > self.small_length()).then(|| bytes.div_ceil(PERMIT_BYTES))
    }
}

/// Returns `bytes`, which keep `permit` until the last reference to them is dropped. Releases the
/// permits that are not needed, because most objects grow less than they can. A row of a `Table`
/// needs none.
pub(super) fn with_permit(bytes: Bytes, permit: Option<ObjectPermit>) -> Bytes {
    match permit {
        Some(ObjectPermit { mut permit, .. }) if bytes.len() > PIECE_BYTES => {
            permit.shrink(bytes.len().div_ceil(PERMIT_BYTES));
            Bytes::from_owner(PermittedBytes { bytes, _permit: permit })
        }
        Some(_) | None => bytes,
    }
}

/// As [`with_permit`], without the unused capacity of `bytes`, which the permit does not cover.
pub(super) fn encoded_with_permit(mut bytes: Vec<u8>, permit: Option<ObjectPermit>) -> Bytes {
    if permit.is_some() {
        bytes.shrink_to_fit();
    }
    with_permit(bytes.into(), permit)
}

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::{LimitKey, fixtures::user_permits};
    use kubewarm_client::KeyedSemaphore;
    use std::net::Ipv4Addr;

    /// In KiB. One user can have a quarter.
    const ALL: usize = 4 << 10;

    fn json(permits: &UserPermits) -> LargeObjectPermits {
        LargeObjectPermits::new(permits, ObjectEncoding::Json, MediaType::Json)
    }

    #[test]
    fn a_huge_object_leaves_the_memory_of_other_users_free() {
        let users = user_permits(ALL, ["a", "b", "c", "d", "other"]);
        let [attackers @ .., other] = users.each_ref().map(json);
        let huge = 100 << 20;
        let mut held = Vec::new();
        for attacker in &attackers {
            held.push(attacker.acquire_now(huge, None).unwrap());
            assert_eq!(attacker.acquire_now(huge, None).err(), Some(MemoryInUse));
        }
        assert_eq!(other.acquire_now(huge, None).err(), Some(MemoryInUse), "all memory is in use");
        drop(held.pop());
        assert!(other.acquire_now(huge, None).is_ok());
    }

    #[tokio::test]
    async fn a_permit_does_not_suffice_for_an_object_that_has_grown() {
        let [jane] = user_permits(ALL, ["jane"]).each_ref().map(json);
        let (small, large) = (PIECE_BYTES, PIECE_BYTES * 4);
        assert!(jane.acquire_now(small, None).unwrap().is_none());
        let held = jane.acquire(large).await;
        assert!(jane.suffices(held.as_ref(), large) && !jane.suffices(held.as_ref(), large + 1024));
        assert_eq!(jane.acquire_now(100 << 20, None).err(), Some(MemoryInUse));
        assert!(jane.acquire_now(large, held).unwrap().is_some());
        let _other = jane.acquire(PIECE_BYTES * 12).await;
        let held = jane.acquire(large).await;
        assert_eq!(jane.acquire_now(large * 2, held).err(), Some(MemoryInUse));
    }

    #[tokio::test]
    async fn encoded_bytes_keep_the_permits_that_they_need() {
        let permits = KeyedSemaphore::new(ALL, ALL);
        let jane = UserPermits::new(&permits, LimitKey::Address(Ipv4Addr::LOCALHOST.into()));
        let pod = kubewarm_wire::protobuf::message_of_kind("v1", "Pod").unwrap();
        let jane = LargeObjectPermits::new(&jane, ObjectEncoding::Protobuf(pod), MediaType::Json);
        let in_use = || permits.usage().in_use;
        let stored = PIECE_BYTES;
        let permit = jane.acquire(stored).await;
        assert_eq!(in_use(), (stored * JSON_BYTES_PER_BYTE).div_ceil(PERMIT_BYTES));
        let bytes = encoded_with_permit(vec![b'x'; stored * 2], permit);
        let needed = (stored * 2).div_ceil(PERMIT_BYTES);
        assert_eq!(in_use(), needed);
        let rest = bytes.slice(stored * 2 - 1..);
        drop(bytes);
        assert_eq!(in_use(), needed, "the rest of the bytes is in memory");
        drop(rest);
        let row = encoded_with_permit(vec![b'x'; 10], jane.acquire(stored).await);
        assert_eq!((in_use(), row.len()), (0, 10));
    }
}
