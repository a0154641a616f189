//! Proxies between kubewarm and the API server, which close, slow down or break connections as a
//! load balancer or a network can do.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::operator::Operator;
use crate::world::{Failure, World};

/// The time after which the proxy of [`kubeconfig`] closes a connection.
const LIFE: Duration = Duration::from_secs(2);

/// The time that the API server gets to execute a request whose response the proxy drops.
const EXECUTION: Duration = Duration::from_millis(500);

/// The interval at which a connection checks whether the outage has begun.
const POLL: Duration = Duration::from_millis(10);

/// Bytes that a slow connection passes before each pause: 4,000 bytes a second.
const SLOW_STEP: usize = 400;
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// Starts a proxy in front of the API server and returns the operator's kubeconfig with the proxy's
/// address. The proxy's thread ends with the process.
pub(crate) fn kubeconfig(world: &World) -> Result<PathBuf, Failure> {
    proxy(world, pass)
}

/// Starts a proxy in front of the API server. While `is_armed` is true, the proxy breaks each
/// connection at the client's next request: it sends the request to the API server, drops the
/// response, and closes the connection.
pub(crate) fn breaker(world: &World, is_armed: &Arc<AtomicBool>) -> Result<PathBuf, Failure> {
    let is_armed = Arc::clone(is_armed);
    proxy(world, move |client, upstream| pass_unless_armed(client, upstream, &is_armed))
}

/// Starts a proxy in front of the API server. While `is_slow` is true, the proxy passes at most
/// 4,000 bytes of a second's responses in each connection.
pub(crate) fn slowed(world: &World, is_slow: &Arc<AtomicBool>) -> Result<PathBuf, Failure> {
    let is_slow = Arc::clone(is_slow);
    proxy(world, move |client, upstream| pass_slowly(client, upstream, &is_slow))
}

/// Starts a proxy in front of the API server. While `is_down` is true, it closes all connections at
/// once.
pub(crate) fn outage(world: &World, is_down: &Arc<AtomicBool>) -> Result<PathBuf, Failure> {
    let is_down = Arc::clone(is_down);
    proxy(world, move |client, upstream| pass_until_down(client, upstream, &is_down))
}

fn proxy(
    world: &World,
    pass: impl Fn(&TcpStream, SocketAddr) -> std::io::Result<()> + Clone + Send + 'static,
) -> Result<PathBuf, Failure> {
    let server = world.cluster.server_url();
    let upstream: SocketAddr = server.strip_prefix("https://").ok_or("no https")?.parse()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let path = Operator::kubeconfig_through(world, "cutter", listener.local_addr()?)?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let pass = pass.clone();
            thread::spawn(move || drop(pass(&client, upstream)));
        }
    });
    Ok(path)
}

/// Starts to copy bytes in both directions. The result is true when one direction has ended.
fn copy_both_ways(client: &TcpStream, server: &TcpStream) -> std::io::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for (from, to) in [(client, server), (server, client)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let _ended = std::io::copy(&mut from, &mut to);
            is_over.store(true, Ordering::SeqCst);
        });
    }
    Ok(is_over)
}

/// Copies bytes in both directions until the time is over.
fn pass(client: &TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    copy_both_ways(client, &server)?;
    thread::sleep(LIFE);
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)
}

/// Copies bytes in both directions until `is_down` is true.
fn pass_until_down(
    client: &TcpStream,
    upstream: SocketAddr,
    is_down: &AtomicBool,
) -> std::io::Result<()> {
    if is_down.load(Ordering::SeqCst) {
        return client.shutdown(Shutdown::Both);
    }
    let server = TcpStream::connect(upstream)?;
    let is_over = copy_both_ways(client, &server)?;
    while !is_down.load(Ordering::SeqCst) && !is_over.load(Ordering::SeqCst) {
        thread::sleep(POLL);
    }
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)
}

/// Copies bytes in both directions, and the responses slowly while `is_slow` is true.
fn pass_slowly(
    client: &TcpStream,
    upstream: SocketAddr,
    is_slow: &AtomicBool,
) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    let (mut requests, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ended = std::io::copy(&mut requests, &mut to);
        to.shutdown(Shutdown::Write)
    });
    let (mut answers, mut to, mut bytes) = (&server, client, [0; 16 << 10]);
    loop {
        let room = if is_slow.load(Ordering::SeqCst) { SLOW_STEP } else { bytes.len() };
        let read = answers.read(&mut bytes[..room])?;
        if read == 0 {
            return client.shutdown(Shutdown::Both);
        }
        to.write_all(&bytes[..read])?;
        if room == SLOW_STEP {
            thread::sleep(SLOW_PAUSE);
        }
    }
}

/// Copies bytes in both directions until the client sends bytes while `is_armed` is true.
fn pass_unless_armed(
    client: &TcpStream,
    upstream: SocketAddr,
    is_armed: &AtomicBool,
) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    let is_cut = Arc::new(AtomicBool::new(false));
    let (mut answers, mut to, is_dropped) =
        (server.try_clone()?, client.try_clone()?, Arc::clone(&is_cut));
    thread::spawn(move || -> std::io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            let read = answers.read(&mut bytes)?;
            if read == 0 {
                return to.shutdown(Shutdown::Both);
            }
            if !is_dropped.load(Ordering::SeqCst) {
                to.write_all(&bytes[..read])?;
            }
        }
    });
    let (mut requests, mut to, mut bytes) = (client, &server, [0; 16 << 10]);
    loop {
        let read = requests.read(&mut bytes)?;
        let is_last = read == 0 || is_armed.load(Ordering::SeqCst);
        is_cut.store(is_last, Ordering::SeqCst);
        to.write_all(&bytes[..read])?;
        if is_last {
            thread::sleep(EXECUTION);
            client.shutdown(Shutdown::Both)?;
            return server.shutdown(Shutdown::Both);
        }
    }
}
