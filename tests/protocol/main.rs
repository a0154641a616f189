//! Tests the engine against an API server with scripted responses, including faults that a real API
//! server cannot be made to produce.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a script names what is special about it")]

mod accounting;
mod alone;
mod blocked;
mod consistency_checks;
mod discovery;
mod engine;
mod forecast;
mod freshness_checks;
mod history;
mod http_requests;
mod identities;
mod incomplete;
mod large_objects;
mod limits;
mod lists;
mod memory;
mod newest;
mod oracle;
mod order;
mod peers;
mod protobuf;
mod read_engine;
mod read_server;
mod refusals;
mod relisting;
mod reply;
mod rollbacks;
mod server;
mod silence;
mod strict;
mod undecodable;
mod unreachable;
mod unverified;
mod warmup;
mod watches;
