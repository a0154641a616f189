//! Limits the bytes of stored objects that a task scans before it yields to the other tasks of its
//! thread.

use tokio::task::yield_now;

/// Number of decompressed bytes that a task scans before it yields. A task exceeds this number by
/// at most one object.
///
/// The limit counts bytes, because the time to decompress, scan and write an object depends on its
/// size. An object can have 1.5 KiB, or 1.5 MiB, which is etcd's default limit.
///
/// Decompressing, scanning and writing each take about 1 ns a byte. So a task yields after 2 to 5
/// ms. The other tasks of the thread wait only shortly, and the cost of a yield is small in
/// comparison.
const BYTES: usize = 1 << 20;

/// The number of bytes that a task can scan before it must yield.
#[derive(Debug)]
pub struct ScanBudget {
    left: usize,
}

impl ScanBudget {
    /// Subtracts the size in bytes of a scanned object from the number of bytes that the task can
    /// still scan.
    pub fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Whether the task has scanned its number of bytes, so that it must yield.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// If the task must yield, lets the other tasks of its thread run, then restores the full
    /// number of bytes that the task can scan. Cancel safe.
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
