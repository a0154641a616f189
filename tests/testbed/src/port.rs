//! Ports for servers that must come back on the same port after a restart.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

use crate::error::{Action, Result};

/// Below the range that Linux hands out to outgoing connections (32768 and up): a connection that
/// happens to get our port while the server is down would keep it from starting again.
const RANGE: std::ops::Range<u16> = 18_000..32_000;

/// Those that this process has been given: several control planes start at a time, and none of them listens on its
/// port at once.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 that nobody listens on right now. This process is given it once.
///
/// # Errors
/// When 100 random ports are all taken, or were given before.
pub(crate) fn free() -> Result<u16> {
    let mut last = None;
    for _ in 0..100 {
        let port = fastrand::u16(RANGE);
        if !GIVEN.lock().insert(port) {
            continue;
        }
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
        .action(|| format!("find a free port in {RANGE:?}"))
}
