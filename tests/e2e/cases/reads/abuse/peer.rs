//! Connections to the read address that send arbitrary bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Fault;
use crate::api::Served;
use crate::world::Failure;

/// The address to connect to, and the token to send.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    roots: RootCertStore,
}

/// The head of an answer, and the part of the body that arrived.
#[derive(Clone, Debug)]
pub(crate) struct RawResponse {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Peer {
    pub(crate) fn of(served: &Served, token: &str) -> Result<Self, Failure> {
        let pem = std::fs::read(served.authority())?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem)?)?;
        let url = served.url()?;
        let address = url.trim_start_matches("https://").parse()?;
        Ok(Self { address, token: token.to_owned(), roots })
    }

    /// The same address with another token.
    pub(crate) fn with_token(&self, token: String) -> Self {
        Self { token, ..self.clone() }
    }

    /// Opens a TLS connection and offers only `protocol` in ALPN.
    pub(crate) async fn tls(
        &self,
        tcp: TcpStream,
        protocol: &str,
    ) -> Result<TlsStream<TcpStream>, Fault> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp).await?)
    }

    /// Sends `bytes` over a new HTTP/1.1 connection and returns the answer that arrives within
    /// `within`. Returns `None` if nothing arrives.
    pub(crate) async fn send(
        &self,
        bytes: &[u8],
        within: Duration,
    ) -> Result<Option<RawResponse>, Fault> {
        let mut stream = self.tls(TcpStream::connect(self.address).await?, "http/1.1").await?;
        // The server may answer and close the connection before it has read everything.
        let _said = stream.write_all(bytes).await;
        let mut received = Vec::new();
        // The connection may end with an error. The bytes that arrived before count.
        let _end = timeout(within, stream.read_to_end(&mut received)).await;
        RawResponse::of(&received)
    }
}

impl RawResponse {
    fn of(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let end =
            bytes.windows(4).position(|end| end == b"\r\n\r\n").ok_or("an unfinished head")?;
        let (head, body) = bytes.split_at(end + 4);
        let head = String::from_utf8(head.to_vec())?.to_lowercase();
        let code = head.split(' ').nth(1).ok_or("no code")?.parse()?;
        Ok(Some(Self { code, body: body.to_vec(), head }))
    }
}
