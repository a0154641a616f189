//! The server of the read API: answers Kubernetes API requests from informers' stores, and can
//! forward further requests to the API server.

mod api;
mod body;
mod connection;
mod forward;
mod gzip;
mod listen;
mod peer_stores;
mod rejection;
mod response;
mod route;
#[cfg(test)]
mod tests;
mod unwritten_response;
mod watch_review;
mod watch_session;

pub use self::{
    api::ReadApi,
    forward::{RequestForwarder, WriteObserver},
    listen::{ConnectionSlots, ReadListener, bind},
    peer_stores::PeerStores,
};
