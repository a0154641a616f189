//! Builds, limits and sends the requests of informers, and evaluates the responses.

pub(super) mod access_check;
pub(super) mod digest;
pub(super) mod freshness_checker;
pub(super) mod list_method;
pub(super) mod list_slots;
pub(super) mod list_watch_client;
pub(super) mod request;
pub(super) mod request_builder;
pub(super) mod sample_page;
