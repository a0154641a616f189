//! The operator as a process: starts, restarts and outages of the API server.

mod exposition;
mod fail_open;
mod frozen;
mod injected_by_label;
pub(crate) mod issued_certificates;
mod life;
mod outage;
mod peers;
pub(crate) mod recovery;
