//! Who a client is by the certificate it shows: the authorities that count, and what they vouch for.

mod authorities;
mod authority;
mod front_proxy;
mod subject;

pub use self::{
    authorities::ClientAuthorities,
    authority::Authority,
    front_proxy::{FrontProxy, ProxyHeaders},
};

pub(super) use self::authorities::{Asking, Chain};
