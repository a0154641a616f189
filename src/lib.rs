//! Library of the kubewarm operator and of its command line. kubewarm keeps in memory the resources
//! that CacheProfiles declare, and reports how complete and fresh its stores are.
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
