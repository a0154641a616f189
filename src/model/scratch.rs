//! Bytes that objects pass through, wiped where they may be the payload of secrets.

use std::{fmt, ops::Deref};
use zeroize::Zeroize as _;

/// Whether bytes may be the payload of secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sensitivity {
    /// They are not.
    #[default]
    Ordinary,
    /// They may be: memory is overwritten before it is given back or used again.
    Secret,
}

/// A growing buffer that leaves nothing of a secret behind: not when it is cleared, grows, or is
/// dropped. Its owner bounds it.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    sensitivity: Sensitivity,
}

impl Scratch {
    /// Empty.
    #[must_use]
    pub const fn new(sensitivity: Sensitivity) -> Self {
        Self { bytes: Vec::new(), sensitivity }
    }

    /// Adds bytes at the end.
    ///
    /// # Cost
    ///
    /// As of a `Vec`; of secrets, growing also overwrites what is left behind.
    pub fn extend_from_slice(&mut self, more: &[u8]) {
        let wanted = self.bytes.len().saturating_add(more.len());
        if self.sensitivity == Sensitivity::Secret && self.bytes.capacity() < wanted {
            // A `Vec` that moves gives its old memory back as it is.
            let room = wanted.max(self.bytes.capacity().saturating_mul(2));
            let mut larger = Vec::with_capacity(room);
            larger.extend_from_slice(&self.bytes);
            self.bytes.zeroize();
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(more);
    }

    /// Keeps the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Empties it; it keeps its memory.
    pub fn clear(&mut self) {
        match self.sensitivity {
            Sensitivity::Ordinary => self.bytes.clear(),
            Sensitivity::Secret => self.bytes.zeroize(),
        }
    }

    /// Gives the memory back that it does not need for what it holds.
    pub fn shrink(&mut self) {
        match self.sensitivity {
            Sensitivity::Ordinary => self.bytes.shrink_to_fit(),
            Sensitivity::Secret => {
                let kept = self.bytes.clone();
                self.bytes.zeroize();
                self.bytes = kept;
            }
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.sensitivity == Sensitivity::Secret {
            self.bytes.zeroize();
        }
    }
}

impl fmt::Debug for Scratch {
    /// How much, never what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// What is in the memory of this process at `at`, though nobody owns it any more.
///
/// For tests that prove that something was wiped; `None` where nothing is mapped.
#[cfg(test)]
pub(crate) fn remains(at: usize, length: usize) -> Option<Vec<u8>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut memory = std::fs::File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(at as u64)).ok()?;
    let mut bytes = vec![0; length];
    memory.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"hunter2-hunter2-";

    /// Whether the memory that `of` held still holds something of the secret, once `end` is done.
    fn survives(sensitivity: Sensitivity, end: impl FnOnce(Scratch) -> Option<Scratch>) -> bool {
        let mut scratch = Scratch::new(sensitivity);
        for _ in 0..64 {
            scratch.extend_from_slice(SECRET);
        }
        let (at, length) = (scratch.as_ptr() as usize, scratch.len());
        let kept = end(scratch);
        let found = remains(at, length).unwrap_or_default();
        drop(kept);
        found.windows(SECRET.len()).any(|window| window == SECRET)
    }

    #[test]
    fn nothing_of_a_secret_is_left_in_memory_that_is_given_back() {
        assert!(survives(Sensitivity::Ordinary, |_| None), "this test sees what is left");
        assert!(!survives(Sensitivity::Secret, |_| None), "dropped");
        assert!(!survives(Sensitivity::Secret, |mut scratch| {
            scratch.clear();
            Some(scratch)
        }));
        assert!(!survives(Sensitivity::Secret, |mut scratch| {
            scratch.extend_from_slice(&vec![b'x'; 1 << 20]);
            Some(scratch)
        }));
        assert!(!survives(Sensitivity::Secret, |mut scratch| {
            scratch.truncate(8);
            scratch.shrink();
            Some(scratch)
        }));
    }

    #[test]
    fn a_buffer_never_shows_what_it_holds() {
        let mut scratch = Scratch::new(Sensitivity::Ordinary);
        scratch.extend_from_slice(SECRET);
        assert_eq!((format!("{scratch:?}"), &*scratch), ("16 bytes".to_owned(), SECRET));
    }
}
