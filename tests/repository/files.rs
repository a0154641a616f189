//! Finds files of the repository, for tests that read many of them.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The files at or below `path` for which `is_wanted` returns true, sorted. Does not read a folder
/// for which `is_wanted` returns false.
pub(crate) fn files(path: &Path, is_wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    if !is_wanted(path) {
        return Vec::new();
    }
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("the folder is readable");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    let mut paths: Vec<_> = paths.flat_map(|path| files(&path, is_wanted)).collect();
    paths.sort();
    paths
}
