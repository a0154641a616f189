//! What the repository holds besides code: generated files, documents, examples, layers. Needs Rust alone.

mod api_reference;
mod examples;
mod generated;
mod generated_chart;
mod generated_cli;
mod layering;
mod metrics;
mod monitoring;
mod plugin;
mod samples;
mod security;
mod security_tests;
mod tiers;
