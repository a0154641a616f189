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
mod forwarded_reads;
mod listen;
pub mod metrics;
pub mod reads;
pub mod review;
pub mod server;
mod watcher_registry;

pub use self::{
    applier_registry::ApplierRegistry,
    forwarded_reads::ForwardedReads,
    listen::{ServeError, bind_all_families},
    watcher_registry::WatcherRegistry,
};
