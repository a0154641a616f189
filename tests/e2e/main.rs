//! kubewarm on a real API server. Never skipped: what is missing (Go, to build the server) is said.

mod schema;
mod world;
