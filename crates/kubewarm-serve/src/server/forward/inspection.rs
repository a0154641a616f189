//! Reads the beginning of the response to a forwarded write, up to the resource version of the
//! written object, because later reads wait until a store has reached this version.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use kubewarm_api::model::ResourceVersion;
use kubewarm_wire::version_of;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// kubewarm reads this number of bytes of a response before it first searches for the object's
/// resource version. These bytes do not count against `MAX_MEMORY`. kubewarm searches again each
/// time the number of bytes has doubled, so that all searches together take linear time.
const FREE_BYTES: usize = 16 << 10;
/// The memory limit in bytes for all responses together in which kubewarm searches for a resource
/// version. The first `FREE_BYTES` bytes of each response do not count.
const MAX_MEMORY: usize = 16 << 20;
/// The maximum number of bytes that kubewarm reads of one response to find the resource version. By
/// default, etcd accepts no larger object.
const MAX_READ: usize = 2 << 20;
/// The number of bytes that one permit of `WriteInspectionPermits` covers.
const PERMIT_BYTES: usize = 1 << 10;

/// Limits the memory of all responses in which kubewarm searches for a resource version.
pub(super) struct WriteInspectionPermits(Arc<Semaphore>);

impl Default for WriteInspectionPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_MEMORY / PERMIT_BYTES)))
    }
}

impl WriteInspectionPermits {
    /// Reads `body` until it contains the object's resource version, and passes this version to
    /// `record`. Stops without a version at a memory limit, because a wait for memory would let
    /// slow responses block other ones. Returns the bytes that it has read, and the permit for
    /// their memory. The caller must keep the permit until the client has received the bytes.
    pub(super) async fn read_version(
        &self,
        body: &mut Incoming,
        record: impl FnOnce(ResourceVersion),
    ) -> hyper::Result<(Bytes, Option<OwnedSemaphorePermit>)> {
        let (mut first, mut memory_permit, mut next) = (BytesMut::new(), None, FREE_BYTES);
        loop {
            let frame = body.frame().await.transpose()?;
            let is_end = frame.is_none();
            if let Some(Ok(data)) = frame.map(Frame::into_data) {
                first.extend_from_slice(&data);
            }
            let reserve = self.reserve(&mut memory_permit, first.capacity());
            if !is_end && reserve && first.len() < next {
                continue;
            }
            let version = version_of(&first);
            if is_end || !reserve || version.is_some() || first.len() >= MAX_READ {
                if let Some(version) = version {
                    record(version);
                }
                return Ok((first.freeze(), memory_permit));
            }
            next = (first.len() * 2).min(MAX_READ);
        }
    }

    /// Extends `memory_permit` to cover `bytes` bytes. Returns `false` if `MAX_MEMORY` does not
    /// permit this. The first `FREE_BYTES` bytes need no permit.
    fn reserve(&self, memory_permit: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let permits = memory_permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(FREE_BYTES).div_ceil(PERMIT_BYTES);
        let Some(more) = wanted.checked_sub(permits).filter(|more| *more > 0) else { return true };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.0).try_acquire_many_owned(more) else { return false };
        match memory_permit {
            Some(memory_permit) => memory_permit.merge(more),
            None => *memory_permit = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_responses_need_no_permit_and_all_permits_are_released() {
        let permits = WriteInspectionPermits::default();
        let all = permits.0.available_permits();
        let mut responses: Vec<_> = (0..100).map(|_| None).collect();
        let mut reserve = |bytes| {
            responses
                .iter_mut()
                .map(|response| usize::from(permits.reserve(response, bytes)))
                .sum::<usize>()
        };
        assert_eq!(reserve(FREE_BYTES), 100);
        assert_eq!(reserve(2 * FREE_BYTES), 100);
        let left = (MAX_MEMORY - 100 * FREE_BYTES) / (MAX_READ - 2 * FREE_BYTES);
        assert_eq!(reserve(MAX_READ), left);
        let mut small = None;
        assert!(permits.reserve(&mut small, FREE_BYTES) && !permits.reserve(&mut small, MAX_READ));
        drop(responses);
        assert!(permits.reserve(&mut small, MAX_READ));
        drop(small);
        assert_eq!(permits.0.available_permits(), all);
    }
}
