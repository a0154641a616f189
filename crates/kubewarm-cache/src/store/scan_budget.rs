//! Limits how many bytes of bodies a task reads before it yields to the other tasks of its thread.

use tokio::task::yield_now;

/// Unpacked bytes that a task reads before it yields.
///
/// The limit counts bytes, because the time to unpack, scan and write a body depends on its size. A body can have 1.5
/// KiB, or 1.5 MiB, which is etcd's default limit.
///
/// Each of these steps takes about 1 ns a byte, so a task reaches the limit after 2 to 5 ms. Only the last body can
/// exceed it. This is short for other tasks of the thread, and long compared with the cost of a yield.
const BYTES: usize = 1 << 20;

/// The bytes that a task can still read before it must yield.
#[derive(Debug)]
pub struct ScanBudget {
    left: usize,
}

impl ScanBudget {
    /// Subtracts a body of `bytes` bytes that the task has read.
    pub fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Whether the task must yield now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Yields to the other tasks of the thread if no bytes are left, then starts with the full limit. Cancel safe.
    pub async fn yield_if_over(&mut self) {
        if self.is_over() {
            yield_now().await;
            *self = Self::default();
        }
    }
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self { left: BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_budget_counts_bytes_and_not_objects() {
        for (bytes, bodies) in [(1, BYTES), (1 << 19, 2), (700 << 10, 2), (BYTES * 9, 1)] {
            let mut scan_budget = ScanBudget::default();
            for _ in 0..bodies {
                assert!(!scan_budget.is_over(), "{bytes} {bodies}");
                scan_budget.charge(bytes);
            }
            assert!(scan_budget.is_over(), "{bytes} {bodies}");
        }
    }
}
