//! The beginning of an answer to a write: so much of it that the version of what was written is there.

use crate::{
    model::ResourceVersion,
    wire::{Encoding, version_of},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that all of them hold, until they are taken: each of the 1,024 requests that are sent on may have the first
/// 16 KiB, and as much is left for those that are longer.
const HELD: usize = 32 << 20;
/// What is looked at first; then twice as much.
const FIRST: usize = 16 << 10;
/// The most of one: no object in etcd is larger.
const MOST: usize = 2 << 20;
/// What room is counted in.
const UNIT: usize = 1 << 10;

/// Room for what is looked at.
pub(super) struct Looks(Arc<Semaphore>);

/// What was read of an answer.
pub(super) struct Looked {
    /// What has come of it.
    pub(super) first: Bytes,
    /// Of what was written; `None` if it is not there, or there was no room to look for it.
    pub(super) version: Option<ResourceVersion>,
    /// Until it is taken.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl Default for Looks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD / UNIT)))
    }
}

impl Looks {
    /// Reads `body` until its version is there. Who brings much of an answer before that, and does not take it, leaves
    /// none of the room to others that do the same: they are passed on as they are.
    pub(super) async fn look(
        &self,
        body: &mut Incoming,
        encoding: Encoding,
    ) -> hyper::Result<Looked> {
        let (mut first, mut room) = (BytesMut::new(), None);
        let mut next = FIRST;
        while self.has_room(&mut room, first.capacity().max(FIRST)) {
            let Some(frame) = body.frame().await else {
                let version = version_of(&first, encoding);
                return Ok(Looked { first: first.freeze(), version, room });
            };
            if let Ok(data) = frame?.into_data() {
                first.extend_from_slice(&data);
            }
            if first.len() >= next {
                let version = version_of(&first, encoding);
                if version.is_some() || first.len() >= MOST {
                    return Ok(Looked { first: first.freeze(), version, room });
                }
                next = first.len() * 2;
            }
        }
        Ok(Looked { first: first.freeze(), version: None, room })
    }

    /// Whether `room` has come to be for so many bytes.
    fn has_room(&self, room: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = bytes.div_ceil(UNIT).checked_sub(held).filter(|more| *more > 0) else {
            return true;
        };
        // No answer that is looked at is so long.
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
    fn small_answers_have_room_whatever_large_ones_hold_and_all_of_it_comes_back() {
        let looks = Looks::default();
        let all = looks.0.available_permits();
        let mut small: Vec<_> = (0..1_024).map(|_| None).collect();
        assert!(small.iter_mut().all(|room| looks.has_room(room, FIRST)));
        let mut large: Vec<_> = (0..100).map(|_| None).collect();
        let mut has_room = |bytes| {
            large.iter_mut().map(|it| usize::from(looks.has_room(it, bytes))).sum::<usize>()
        };
        assert_eq!(has_room(FIRST), 100);
        let left = (HELD - 1_124 * FIRST) / (MOST - FIRST);
        assert_eq!(has_room(MOST), left);
        assert!(small.iter_mut().all(|room| looks.has_room(room, FIRST)), "it is theirs");
        drop((small, large));
        assert_eq!(looks.0.available_permits(), all);
    }
}
