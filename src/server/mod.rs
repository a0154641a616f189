//! The HTTP side: probes, metrics and a look inside, on the admin address; reads, on the read address.

mod admin;
mod authority;
mod certificate;
mod debug;
mod file;
mod front_proxy;
mod guard;
mod hold;
mod listen;
mod local;
pub mod read;
mod readiness;
mod readyz;
#[cfg(test)]
mod sample;
mod subject;
mod trust;
mod watchers;

pub use self::{
    admin::{Admin, SetLogFilter},
    authority::Authority,
    certificate::{Certificate, CertificateError, CertificateFiles, names},
    front_proxy::{FrontProxy, ProxyHeaders},
    guard::Guard,
    listen::{Listening, ServeError, bind},
    readiness::{DeclaredCells, Gate, PendingCell, Readiness},
    trust::Trust,
    watchers::Watchers,
};
