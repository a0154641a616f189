//! Inverted indexes: each maps a label or a field value to the numbers of the rows whose objects
//! have it.

use super::allocation::taken;
use kubewarm_api::model::{FieldPath, LabelSelector, LabelSelectorOperator};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashMap};

/// A set of row numbers. Each row of a store contains one object. The variant depends on the number
/// of rows, to take the least memory.
#[derive(Debug)]
enum RowSet {
    One(u32),
    /// Row numbers in ascending order, without spare capacity.
    Few(Box<[u32]>),
    Many(Box<RoaringBitmap>),
}

/// Maximum number of rows in `RowSet::Few`. With more rows, a bitmap takes less memory.
/// `RowSet::Many` becomes `RowSet::Few` again only when at most 16 rows (half of this number) are
/// left. So a set near the maximum does not change its form each time.
const FEW: usize = 32;

/// Bytes that a bitmap takes in addition to its serialized size: the struct, the headers of its
/// containers and spare capacity.
const BITMAP_BYTES: usize = 96;

/// Maps each value of one label key, or of one field, to the rows of the objects that have the
/// value.
#[derive(Debug, Default)]
pub(super) struct ValueIndex {
    rows: HashMap<Box<str>, RowSet>,
    bytes: usize,
}

/// Maps each label to the rows of the objects that have the label.
#[derive(Debug, Default)]
pub(super) struct LabelIndex {
    keys: BTreeMap<Box<str>, ValueIndex>,
    bytes: usize,
}

/// The index of the values at one field path. A profile declares the field path.
#[derive(Debug)]
pub(super) struct FieldIndex {
    pub(super) path: FieldPath,
    pub(super) values: ValueIndex,
    /// Whether the index covers every object of the store. Queries do not use an index that lacks
    /// objects.
    pub(super) is_complete: bool,
}

impl RowSet {
    fn bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Few(rows) => taken(rows.len() * size_of::<u32>()),
            Self::Many(rows) => rows.serialized_size() + BITMAP_BYTES,
        }
    }

    fn insert(&mut self, row: u32) {
        match self {
            Self::One(single) if *single == row => (),
            Self::One(single) => *self = Self::of(vec![row.min(*single), row.max(*single)]),
            Self::Few(rows) => {
                if let Err(at) = rows.binary_search(&row) {
                    let mut longer = rows.to_vec();
                    longer.insert(at, row);
                    *self = Self::of(longer);
                }
            }
            Self::Many(rows) => {
                rows.insert(row);
            }
        }
    }

    fn remove(&mut self, row: u32) -> bool {
        let remove = |rows: &mut RoaringBitmap| {
            rows.remove(row);
        };
        self.retain(|other| other != row, remove)
    }

    /// Removes all row numbers in `gone` from the set. Returns whether the set still contains row
    /// numbers.
    fn subtract(&mut self, gone: &RoaringBitmap) -> bool {
        self.retain(|row| !gone.contains(row), |rows| *rows -= gone)
    }

    /// Keeps the row numbers for which `keep` returns true. Returns whether the set still contains
    /// row numbers.
    ///
    /// If the set is a bitmap, the method calls `cut` instead of `keep`. `cut` must remove the row
    /// numbers for which `keep` returns false.
    fn retain(&mut self, keep: impl Fn(u32) -> bool, cut: impl FnOnce(&mut RoaringBitmap)) -> bool {
        let left: Vec<u32> = match self {
            Self::One(row) => return keep(*row),
            Self::Few(rows) => rows.iter().copied().filter(|&row| keep(row)).collect(),
            Self::Many(rows) => {
                cut(rows);
                if rows.len() > FEW as u64 / 2 {
                    return true;
                }
                rows.iter().collect()
            }
        };
        if left.is_empty() {
            return false;
        }
        *self = Self::of(left);
        true
    }

    /// `rows` must be sorted and not empty.
    fn of(rows: Vec<u32>) -> Self {
        match *rows {
            [row] => Self::One(row),
            _ if rows.len() <= FEW => Self::Few(rows.into_boxed_slice()),
            _ => Self::Many(Box::new(rows.into_iter().collect())),
        }
    }

    fn add_to(&self, all: &mut RoaringBitmap) {
        match self {
            Self::One(row) => {
                all.insert(*row);
            }
            Self::Few(rows) => all.extend(rows.iter().copied()),
            Self::Many(rows) => *all |= &**rows,
        }
    }
}

