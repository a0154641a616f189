//! A sorted set that is cheap to clone, compare and hash, even if it has many items.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Sorted items and their comma-separated text. Two sets are equal if their texts are equal, so
/// items with equal texts must be equal.
///
/// The keys of informers contain selectors of several KiB, and kubewarm often looks up these keys
/// in maps. A clone of a set only increments a reference count. A comparison is fast, because
/// unequal sets mostly have unequal hashes and equal sets mostly share one allocation.
pub(super) struct CanonicalSet<T>(Option<Arc<CanonicalSetInner<T>>>);

struct CanonicalSetInner<T> {
    text: Box<str>,
    hash: u64,
    items: BTreeSet<T>,
}

impl<T> CanonicalSet<T> {
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|form| &form.items)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn text(&self) -> &str {
        self.0.as_ref().map_or("", |form| &form.text)
    }

    fn hashed(&self) -> u64 {
        self.0.as_ref().map_or(0, |form| form.hash)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl<T: Ord + fmt::Display> FromIterator<T> for CanonicalSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items: BTreeSet<_> = items.into_iter().collect();
        if items.is_empty() {
            return Self(None);
        }
        let mut text = String::new();
        for item in &items {
            let comma = if text.is_empty() { "" } else { "," };
            // `write!` to a `String` cannot fail.
            let _written = write!(text, "{comma}{item}");
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        Self(Some(Arc::new(CanonicalSetInner { text: text.into(), hash, items })))
    }
}

impl<T> Clone for CanonicalSet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for CanonicalSet<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> PartialEq for CanonicalSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || (self.hashed() == other.hashed() && self.text() == other.text())
    }
}

impl<T> Eq for CanonicalSet<T> {}

impl<T> PartialOrd for CanonicalSet<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for CanonicalSet<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_same(other) { Ordering::Equal } else { self.text().cmp(other.text()) }
    }
}

impl<T> Hash for CanonicalSet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hashed());
    }
}

impl<T> fmt::Debug for CanonicalSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_shares_the_allocation() {
        let set: CanonicalSet<u8> = [3, 1, 2, 3].into_iter().collect();
        let clone = set.clone();
        assert!(set.is_same(&clone) && set == clone);
        assert_eq!(clone.text(), "1,2,3");
    }

    #[test]
    fn equal_sets_with_different_allocations_are_equal_and_have_equal_hashes() {
        let hash = |set: &CanonicalSet<u8>| {
            let mut hasher = DefaultHasher::new();
            set.hash(&mut hasher);
            hasher.finish()
        };
        let (first, other): (CanonicalSet<u8>, CanonicalSet<u8>) =
            ([2, 1].into_iter().collect(), [1, 2, 2].into_iter().collect());
        assert!(!first.is_same(&other));
        assert_eq!(
            (&first, first.cmp(&other), hash(&first)),
            (&other, Ordering::Equal, hash(&other))
        );
        let (more, none) = ([1, 2, 3].into_iter().collect(), CanonicalSet::default());
        assert!(first != more && first < more && none < first && none != first && none.is_empty());
        assert_eq!(none, [].into_iter().collect());
    }
}
