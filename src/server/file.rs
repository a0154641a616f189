//! Files with certificates, which others replace while they are in use.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// The largest file that is read: a chain has some 5 KiB.
const MAX_FILE: u64 = 1 << 20;

/// What tells a file from its next version: Secrets are swapped by a link, others written in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    pub(super) fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self(found.map(|it| (it.ino(), it.size(), it.mtime(), it.mtime_nsec())))
    }
}

/// The file's first MiB.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}
