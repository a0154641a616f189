//! kubewarm on a real API server. Never skipped: what is missing (Go, to build the server) is said.

mod command_line;
mod manifests;
mod schema;
mod status_writes;
mod world;
