//! Library of the kubewarm operator and command line. kubewarm keeps declared Kubernetes resources
//! in memory and reports how complete and fresh they are.
#![allow(missing_docs, reason = "only the programs and tests of this package use the library")]

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
