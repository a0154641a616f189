//! Writes kubeconfig files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{Action, Result};

/// The credential of a kubeconfig's user.
pub(crate) enum Credential<'a> {
    /// A client certificate and its key.
    Certificate { certificate: &'a Path, key: &'a Path },
    /// A bearer token.
    Token(&'a str),
}

/// Writes the kubeconfig of one user of one cluster, readable by its owner only.
pub(crate) fn write(
    path: &Path,
    server: &str,
    ca: &Path,
    credential: &Credential<'_>,
) -> Result<()> {
    let user = match credential {
        Credential::Certificate { certificate, key } => format!(
            "client-certificate: {}\n    client-key: {}",
            certificate.display(),
            key.display()
        ),
        Credential::Token(token) => format!("token: {token}"),
    };
    let ca = ca.display();
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: {server}
    certificate-authority: {ca}
users:
- name: user
  user:
    {user}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: user
current-context: testbed
"
    );
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .action(|| format!("write {}", path.display()))
}
