//! The admin server: an HTTP server for probes, metrics and debug information.

mod admin;
mod cached_response;
mod debug;
#[cfg(test)]
mod fixtures;
mod guard;
mod listen;
mod loopback;
mod readiness;
mod readyz;

pub use self::{
    admin::{AdminState, LogFilterSetter, MetricsAccess},
    listen::{AdminListener, bind},
    readiness::{DeclaredInformers, ReadinessTracker},
};
