//! The operator as a process: starts, restarts and outages of the API server.

mod exposition;
mod frozen;
mod life;
mod outage;
pub(crate) mod recovery;
