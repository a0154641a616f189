//! Reads the beginning of a write's response, up to the version of the written object.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use kubewarm_api::model::ResourceVersion;
use kubewarm_wire::version_of;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much of a response is read before the first search for the version, without a permit, in bytes. Each
/// further search needs twice as many bytes.
const FIRST: usize = 16 << 10;
/// The memory for all responses beyond their first `FIRST` bytes, until they are written, in bytes.
const HELD: usize = 16 << 20;
/// How much of one response is read at most, in bytes. No object in etcd is larger.
const MOST: usize = 2 << 20;
/// The number of bytes that one permit covers.
const UNIT: usize = 1 << 10;

/// Permits for the memory of responses that are being read.
pub(super) struct WriteInspectionPermits(Arc<Semaphore>);

impl Default for WriteInspectionPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD / UNIT)))
    }
}

impl WriteInspectionPermits {
    /// Reads `body` until it contains the object's version, and passes the version to `found`. Stops at the
    /// limits without a version, so that callers who read slowly do not block others. Returns the bytes that it
    /// has read, with their permit. The caller keeps the permit until the bytes are written.
    pub(super) async fn look(
        &self,
        body: &mut Incoming,
        found: impl FnOnce(ResourceVersion),
    ) -> hyper::Result<(Bytes, Option<OwnedSemaphorePermit>)> {
        let (mut first, mut room, mut next) = (BytesMut::new(), None, FIRST);
        loop {
            let frame = body.frame().await.transpose()?;
            let is_end = frame.is_none();
            if let Some(Ok(data)) = frame.map(Frame::into_data) {
                first.extend_from_slice(&data);
            }
            let has_room = self.has_room(&mut room, first.capacity());
            if !is_end && has_room && first.len() < next {
                continue;
            }
            let version = version_of(&first);
            if is_end || !has_room || version.is_some() || first.len() >= MOST {
                if let Some(version) = version {
                    found(version);
                }
                return Ok((first.freeze(), room));
            }
            next = (first.len() * 2).min(MOST);
        }
    }

    /// Extends `room` to cover `bytes` bytes. Returns whether that was possible. The first `FIRST` bytes need
    /// no permit.
    fn has_room(&self, room: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(FIRST).div_ceil(UNIT);
        let Some(more) = wanted.checked_sub(held).filter(|more| *more > 0) else { return true };
        // Does not happen: `MOST` is far below this limit.
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.0).try_acquire_many_owned(more) else { return false };
        match room {
            Some(room) => room.merge(more),
            None => *room = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_responses_need_no_permit_and_all_permits_are_released() {
        let looks = WriteInspectionPermits::default();
        let all = looks.0.available_permits();
        let mut rooms: Vec<_> = (0..100).map(|_| None).collect();
        let mut has_room = |bytes| {
            rooms.iter_mut().map(|it| usize::from(looks.has_room(it, bytes))).sum::<usize>()
        };
        assert_eq!(has_room(FIRST), 100);
        assert_eq!(has_room(2 * FIRST), 100);
        let left = (HELD - 100 * FIRST) / (MOST - 2 * FIRST);
        assert_eq!(has_room(MOST), left);
        let mut small = None;
        assert!(looks.has_room(&mut small, FIRST) && !looks.has_room(&mut small, MOST));
        drop(rooms);
        assert!(looks.has_room(&mut small, MOST));
        drop(small);
        assert_eq!(looks.0.available_permits(), all);
    }
}
