//! The HTTP side: probes, metrics and a look inside, on the admin address.

mod admin;
mod debug;
mod hold;
mod listen;
mod local;
mod readiness;
mod readyz;
#[cfg(test)]
mod sample;

pub use self::{
    admin::{Admin, SetLogFilter},
    listen::{Listening, ServeError, bind},
    readiness::{DeclaredCells, Gate, PendingCell, Readiness},
};
