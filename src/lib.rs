//! kubewarm keeps declared Kubernetes resources warm, and says how warm and how fresh they are.
pub mod access;
pub mod app;
pub mod cli;
pub mod commands;
pub mod controller;
pub mod forecast;
pub mod metrics;
pub mod server;
pub mod status;
pub mod telemetry;
