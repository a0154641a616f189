//! The API server as seen from here: connections, discovery, the lease, and who we are to it.

mod answer;
mod client;
mod discovery;
mod document;
pub mod fault;
mod lease;
mod namespace;
mod proxy;
mod served;
mod subject;
mod transport;

pub use self::{
    client::{ConnectError, Connection},
    discovery::{Discovery, Pace, Trouble},
    lease::{Elector, Leadership, LeaseConfig, LeaseState},
    namespace::{Existence, existence},
    served::{Freshness, Served, is_builtin_group},
    subject::whoami,
};
