//! The rules and the dashboards: tested, documented, and made of metrics that exist. `tests/prometheus` runs promtool.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod dashboard;
mod names;
mod promql;
mod rules;

use std::{fs, path::Path};

/// The text of a file in the repository.
fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}
