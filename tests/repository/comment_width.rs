//! Tests that comments have at most the width of code. rustfmt does not check this.

use crate::files::files;
use std::{fs, path::Path};

/// `max_width` in `rustfmt.toml`.
const COLUMNS: usize = 100;

#[test]
fn comments_have_at_most_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_wanted =
        |path: &Path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    let folders = ["src", "crates", "tests", "benches", "examples"];
    let mut wide = Vec::new();
    for path in folders.iter().flat_map(|folder| files(&root.join(folder), is_wanted)) {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| is_too_wide(line));
        wide.extend(lines.map(|(at, _)| format!("{}:{}", path.display(), at + 1)));
    }
    assert!(wide.is_empty(), "comments with more than {COLUMNS} columns: {wide:#?}");
}

/// Whether a line is too wide. Lines of tables and drawings may be wide, because they cannot be
/// wrapped.
fn is_too_wide(line: &str) -> bool {
    line.trim_start().starts_with("//")
        && line.chars().count() > COLUMNS
        && !line.contains(['|', '│', '─', '►'])
}
