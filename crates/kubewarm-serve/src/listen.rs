//! Binds TCP listeners, and defines [`ServeError`], the error of a server that cannot start.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};
use tower::BoxError;

/// The error of a server that cannot start or continue. It contains the failed step and the cause
/// of the failure.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ServeError {
    problem: String,
    source: BoxError,
}

impl ServeError {
    /// Returns a function for `map_err` that creates a `ServeError` from `problem`, the failed
    /// step, and the original error.
    pub fn of<E: Into<BoxError>>(problem: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self { problem: problem.into(), source: source.into() }
    }
}

/// How many connections wait until the server accepts them, as at the API server. The standard
/// library's 128 are too few for the clients of a server that has just restarted. Linux limits the
/// number to `net.core.somaxconn`, which is 4,096 by default.
const BACKLOG: i32 = 4_096;

/// Binds `address`. Returns the listeners and the bound address. If `address` has port 0, the bound
/// address has the port that the kernel has chosen. `[::]` binds all IPv4 and IPv6 addresses of the
/// host.
///
/// # Errors
///
/// The kernel's errors: the address is in use, or it is not an address of this host.
pub fn bind_all_families(address: SocketAddr) -> io::Result<(Vec<TcpListener>, SocketAddr)> {
    let is_everywhere = address.is_ipv6() && address.ip().is_unspecified();
    let first = match TcpListener::bind(address) {
        Err(error) if is_everywhere && is_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))?
        }
        bound => bound?,
    };
    let bound = first.local_addr()?;
    let mut listeners = vec![first];
    if is_everywhere && bound.is_ipv6() {
        // If the first listener already accepts IPv4 too, this bind fails, and is not needed.
        listeners.extend(TcpListener::bind((Ipv4Addr::UNSPECIFIED, bound.port())));
    }
    for listener in &listeners {
        // The standard library has already called `listen`. A second call changes only the backlog.
        rustix::net::listen(listener, BACKLOG)?;
    }
    Ok((listeners, bound))
}

/// Whether the error means that the host has no IPv6: `EAFNOSUPPORT` if the kernel lacks IPv6,
/// `EADDRNOTAVAIL` if IPv6 is disabled.
fn is_no_ipv6(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}
