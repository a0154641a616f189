//! Helpers of the cases: control planes, operators, profiles and clients. `make soak` and
//! `make oracle` use some of them.

pub(crate) mod accept;
pub(crate) mod api;
pub(crate) mod authorizer;
pub(crate) mod client;
pub(crate) mod contents;
pub(crate) mod cutter;
pub(crate) mod figures;
pub(crate) mod filling;
pub(crate) mod kinds;
pub(crate) mod operator;
pub(crate) mod pool;
pub(crate) mod profile;
pub(crate) mod requests;
pub(crate) mod world;
pub(crate) mod writers;
