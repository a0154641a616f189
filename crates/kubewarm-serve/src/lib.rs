//! kubewarm's read API: a TLS listener that answers Kubernetes API requests from the stores in
//! memory.
//!
//! | module | content |
//! |---|---|
//! | [`callers`] | authenticates, authorizes and limits callers |
//! | [`reads`] | selects the store and the objects that answer a read |
//! | [`server`] | serves connections, and forwards requests to the API server |
//! | [`certificate`] | the serving certificate of a listener |
//! | [`metrics`] | metrics of requests and watches |

mod applier_registry;
pub mod callers;
pub mod certificate;
mod listen;
pub mod metrics;
pub mod reads;
pub mod review;
pub mod server;
mod user_reads;
mod watcher_registry;

pub use self::{
    applier_registry::ApplierRegistry,
    listen::{ServeError, bind_all_families},
    user_reads::UserReads,
    watcher_registry::WatcherRegistry,
};
