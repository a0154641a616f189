//! The API server as seen from here: connections, discovery, the lease, and who we are to it.

mod client;
mod proxy;
mod transport;

pub use self::client::{ConnectError, Connection};
