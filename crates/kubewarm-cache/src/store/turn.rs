//! How long one looks into bodies before others have their turn.

use tokio::task::yield_now;

/// Bytes of bodies, as they are unpacked, that are looked into in one go.
///
/// Bytes and not objects: what is done with a body, to unpack it, to walk it, to write it, takes as long as it
/// is, and of two objects one may be a thousand times the other: 1.5 MiB, what etcd takes, and 1.5 KiB. At some
/// 1 ns a byte for each of these a turn is 2 to 5 ms, and more only by its last body: short for whoever
/// shares the thread, and long against what it costs to go on later.
const BYTES: usize = 1 << 20;

/// What may still be looked into.
#[derive(Debug)]
pub struct Turn {
    left: usize,
}

impl Turn {
    /// Counts a body of so many bytes, which has been looked into.
    pub fn count(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Whether others are to have theirs now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// If it is over, lets others of this thread have theirs, and begins anew. May be dropped and asked again.
    pub async fn give_way(&mut self) {
        if self.is_over() {
            yield_now().await;
            *self = Self::default();
        }
    }
}

impl Default for Turn {
    /// One that begins.
    fn default() -> Self {
        Self { left: BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_so_many_bytes_in_however_many_bodies() {
        for (bytes, bodies) in [(1, BYTES), (1 << 19, 2), (700 << 10, 2), (BYTES * 9, 1)] {
            let mut turn = Turn::default();
            for _ in 0..bodies {
                assert!(!turn.is_over(), "{bytes} {bodies}");
                turn.count(bytes);
            }
            assert!(turn.is_over(), "{bytes} {bodies}");
        }
    }
}
