//! Tests of files that no compiler checks: generated files, documents, examples and import rules.
//! They need no programs except Rust's.

mod api_reference;
mod comment_width;
mod conditions;
mod examples;
mod files;
mod generated;
mod generated_chart;
mod generated_cli;
mod layering;
mod links;
mod metrics;
mod monitoring;
mod plugin;
mod prose;
mod samples;
mod security;
mod security_tests;
mod tiers;
mod type_names;

use std::{fs, path::Path};

/// The text of a file in the repository.
#[expect(clippy::panic, reason = "a test may panic")]
fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}
