//! The server of the read API: answers Kubernetes API requests from informers' stores, and can forward further
//! requests to the API server.

mod api;
mod api_server_version_cache;
mod body;
mod connection;
mod forward;
mod gzip;
mod listen;
mod pending_response;
mod rejection;
mod response;
#[cfg(test)]
mod tests;
mod watch_session;

pub use self::{
    api::ReadApi,
    api_server_version_cache::ApiServerVersionCache,
    forward::{RequestForwarder, WriteObserver},
    listen::{ConnectionSlots, ReadListener, bind},
};
