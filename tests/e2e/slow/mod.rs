//! Tests that wait for minutes, or that need Prometheus: `make test` leaves them out,
//! `make test-all` runs them.

mod churn;
mod claims;
mod crowd;
mod flood;
mod grace;
mod monitoring;
mod oldest;
mod picture;
mod prometheus;
mod protobuf;
mod quiet;
mod rbac_reviews;
mod recovery;
mod replay;
