//! Tests of the repository's other files: generated files, documents, examples and import rules. They need
//! Rust alone.

mod api_reference;
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
