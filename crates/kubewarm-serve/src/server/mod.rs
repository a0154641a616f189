//! The server of the read address: serves stores as the Kubernetes API, and forwards other requests.

mod answer;
mod api;
mod body;
mod connection;
mod forward;
mod gzip;
mod listen;
#[cfg(test)]
mod tests;
mod unwritten;
mod version;
mod watching;

pub use self::{
    api::ReadApi,
    forward::{RequestForwarder, WriteObserver},
    listen::{ConnectionSlots, ReadListener, bind},
    version::ApiServerVersion,
};
