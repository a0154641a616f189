//! A load balancer that closes connections after a short time.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::operator::NAMESPACE;
use crate::world::{Failure, World};

/// The time after which it closes a connection.
const LIFE: Duration = Duration::from_secs(2);

/// Starts a proxy in front of the API server and returns the operator's kubeconfig with the proxy's
/// address. The proxy's thread ends with the process.
pub(crate) fn kubeconfig(world: &World) -> Result<PathBuf, Failure> {
    let direct = world.cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
    let server = world.cluster.server_url();
    let upstream: SocketAddr = server.strip_prefix("https://").ok_or("no https")?.parse()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("https://{}", listener.local_addr()?);
    let text = std::fs::read_to_string(direct)?;
    let path = world.cluster.folder().join("cutter.kubeconfig");
    std::fs::write(&path, text.replace(&server, &address))?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || drop(pass(&client, upstream)));
        }
    });
    Ok(path)
}

/// Copies bytes in both directions until the time is over.
fn pass(client: &TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    for (from, to) in [(client, &server), (&server, client)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
    thread::sleep(LIFE);
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)
}
