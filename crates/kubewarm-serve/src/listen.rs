//! Listeners of an address, and why an address is not served.

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
    /// Makes an error of its cause, for `map_err`.
    pub fn of<E: Into<BoxError>>(problem: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self { problem: problem.into(), source: source.into() }
    }
}

/// What listens to `address`, and the address that it is: of both families if it is `[::]`.
///
/// # Errors
///
/// Those of the kernel: the address is in use, or nobody's.
pub fn everywhere(address: SocketAddr) -> io::Result<(Vec<TcpListener>, SocketAddr)> {
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
        // On a dual-stack socket this fails, because the first one has it already.
        listeners.extend(TcpListener::bind((Ipv4Addr::UNSPECIFIED, bound.port())));
    }
    Ok((listeners, bound))
}

/// `EAFNOSUPPORT` and `EADDRNOTAVAIL`: built without IPv6, and switched off.
fn is_no_ipv6(error: &io::Error) -> bool {
    /// On Linux; the standard library has no kind for it.
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}
