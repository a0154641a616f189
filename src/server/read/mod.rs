//! The read address: what callers may see of what is kept warm, as the Kubernetes API has it.

mod answer;
mod api;
mod body;
mod certificate;
mod connection;
mod listen;
#[cfg(test)]
mod tests;

pub use self::{
    api::{ReadApi, ServerVersion},
    certificate::{Certificate, CertificateError, CertificateFiles, names},
    listen::{ReadError, Reading, bind},
};
