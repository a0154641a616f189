//! Authenticates clients by certificate: the accepted CAs, and the user in a certificate.

mod authority;
mod chain;
#[cfg(test)]
pub(super) mod sample;
mod subject;

pub use self::authority::ClientCa;

pub(crate) use self::chain::{ClientCertChain, OptionalClientCertVerifier};
