//! CAs whose word about clients counts: of a file that is read again when it changes.

use super::{
    certificate::{CertificateError, provider},
    file::{Stamp, read},
};
use parking_lot::{Mutex, RwLock};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    error::Error,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The CAs of one file.
pub struct Authority {
    path: PathBuf,
    verifier: RwLock<Arc<dyn ClientCertVerifier>>,
    /// The file as it was when it was last tried.
    tried: Mutex<Stamp>,
}

impl Authority {
    /// Those of the file at `path`, in PEM.
    ///
    /// # Errors
    ///
    /// [`CertificateError`].
    pub fn of_file(path: &Path) -> Result<Self, CertificateError> {
        let tried = Mutex::new(Stamp::of(path));
        let verifier = RwLock::new(load(path)?);
        Ok(Self { path: path.to_owned(), verifier, tried })
    }

    /// Takes the file if it has changed. What cannot be used changes nothing but the log, once.
    pub(super) fn refresh(&self) {
        let stamp = Stamp::of(&self.path);
        let mut tried = self.tried.lock();
        if *tried == stamp {
            return;
        }
        *tried = stamp;
        let file = self.path.display();
        match load(&self.path) {
            Ok(verifier) => {
                *self.verifier.write() = verifier;
                tracing::info!(%file, "the CAs of clients have changed");
            }
            Err(error) => {
                let error: &(dyn Error + 'static) = &error;
                tracing::warn!(
                    error,
                    "the CAs of clients have changed and cannot be used; those before stay"
                );
            }
        }
    }

    /// Whether one of them says that the first of `chain` is a client's, at `now`: the rest leads there.
    pub(super) fn vouches_for(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((own, between)) = chain.split_first() else { return false };
        let verifier = Arc::clone(&self.verifier.read());
        let found = verifier.verify_client_cert(own, between, now);
        if let Err(error) = &found {
            tracing::debug!(%error, file = %self.path.display(), "a client's certificate is not accepted");
        }
        found.is_ok()
    }
}

fn load(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let file = || path.to_owned();
    let bytes = read(path).map_err(|source| CertificateError::Read { path: file(), source })?;
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_slice_iter(&bytes) {
        let found = found.map_err(|source| CertificateError::Pem {
            path: file(),
            what: "certificate",
            source,
        })?;
        roots.add(found).map_err(|source| CertificateError::Authority { path: file(), source })?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()))
        .build()
        .map_err(|source| CertificateError::Authorities { path: file(), source })
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("path", &self.path).finish_non_exhaustive()
    }
}
