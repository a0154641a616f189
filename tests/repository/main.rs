//! What the repository holds besides code: generated files, documents, examples, layers. Needs Rust alone.

mod api_reference;
mod examples;
mod files;
mod generated;
mod generated_chart;
mod generated_cli;
mod layering;
mod metrics;
mod monitoring;
mod plugin;
mod prose;
mod samples;
mod security;
mod tiers;
