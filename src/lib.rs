//! kubewarm keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
pub mod access;
pub mod api;
pub mod app;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod forecast;
pub mod informer;
pub mod manifests;
pub mod metrics;
pub mod model;
pub mod server;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod wire;
