//! The memory of an allocation.

/// Returns the number of bytes that the allocator uses for an allocation of `size` bytes. The store
/// reports these bytes as its memory, so this memory matches the growth of the process.
///
/// The function uses the rule of glibc's malloc: an 8-byte header, steps of 16 bytes, at least 32
/// bytes.
pub(super) const fn taken(size: usize) -> usize {
    match size {
        0 => 0,
        1..=24 => 32,
        _ => (size + 8).next_multiple_of(16),
    }
}