impl ValueIndex {
    pub(super) fn bytes(&self) -> usize {
        // A `HashMap` keeps an eighth of its slots free, and has one control byte for each slot.
        self.bytes + self.rows.capacity() * 8 / 7 * (size_of::<(Box<str>, RowSet)>() + 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds the row number `row` to the rows with the value `value`. A second call for the same row
    /// has no effect.
    pub(super) fn insert(&mut self, value: &str, row: u32) {
        if let Some(rows) = self.rows.get_mut(value) {
            let before = rows.bytes();
            rows.insert(row);
            self.bytes = self.bytes + rows.bytes() - before;
        } else {
            self.bytes += taken(value.len());
            self.rows.insert(value.into(), RowSet::One(row));
        }
    }

    pub(super) fn remove(&mut self, value: &str, row: u32) {
        let Some(rows) = self.rows.get_mut(value) else { return };
        let before = rows.bytes();
        let left = rows.remove(row);
        self.bytes = self.bytes + rows.bytes() - before;
        if !left {
            self.bytes -= rows.bytes() + taken(value.len());
            self.rows.remove(value);
            self.shrink();
        }
    }

    pub(super) fn subtract(&mut self, gone: &RoaringBitmap) {
        let bytes = &mut self.bytes;
        self.rows.retain(|value, rows| {
            let before = rows.bytes();
            let left = rows.subtract(gone);
            if left {
                *bytes = *bytes + rows.bytes() - before;
            } else {
                *bytes -= before + taken(value.len());
            }
            left
        });
        self.shrink();
    }

    pub(super) fn get(&self, value: &str) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        if let Some(rows) = self.rows.get(value) {
            rows.add_to(&mut all);
        }
        all
    }

    /// Returns the rows of all objects that have at least one value of the label key or field.
    /// Cost: one step for each value in the index.
    pub(super) fn any(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        for rows in self.rows.values() {
            rows.add_to(&mut all);
        }
        all
    }

    fn shrink(&mut self) {
        if self.rows.is_empty() {
            self.rows = HashMap::new();
        } else if self.rows.len() < self.rows.capacity() / 8 {
            self.rows.shrink_to_fit();
        }
    }
}

impl LabelIndex {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, key: &str, value: &str, row: u32) {
        if !self.keys.contains_key(key) {
            self.bytes += entry_bytes(key);
            self.keys.insert(key.into(), ValueIndex::default());
        }
        if let Some(values) = self.keys.get_mut(key) {
            let before = values.bytes();
            values.insert(value, row);
            self.bytes = self.bytes + values.bytes() - before;
        }
    }

    pub(super) fn remove(&mut self, key: &str, value: &str, row: u32) {
        let Some(values) = self.keys.get_mut(key) else { return };
        let before = values.bytes();
        values.remove(value, row);
        self.bytes = self.bytes + values.bytes() - before;
        if values.is_empty() {
            self.bytes -= entry_bytes(key) + values.bytes();
            self.keys.remove(key);
        }
    }

    pub(super) fn subtract(&mut self, gone: &RoaringBitmap) {
        let bytes = &mut self.bytes;
        self.keys.retain(|key, values| {
            let before = values.bytes();
            values.subtract(gone);
            let left = !values.is_empty();
            let now = if left { values.bytes() } else { 0 };
            *bytes = *bytes + now - before - if left { 0 } else { entry_bytes(key) };
            left
        });
    }

    /// Returns the rows whose objects match `selector`. The function calls `all`, which returns
    /// every row of the store, only if no requirement is `In` or `Exists`, because otherwise these
    /// requirements select the rows.
    pub(super) fn select(
        &self,
        selector: &LabelSelector,
        all: impl FnOnce() -> RoaringBitmap,
    ) -> RoaringBitmap {
        let mut selected: Option<RoaringBitmap> = None;
        let mut excluded = RoaringBitmap::new();
        for requirement in selector.requirements() {
            let rows = self.keys.get(requirement.key()).map_or_else(RoaringBitmap::new, |values| {
                match requirement.operator() {
                    LabelSelectorOperator::In | LabelSelectorOperator::NotIn => {
                        let mut rows = RoaringBitmap::new();
                        for value in requirement.values() {
                            rows |= values.get(value);
                        }
                        rows
                    }
                    LabelSelectorOperator::Exists | LabelSelectorOperator::DoesNotExist => {
                        values.any()
                    }
                }
            });
            match requirement.operator() {
                LabelSelectorOperator::NotIn | LabelSelectorOperator::DoesNotExist => {
                    excluded |= rows;
                }
                LabelSelectorOperator::In | LabelSelectorOperator::Exists => {
                    selected = Some(match selected.take() {
                        Some(selected) => selected & rows,
                        None => rows,
                    });
                }
            }
        }
        selected.unwrap_or_else(all) - excluded
    }
}

fn entry_bytes(key: &str) -> usize {
    taken(key.len()) + size_of::<(Box<str>, ValueIndex)>()
}
