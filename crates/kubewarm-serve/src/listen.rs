//! Binds the listeners of an address, and reports why an address cannot be served.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};
use tower::BoxError;

/// Why an address cannot be served: what failed, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ServeError {
    problem: String,
    source: BoxError,
}

impl ServeError {
    /// Adds `problem` to its cause. For use with `map_err`.
    pub fn of<E: Into<BoxError>>(problem: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self { problem: problem.into(), source: source.into() }
    }
}

/// Binds `address`, and returns the listeners with the bound address. `[::]` binds all IPv4 and IPv6 addresses.
///
/// # Errors
///
/// The kernel's errors: the address is in use, or it is not an address of this host.
pub fn bind_all_families(address: SocketAddr) -> io::Result<(Vec<TcpListener>, SocketAddr)> {
    let everywhere = address.is_ipv6() && address.ip().is_unspecified();
    let first = match TcpListener::bind(address) {
        Err(error) if everywhere && is_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))?
        }
        bound => bound?,
    };
    let bound = first.local_addr()?;
    let mut listeners = vec![first];
    if everywhere && bound.is_ipv6() {
        // Fails on a dual-stack socket, because the first listener also accepts IPv4.
        listeners.extend(TcpListener::bind((Ipv4Addr::UNSPECIFIED, bound.port())));
    }
    Ok((listeners, bound))
}

/// `EAFNOSUPPORT` if the kernel has no IPv6, and `EADDRNOTAVAIL` if IPv6 is disabled.
fn is_no_ipv6(error: &io::Error) -> bool {
    /// The value on Linux. The standard library has no `ErrorKind` for it.
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}
