//! Numbers the texts of rules and bindings, so that a decision compares numbers instead of texts.

use std::{collections::HashMap, sync::Arc};

/// The number of a text in a [`SymbolTable`].
///
/// No two texts ever have the same number, even if the table has dropped one of them. So a mistake
/// in the counting of uses cannot give the permissions of one user or resource to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(u64);

/// The texts that rules and bindings contain, each with its number. The objects of the API server
/// limit their number: the table drops a text after its last use.
#[derive(Debug)]
pub(crate) struct SymbolTable {
    by_text: HashMap<Arc<str>, Symbol>,
    by_symbol: HashMap<Symbol, TextUses>,
    /// The number of the next new text. The numbers never run out: 2^64 numbers last 500 years,
    /// even with a billion new texts a second.
    next: u64,
    text_bytes: usize,
}

/// A text, and how often rules and bindings contain it.
#[derive(Debug)]
struct TextUses {
    text: Arc<str>,
    uses: usize,
}

impl Symbol {
    /// The text `*`. In rules, it means all verbs, API groups or resources.
    pub(crate) const ALL: Self = Self(0);
    /// A text that no rule and no binding contains. So no rule and no grant contains this symbol,
    /// and a comparison with it never matches.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);
    /// No symbol sorts before this one, so a range can start with it.
    pub(crate) const LOWEST: Self = Self(0);
}

impl SymbolTable {
    /// Returns the number of `text`, and counts one use of it until [`Self::release`].
    pub(crate) fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.by_text.get(text) {
            if let Some(entry) = self.by_symbol.get_mut(&symbol) {
                entry.uses += 1;
            }
            return symbol;
        }
        let symbol = Symbol(self.next);
        self.next += 1;
        self.text_bytes += text.len();
        let text: Arc<str> = text.into();
        self.by_text.insert(Arc::clone(&text), symbol);
        self.by_symbol.insert(symbol, TextUses { text, uses: 1 });
        symbol
    }

    /// Returns the number of `text`; [`Symbol::UNKNOWN`] if no rule and no binding contains it.
    pub(crate) fn find(&self, text: &str) -> Symbol {
        self.by_text.get(text).copied().unwrap_or(Symbol::UNKNOWN)
    }

    /// Ends one use of the text with this number. The last use drops the text.
    pub(crate) fn release(&mut self, symbol: Symbol) {
        let Some(entry) = self.by_symbol.get_mut(&symbol) else { return };
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        if let Some(TextUses { text, .. }) = self.by_symbol.remove(&symbol) {
            self.text_bytes -= text.len();
            self.by_text.remove(&text);
        }
    }

    /// An estimate of the table's memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // An `Arc` has two counters, and the allocator adds about as much.
        const OVERHEAD: usize = 32;
        let texts = self.text_bytes + self.by_text.len() * OVERHEAD;
        texts + map_bytes(&self.by_text) + map_bytes(&self.by_symbol)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_text.len()
    }
}

impl Default for SymbolTable {
    fn default() -> Self {
        let (by_text, by_symbol) = (HashMap::new(), HashMap::new());
        let mut table = Self { by_text, by_symbol, next: Symbol::ALL.0, text_bytes: 0 };
        // No caller releases this use of `*`, so that `*` always has the number [`Symbol::ALL`].
        table.intern("*");
        table
    }
}

/// An estimate of a map's memory in bytes, without what its keys and values point to.
pub(crate) fn map_bytes<K, V>(map: &HashMap<K, V>) -> usize {
    // The map leaves an eighth of its slots empty, and keeps one more byte for each slot.
    map.capacity() * 8 / 7 * (size_of::<(K, V)>() + 1)
}
