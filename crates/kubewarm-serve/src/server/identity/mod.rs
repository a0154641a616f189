//! Who a client is by the certificate it shows: the authorities that count, and what they vouch for.

mod authority;
mod chain;
mod subject;

pub use self::authority::Authority;

pub(super) use self::chain::{Asking, Chain};
