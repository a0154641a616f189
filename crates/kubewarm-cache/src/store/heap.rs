//! What an allocation really takes, so that what tables report is what the process grows by.

/// Bytes that the allocator takes for `size`: a header of 8, whole steps of 16, at least 32. Of
/// glibc, where the operator is measured; others round in steps of an eighth, which comes to the same
/// for records of some hundred bytes.
pub(super) const fn taken(size: usize) -> usize {
    match size {
        0 => 0,
        1..=24 => 32,
        _ => (size + 8).next_multiple_of(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_take_more_than_they_hold() {
        assert_eq!([0, 1, 24, 25, 40, 41, 250].map(taken), [0, 32, 32, 48, 48, 64, 272]);
    }
}
