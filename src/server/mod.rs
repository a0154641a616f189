//! The HTTP side: probes, metrics and a look inside, on the admin address; reads, on the read address.

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
