//! Ports for servers that must use the same port after a restart.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use parking_lot::Mutex;

use crate::error::{Action, Result};

/// The range of ports. It is below the range from which Linux chooses ports (32768 and up), because
/// an outgoing connection or a server with port 0 could take the port while the server is down.
const RANGE: std::ops::Range<u16> = 18_000..32_000;

/// The ports that this process has handed out. Several control planes start at the same time, and
/// none of them listens on its ports at once. So a free port can already belong to another one.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port of 127.0.0.1 that is free now. This process hands it out once, and Linux never
/// chooses it.
///
/// # Errors
/// When 100 random ports are all in use, or were handed out before.
pub fn free_port() -> Result<u16> {
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
