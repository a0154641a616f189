//! The HTTP side: probes, metrics and a look inside, on the admin address; reads, on the read address.

mod admin;
mod certificate;
mod debug;
mod file;
mod guard;
mod hold;
mod listen;
mod local;
pub mod read;
mod readiness;
mod readyz;
mod review;
#[cfg(test)]
mod sample;
mod watchers;

pub use self::{
    admin::{Admin, Scrapers, SetLogFilter},
    certificate::{Certificate, CertificateError, CertificateFiles, names},
    guard::Guard,
    listen::{Listening, ServeError, bind},
    readiness::{DeclaredCells, Gate, PendingCell, Readiness},
    watchers::Watchers,
};
