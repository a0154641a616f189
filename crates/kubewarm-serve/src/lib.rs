//! The read API: a TLS listener that answers Kubernetes API requests from the stores in memory.
//!
//! | module | content |
//! |---|---|
//! | [`callers`] | authenticates, authorizes and limits callers |
//! | [`reads`] | chooses the store that answers a read, and the objects |
//! | [`server`] | serves connections, and forwards requests |
//! | [`certificate`] | the serving certificate of a listener |
//! | [`metrics`] | metrics of requests and watches |

pub mod callers;
pub mod certificate;
mod listen;
pub mod metrics;
pub mod reads;
pub mod review;
pub mod server;
mod watcher_registry;

pub use self::{
    listen::{ServeError, bind_all_families},
    watcher_registry::WatcherRegistry,
};
