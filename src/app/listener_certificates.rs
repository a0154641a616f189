//! The serving certificates of the admin server and the read API, from their source: files, the
//! Secret of `--certificate-secret`, or this process.

use super::AppError;
use crate::{cli::RunArgs, metrics::TlsListener};
use kubewarm_serve::{
    ServeError,
    certificate::{ServingCertificate, names},
};
use std::{path::PathBuf, sync::Arc};

/// The certificates of this replica's listeners.
#[derive(Clone)]
pub(super) struct ListenerCertificates {
    /// The certificate that kubewarm issues, which all listeners share. `None` without
    /// `--certificate-secret`. Self-signed until kubewarm has read the Secret.
    pub(super) issued: Option<Arc<ServingCertificate>>,
    /// `None` without TLS.
    pub(super) admin: Option<Arc<ServingCertificate>>,
    /// `None` without a read API.
    pub(super) read: Option<Arc<ServingCertificate>>,
}

impl ListenerCertificates {
    /// Loads the certificates. `namespace` is the operator namespace.
    ///
    /// # Errors
    ///
    /// [`AppError`] if a file cannot be read, or a certificate cannot be created.
    pub(super) fn load(args: &RunArgs, namespace: &str) -> Result<Self, AppError> {
        let is_issued = args.certificate.certificate_secret.is_some();
        let issued =
            is_issued.then(|| load(None, namespace)).transpose().map_err(AppError::Serve)?;
        let from = |files| issued.clone().map_or_else(|| load(files, namespace), Ok);
        let files = args.admin_tls_cert_file.clone().zip(args.admin_tls_private_key_file.clone());
        let is_tls = args.admin_tls || files.is_some();
        let admin = is_tls.then(|| from(files)).transpose();
        let admin = admin
            .map_err(ServeError::of("the admin address has no certificate"))
            .map_err(AppError::Serve)?;
        let files = args.api.tls_cert_file.clone().zip(args.api.tls_private_key_file.clone());
        let read = args.api.api_addr.map(|_| from(files)).transpose();
        let read = read
            .map_err(ServeError::of("the read address has no certificate"))
            .map_err(AppError::Read)?;
        Ok(Self { issued, admin, read })
    }

    /// The certificates with their listeners, for metrics.
    pub(super) fn list(&self) -> Vec<(TlsListener, Arc<ServingCertificate>)> {
        let all = [(TlsListener::Admin, &self.admin), (TlsListener::Read, &self.read)];
        all.into_iter().filter_map(|(listener, one)| Some((listener, one.clone()?))).collect()
    }
}

/// Loads a certificate from `files`, or creates one that is self-signed for this host and all names
/// of the Service in `namespace`.
fn load(
    files: Option<(PathBuf, PathBuf)>,
    namespace: &str,
) -> Result<Arc<ServingCertificate>, ServeError> {
    let certificate = if let Some((certificate, key)) = files {
        ServingCertificate::of_files(certificate, key)?
    } else {
        let host = std::env::var("HOSTNAME").unwrap_or_default();
        ServingCertificate::self_signed(names(&host, namespace))?
    };
    Ok(Arc::new(certificate))
}
