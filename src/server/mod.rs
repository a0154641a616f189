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
    admin::{Admin, Scrapers, SetLogFilter},
    listen::{Listening, bind},
    readiness::{DeclaredCells, Gate},
};
