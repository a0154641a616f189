//! The read API: a TLS listener that answers requests of the Kubernetes API from stores.
//!
//! | module | what it is |
//! |---|---|
//! | [`callers`] | who a caller is, and what it may read |
//! | [`reads`] | which store answers, and with what |
//! | [`server`] | connections, requests and answers |
//! | [`certificate`] | the certificate of a listener |
//! | [`metrics`] | what is counted |

pub mod callers;
pub mod certificate;
mod listen;
pub mod metrics;
pub mod reads;
pub mod review;
pub mod server;
mod watchers;

pub use self::{
    listen::{ServeError, everywhere},
    watchers::Watchers,
};
