//! Ports for servers that must come back on the same port after a restart.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Action, Result};

/// Below the range that Linux hands out to outgoing connections (32768 and up): a connection that
/// happens to get our port while the server is down would keep it from starting again.
const RANGE: std::ops::Range<u16> = 18_000..32_000;

/// A port of 127.0.0.1 that nobody listens on right now.
///
/// # Errors
/// When 100 random ports are all taken.
pub(crate) fn free() -> Result<u16> {
    let mut last = None;
    for _ in 0..100 {
        let port = fastrand::u16(RANGE);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
        .action(|| format!("find a free port in {RANGE:?}"))
}
