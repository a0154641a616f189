//! Who a client is by the certificate it shows: the authorities that count, and what they vouch for.

mod authority;
mod chain;
#[cfg(test)]
pub(super) mod sample;
mod subject;

pub use self::authority::Authority;

pub(crate) use self::chain::{Asking, Chain};
