//! The namespace names of a store. Rows refer to a name by number, so the store keeps each name
//! once.

use std::{collections::BTreeMap, sync::Arc};

/// Namespace names by number. A name stays as long as the store has rows in that namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceInterner {
    numbers: BTreeMap<Arc<str>, u32>,
    entries: Vec<NamespaceEntry>,
    free: Vec<u32>,
    bytes: usize,
    empty: Arc<str>,
}

#[derive(Debug)]
struct NamespaceEntry {
    name: Arc<str>,
    rows: u64,
}

impl NamespaceInterner {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the name of a namespace, or an empty name if the number is not in use.
    pub(super) fn name(&self, number: u32) -> &Arc<str> {
        self.entries.get(number as usize).map_or(&self.empty, |entry| &entry.name)
    }

    /// Adds one row to the count of rows in a namespace, and returns the namespace's number.
    pub(super) fn enter(&mut self, name: &str) -> u32 {
        if let Some(number) = self.number(name) {
            if let Some(entry) = self.entries.get_mut(number as usize) {
                entry.rows += 1;
            }
            return number;
        }
        let name: Arc<str> = name.into();
        let entry = NamespaceEntry { name: Arc::clone(&name), rows: 1 };
        self.bytes += weight(&name);
        let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let number = self.free.pop().unwrap_or(next);
        match self.entries.get_mut(number as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        self.numbers.insert(name, number);
        number
    }

    /// Subtracts one row from the count of rows in a namespace. When the count is 0, the
    /// namespace's name is removed and its number becomes free.
    pub(super) fn leave(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        entry.rows = entry.rows.saturating_sub(1);
        if entry.rows > 0 {
            return;
        }
        self.bytes -= weight(&entry.name);
        self.numbers.remove(&entry.name);
        entry.name = Arc::from("");
        self.free.push(number);
        if self.numbers.is_empty() {
            *self = Self::default();
        }
    }
}

/// Returns the bytes that one namespace takes: its name, two reference counts, an entry in
/// `numbers` and an entry in `entries`.
fn weight(name: &str) -> usize {
    name.len() + 2 * size_of::<usize>() + size_of::<NamespaceEntry>() + size_of::<(Arc<str>, u32)>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_removed_with_its_last_row() {
        let mut namespaces = NamespaceInterner::default();
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
