//! The HTTP side: probes, metrics and a look inside, on the admin address.

mod admin;
mod debug;
mod decisions;
mod guard;
mod hold;
mod listen;
mod local;
mod places;
mod readiness;
mod readyz;
#[cfg(test)]
mod sample;

pub use self::{
    admin::{Admin, SetLogFilter},
    guard::{Decide, Guard, NoRandomness},
    listen::{Listening, ServeError, bind},
    readiness::{DeclaredCells, Gate, PendingCell, Readiness},
};
