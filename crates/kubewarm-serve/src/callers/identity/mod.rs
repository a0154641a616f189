//! Authenticates clients by certificate.

mod client_ca;
mod client_cert_chain;
#[cfg(test)]
pub(super) mod fixtures;
mod subject;

pub use self::client_ca::ClientCa;

pub(crate) use self::client_cert_chain::{ClientCertChain, OptionalClientCertVerifier};
