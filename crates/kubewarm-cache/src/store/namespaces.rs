//! The namespaces of a table, each name held once.

use std::{collections::BTreeMap, sync::Arc};

/// Names of namespaces by number, as long as a row is in them.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    numbers: BTreeMap<Arc<str>, u32>,
    held: Vec<NamespaceRows>,
    free: Vec<u32>,
    bytes: usize,
    /// The name of no namespace.
    empty: Arc<str>,
}

#[derive(Debug)]
struct NamespaceRows {
    name: Arc<str>,
    rows: u64,
}

impl Namespaces {
    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a namespace that has rows.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The name of a namespace that has rows; else the empty one.
    pub(super) fn name(&self, number: u32) -> &Arc<str> {
        self.held.get(number as usize).map_or(&self.empty, |held| &held.name)
    }

    /// Counts one more row in `name`; answers its number.
    pub(super) fn enter(&mut self, name: &str) -> u32 {
        if let Some(number) = self.number(name) {
            if let Some(held) = self.held.get_mut(number as usize) {
                held.rows += 1;
            }
            return number;
        }
        let name: Arc<str> = name.into();
        let held = NamespaceRows { name: Arc::clone(&name), rows: 1 };
        self.bytes += weight(&name);
        let next = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let number = self.free.pop().unwrap_or(next);
        match self.held.get_mut(number as usize) {
            Some(place) => *place = held,
            None => self.held.push(held),
        }
        self.numbers.insert(name, number);
        number
    }

    /// Counts one row less; a namespace without rows is forgotten.
    pub(super) fn leave(&mut self, number: u32) {
        let Some(held) = self.held.get_mut(number as usize) else { return };
        held.rows = held.rows.saturating_sub(1);
        if held.rows > 0 {
            return;
        }
        self.bytes -= weight(&held.name);
        self.numbers.remove(&held.name);
        held.name = Arc::from("");
        self.free.push(number);
        if self.numbers.is_empty() {
            *self = Self::default();
        }
    }
}

/// The name, the counts in front of it, and its places in both directions.
fn weight(name: &str) -> usize {
    name.len() + 2 * size_of::<usize>() + size_of::<NamespaceRows>() + size_of::<(Arc<str>, u32)>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_lives_as_long_as_its_rows() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (namespaces.enter("a"), namespaces.enter("b"));
        assert_eq!(namespaces.enter("a"), a);
        namespaces.leave(a);
        assert_eq!((namespaces.number("a"), &**namespaces.name(a)), (Some(a), "a"));
        namespaces.leave(a);
        assert_eq!(namespaces.number("a"), None);
        assert_eq!(namespaces.enter("c"), a);
        namespaces.leave(a);
        namespaces.leave(b);
        assert_eq!(namespaces.bytes(), 0);
    }
}
