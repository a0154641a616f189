//! The row numbers of a store in key order. The numbers are split into leaves of at most 512, so an
//! insertion moves few of them.

use std::cmp::Ordering;

/// Maximum number of row numbers in a leaf. A full leaf takes 2 KiB, so one insertion moves at most
/// 2 KiB.
const LEAF: usize = 512;

/// Row numbers in the order in which the API server lists objects: by the bytes of
/// `<namespace>/<name>`.
///
/// The order does not contain the keys, because the rows do. So a caller passes a function that
/// compares a row's key with the searched key.
#[derive(Debug, Default)]
pub(super) struct RowOrder {
    leaves: Vec<Vec<u32>>,
    len: usize,
    bytes: usize,
}

/// A position in an [`RowOrder`]. Each insertion and each removal makes the position invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowPosition {
    leaf: usize,
    at: usize,
}

impl RowPosition {
    /// Returns the next position in the same leaf. A list arrives in key order, so the list's next
    /// object is usually at the returned position.
    pub(super) fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }
}

impl RowOrder {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, position: RowPosition) -> Option<u32> {
        self.leaves.get(position.leaf)?.get(position.at).copied()
    }

    /// Returns the position of a key as `Ok`. If no row has the key, returns the position at which
    /// to insert it as `Err`. `compare` compares a row with the key.
    ///
    /// A list arrives in key order, so the search first tries the position `hint` and the position
    /// after the last row.
    pub(super) fn find(
        &self,
        hint: RowPosition,
        compare: impl Fn(u32) -> Ordering,
    ) -> Result<RowPosition, RowPosition> {
        if self.get(hint).is_some_and(|row| compare(row) == Ordering::Equal) {
            return Ok(hint);
        }
        let below = |leaf: &Vec<u32>| leaf.last().is_some_and(|&row| compare(row).is_lt());
        let Some(last) = self.leaves.last() else { return Err(RowPosition::default()) };
        if below(last) {
            return Err(RowPosition { leaf: self.leaves.len() - 1, at: last.len() });
        }
        let leaf = self.leaves.partition_point(below);
        let position =
            self.leaves.get(leaf).map_or(Err(0), |rows| rows.binary_search_by(|&row| compare(row)));
        position.map(|at| RowPosition { leaf, at }).map_err(|at| RowPosition { leaf, at })
    }

    /// Inserts `row` at a position that [`RowOrder::find`] returned. Returns the position of the
    /// inserted row, which differs if the insertion splits a leaf.
    pub(super) fn insert(&mut self, mut position: RowPosition, row: u32) -> RowPosition {
        self.len += 1;
        let leaves = self.leaves.len();
        if self.leaves.get(position.leaf).is_some_and(|leaf| leaf.len() >= LEAF) {
            let split = if position.leaf + 1 == leaves && position.at >= LEAF {
                // A row that is added at the end starts another leaf instead of splitting the full
                // leaf. So keys that arrive in order fill every leaf.
                Vec::with_capacity(LEAF)
            } else {
                let upper = self
                    .leaves
                    .get(position.leaf)
                    .and_then(|leaf| leaf.get(LEAF / 2..))
                    .unwrap_or(&[]);
                let mut split = Vec::with_capacity(LEAF);
                split.extend_from_slice(upper);
                split
            };
            let keep = LEAF - split.len();
            if let Some(leaf) = self.leaves.get_mut(position.leaf) {
                leaf.truncate(keep);
            }
            self.bytes += split.capacity() * size_of::<u32>();
            self.leaves.insert(position.leaf + 1, split);
            if position.at >= keep {
                position = RowPosition { leaf: position.leaf + 1, at: position.at - keep };
            }
        } else if leaves == 0 {
            self.leaves.push(Vec::new());
        }
        if let Some(leaf) = self.leaves.get_mut(position.leaf) {
            let before = leaf.capacity();
            leaf.insert(position.at.min(leaf.len()), row);
            self.bytes += (leaf.capacity() - before) * size_of::<u32>();
        }
        position
    }

    pub(super) fn remove(&mut self, position: RowPosition) {
        let Some(leaf) = self.leaves.get_mut(position.leaf) else { return };
        if position.at >= leaf.len() {
            return;
        }
        leaf.remove(position.at);
        self.len -= 1;
        if leaf.is_empty() {
            self.bytes -= leaf.capacity() * size_of::<u32>();
            self.leaves.remove(position.leaf);
        }
        if self.leaves.is_empty() {
            self.leaves = Vec::new();
        }
    }

    /// Keeps the rows for which `keep` returns true. Joins neighboring leaves whose rows fit into
    /// one leaf, and frees the leaves without rows.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for leaf in &mut self.leaves {
            leaf.retain(|&row| keep(row));
        }
        let mut packed: Vec<Vec<u32>> = Vec::new();
        for leaf in std::mem::take(&mut self.leaves) {
            match packed.last_mut() {
                _ if leaf.is_empty() => (),
                Some(last) if last.len() + leaf.len() <= LEAF => last.extend_from_slice(&leaf),
                _ => packed.push(leaf),
            }
        }
        self.len = packed.iter().map(Vec::len).sum();
        self.bytes = packed.iter().map(|leaf| leaf.capacity() * size_of::<u32>()).sum();
        self.leaves = packed;
    }

    pub(super) fn end(&self) -> RowPosition {
        RowPosition { leaf: self.leaves.len(), at: 0 }
    }

    pub(super) fn range(
        &self,
        from: RowPosition,
        to: RowPosition,
    ) -> impl DoubleEndedIterator<Item = u32> + use<'_> {
        let leaves = self.leaves.iter().enumerate().take(to.leaf.saturating_add(1)).skip(from.leaf);
        leaves.flat_map(move |(leaf, rows)| {
            let begin = if leaf == from.leaf { from.at } else { 0 };
            let end = if leaf == to.leaf { to.at } else { rows.len() };
            rows.get(begin..end).unwrap_or_default().iter().copied()
        })
    }

    pub(super) fn from(&self, position: RowPosition) -> impl Iterator<Item = u32> + use<'_> {
        self.range(position, self.end())
    }

    /// Returns the number of rows before `position`. Cost: one step for each leaf before
    /// `position`.
    pub(super) fn rank(&self, position: RowPosition) -> usize {
        self.leaves.iter().take(position.leaf).map(Vec::len).sum::<usize>() + position.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_inserted_in_order_fill_every_leaf() {
        let mut order = RowOrder::default();
        for row in 0..10_000_u32 {
            let position = order.find(RowPosition::default(), |other| other.cmp(&row)).unwrap_err();
            order.insert(position, row);
        }
        assert!(order.bytes() < 10_000 * 4 + LEAF * 4, "{}", order.bytes());
        assert!(order.from(RowPosition::default()).eq(0..10_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_row_order_matches_a_btree_set(
            steps in proptest::collection::vec((0..3000_u32, any::<bool>()), 0..2500),
            sweep in 0..3000_u32,
        ) {
            let (mut order, mut model) = (RowOrder::default(), BTreeSet::new());
            let mut hint = RowPosition::default();
            for (row, insert) in steps {
                match order.find(hint, |other| other.cmp(&row)) {
                    Ok(position) => {
                        prop_assert!(model.contains(&row));
                        hint = position.next();
                        if !insert {
                            order.remove(position);
                            model.remove(&row);
                        }
                    }
                    Err(position) => {
                        prop_assert!(!model.contains(&row));
                        prop_assert_eq!(order.rank(position), model.range(..row).count());
                        if insert {
                            let position = order.insert(position, row);
                            prop_assert_eq!(order.get(position), Some(row));
                            model.insert(row);
                        }
                    }
                }
                prop_assert_eq!(order.len(), model.len());
            }
            prop_assert!(order.from(RowPosition::default()).eq(model.iter().copied()));
            order.retain(|row| row < sweep);
            model.retain(|&row| row < sweep);
            prop_assert!(order.from(RowPosition::default()).eq(model.iter().copied()));
            prop_assert_eq!(order.len(), model.len());
            order.retain(|_| false);
            prop_assert_eq!(order.bytes(), 0);
        }
    }
}
