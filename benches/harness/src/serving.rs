//! The address and the certificate of an operator's read API.

use anyhow::Result;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The files with which operators copy stores from each other.
#[derive(Debug)]
pub(crate) struct PeerFiles {
    /// The certificate of all operators.
    pub(crate) certificate: ReadApiCertificate,
    token: PathBuf,
}

impl PeerFiles {
    /// Writes `token`, a token for the audience `kubewarm-peer`, to a file in `folder`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn create(
        folder: &Path,
        certificate: ReadApiCertificate,
        token: &str,
    ) -> Result<Self> {
        let path = folder.join("peer-token");
        fs::write(&path, token)?;
        Ok(Self { certificate, token: path })
    }

    /// The flags of an operator whose peer is at `address`.
    pub(crate) fn flags(&self, address: SocketAddr) -> [String; 3] {
        [
            format!("--peer-address={address}"),
            format!("--peer-ca-file={}", self.certificate.authority().display()),
            format!("--peer-token-file={}", self.token.display()),
        ]
    }
}

/// An address of this host with a port that is free now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, testbed::free_port()?).into())
}

/// A self-signed certificate for 127.0.0.1, which several operators can use.
#[derive(Debug)]
pub(crate) struct ReadApiCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl ReadApiCertificate {
    /// Writes a new certificate and its key to `<name>.crt` and `<name>.key` in `folder`.
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self> {
        let file = |extension| folder.join(format!("{name}.{extension}"));
        let files = Self { certificate: file("crt"), key: file("key") };
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(&files.certificate, pair.cert.pem())?;
        fs::write(&files.key, pair.signing_key.serialize_pem())?;
        Ok(files)
    }

    /// The file that clients verify the certificate with.
    pub(crate) fn authority(&self) -> &Path {
        &self.certificate
    }

    /// The operator's flags for a read API at `address` with this certificate.
    pub(crate) fn flags(&self, address: SocketAddr) -> [String; 3] {
        [
            format!("--api-addr={address}"),
            format!("--tls-cert-file={}", self.certificate.display()),
            format!("--tls-private-key-file={}", self.key.display()),
        ]
    }
}
