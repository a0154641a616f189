//! Limits what the columns of a `CustomResourceDefinition` cost for one row.

use std::cell::Cell;

/// Cost of all columns of one row together, at most about 2 ms of processor time. A printed byte
/// costs 1. The limit also bounds the memory of a row: a definition can have thousands of columns,
/// and each can print the whole object.
const MAX_COST: usize = 1 << 20;
/// Cost of one value that a path visits. So the columns of a row visit at most 65,536 values.
const VALUE: usize = 16;
/// Cost of a search through a whole object. So at most 64 columns of a row make one.
const WHOLE_SEARCH: usize = MAX_COST / 64;

/// What the columns of one row can still cost. `None` if they have exceeded the limit.
#[derive(Debug)]
pub(super) struct RowBudget(Cell<Option<usize>>);

impl RowBudget {
    /// Charges visits of `count` values. Returns `None` if the row exceeds the limit.
    pub(super) fn charge_values(&self, count: usize) -> Option<()> {
        self.charge(count.saturating_mul(VALUE))
    }

    /// Charges a printed text. Returns `None` if the row exceeds the limit.
    pub(super) fn charge_text(&self, bytes: usize) -> Option<()> {
        self.charge(bytes)
    }

    /// Charges a search through a whole object. Returns `None` if the row exceeds the limit.
    pub(super) fn charge_whole_search(&self) -> Option<()> {
        self.charge(WHOLE_SEARCH)
    }

    fn charge(&self, cost: usize) -> Option<()> {
        let left = self.0.get()?.checked_sub(cost);
        self.0.set(left);
        left.map(|_| ())
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.0.get().is_none()
    }
}

impl Default for RowBudget {
    fn default() -> Self {
        Self(Cell::new(Some(MAX_COST)))
    }
}
