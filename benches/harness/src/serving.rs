//! The address and the certificate of an operator's read API.

use anyhow::Result;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

/// An address of this host with a port that is free now. Another process could take the port, but
/// an operator binds it within milliseconds.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
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
