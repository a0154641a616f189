//! The API server as seen from here: connections, discovery, the lease, and who we are to it.

mod answer;
mod client;
mod namespace;
mod proxy;
mod subject;
mod transport;

pub use self::{
    client::{ConnectError, Connection},
    namespace::{Existence, existence},
    subject::whoami,
};
