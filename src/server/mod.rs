//! The HTTP server of the admin address: probes, metrics and debug information.

mod admin;
mod debug;
mod guard;
mod hold;
mod listen;
mod local;
mod readiness;
mod readyz;
#[cfg(test)]
mod sample;

pub use self::{
    admin::{AdminState, LogFilterSetter, MetricsAccess},
    listen::{AdminListener, bind},
    readiness::{DeclaredInformers, ReadinessTracker},
};
