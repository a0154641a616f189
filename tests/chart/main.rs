//! Tests the chart as Helm 3 and Helm 4 render and install it, on a real API server.

mod cluster;
mod contents;
mod helm_test;
mod installs;
mod manifests;
mod monitoring;
mod pods;
mod post_renderer;
mod refusals;
mod render;
mod scraped;
mod upgrades;
