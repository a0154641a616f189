//! kubewarm on a real API server. Never skipped: what is missing (Go, to build the server) is said.

mod access;
mod authorizer;
mod authors;
mod churn;
mod command_line;
mod contents;
mod figures;
mod frozen;
mod identity;
mod kinds;
mod life;
mod manifests;
mod operator;
mod oracle;
mod outage;
mod profile;
mod rbac;
mod redefined;
mod replicas;
mod schema;
mod secrets;
mod selectors;
mod status_writes;
mod verification;
mod world;
mod writers;
