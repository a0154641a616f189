//! Authenticates clients by certificate: the accepted CAs, and the user in a certificate.

mod authority;
mod chain;
#[cfg(test)]
pub(super) mod sample;
mod subject;

pub use self::authority::Authority;

pub(crate) use self::chain::{Asking, Chain};
