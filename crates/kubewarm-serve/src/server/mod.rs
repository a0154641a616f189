//! The server of the read address: serves stores as the Kubernetes API, and forwards other requests.

mod api;
mod api_server_version;
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
    api_server_version::ApiServerVersion,
    forward::{RequestForwarder, WriteObserver},
    listen::{ConnectionSlots, ReadListener, bind},
};
