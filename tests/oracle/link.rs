//! The network connection (link) between a replica and the API server, which the test can disturb.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the network behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkMode {
    Pass,
    /// Closes open connections, and new ones at once.
    Refuse,
    /// Connections stay open and silent. Their bytes arrive later.
    Hold,
    /// Passes 4,000 bytes of responses a second in each connection.
    Slow,
}

/// Bytes that a slow connection passes before each pause.
const SLOW_STEP: usize = 400;
const SLOW_PAUSE: Duration = Duration::from_millis(100);

/// Listens, and forwards connections to `upstream` in the mode that `modes` contains last. Returns
/// the address of the listener.
pub(crate) async fn serve(
    upstream: SocketAddr,
    modes: watch::Receiver<LinkMode>,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let modes = modes.clone();
            // An error closes the connection, as in a real network.
            tokio::spawn(async move { drop(forward(client, upstream, modes).await) });
        }
    });
    Ok(address)
}

async fn forward(
    mut client: TcpStream,
    upstream: SocketAddr,
    mut modes: watch::Receiver<LinkMode>,
) -> std::io::Result<()> {
    if *modes.borrow() == LinkMode::Refuse {
        return Ok(());
    }
    let mut server = TcpStream::connect(upstream).await?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        ended = copy(from_client, to_server, modes.clone(), false) => ended,
        ended = copy(from_server, to_client, modes.clone(), true) => ended,
        _ = modes.wait_for(|mode| *mode == LinkMode::Refuse) => Ok(()),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut modes: watch::Receiver<LinkMode>,
    is_response: bool,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let is_slow = is_response && *modes.borrow() == LinkMode::Slow;
        let room = if is_slow { SLOW_STEP } else { bytes.len() };
        let read = from.read(&mut bytes[..room]).await?;
        if read == 0 {
            return Ok(());
        }
        // This wait does not fail, because the sender of the modes lives as long as the run.
        let _ = modes.wait_for(|mode| *mode != LinkMode::Hold).await;
        to.write_all(&bytes[..read]).await?;
        if is_slow {
            tokio::time::sleep(SLOW_PAUSE).await;
        }
    }
}
