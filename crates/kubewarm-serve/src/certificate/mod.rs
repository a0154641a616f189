//! The certificate of an address: of files that are read again when they change, or made by this process
//! and gone with it.

pub(crate) mod file;

pub use self::file::look_after;

use self::file::{Files, Loaded, read};
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    CipherSuite, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem, pem::PemObject as _},
    server::{
        ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
};
use std::{
    fmt::{self, Write as _},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What clients may speak, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What an address shows of itself.
pub struct Certificate(Source);

/// Where it is from.
enum Source {
    Files(Loaded<CertificateFiles>),
    Made(Arc<CertifiedKey>),
}

/// A chain and its key, each in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those between it and the CA.
    pub certificate: PathBuf,
    /// The key of the first of them.
    pub key: PathBuf,
}

/// There is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// As the user wrote it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} holds no {what} in PEM", path.display())]
    Pem {
        /// As the user wrote it.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        #[source]
        source: pem::Error,
    },
    /// The key cannot be used, or is of another certificate.
    #[error("the certificate and the key cannot be used together")]
    Pair(#[source] rustls::Error),
    /// A CA cannot be used.
    #[error("{} holds a certificate that cannot be a CA's", path.display())]
    Authority {
        /// As the user wrote it.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// There is no CA.
    #[error("{} holds no certificate of a CA in PEM", path.display())]
    Authorities {
        /// As the user wrote it.
        path: PathBuf,
        /// Why.
        #[source]
        source: VerifierBuilderError,
    },
    /// None can be made.
    #[error("no certificate can be made for this process")]
    Made(#[source] rcgen::Error),
}

/// Whom a certificate of our own is for: this host in every form a port-forward is asked for by, the pod,
/// and the Service in the namespace of the operator.
#[must_use]
pub fn names(host: &str, namespace: &str) -> Vec<String> {
    let service = format!("kubewarm.{namespace}");
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubewarm"].map(Into::into).into();
    names.extend([format!("{service}.svc"), format!("{service}.svc.cluster.local"), service]);
    let host = host.to_ascii_lowercase();
    // Else no name of a certificate: the host name is the node's or the pod's, whoever chose it.
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_name && !host.is_empty() && !names.contains(&host) {
        names.push(host);
    }
    names
}

impl Certificate {
    /// The one in `files`, which is read again while it is served.
    ///
    /// # Errors
    ///
    /// [`CertificateError`].
    pub fn of_files(files: CertificateFiles) -> Result<Self, CertificateError> {
        Loaded::of(files).map(Source::Files).map(Self)
    }

    /// One for `names` that no other process has, signed by itself.
    ///
    /// # Errors
    ///
    /// [`CertificateError::Made`], [`CertificateError::Pair`].
    pub fn self_signed(names: Vec<String>) -> Result<Self, CertificateError> {
        let made = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut wanted = CertificateParams::new(names)?;
            wanted.distinguished_name.push(DnType::CommonName, "kubewarm, self-signed");
            wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let certificate = wanted.self_signed(&key)?;
            Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der())))
        };
        let (certificate, key) = made().map_err(CertificateError::Made)?;
        let pair = pair(vec![certificate], key.into())?;
        Ok(Self(Source::Made(Arc::new(pair))))
    }

    /// SHA-256 of the certificate that is shown now, as `openssl x509 -fingerprint -sha256` writes it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.shown())
    }

    /// The certificate that is shown now, in DER.
    #[must_use]
    pub fn der(&self) -> Option<CertificateDer<'static>> {
        self.shown().cert.first().cloned()
    }

    /// Takes the files if they have changed. What cannot be used changes nothing but the log, once.
    pub fn refresh(&self) {
        let Source::Files(files) = &self.0 else { return };
        if let Some(pair) = files.refresh() {
            let (file, sha256) = (files.files().certificate.display(), fingerprint(&pair));
            tracing::info!(%file, %sha256, "the certificate has changed");
        }
    }

    fn files(&self) -> Option<&CertificateFiles> {
        match &self.0 {
            Source::Files(files) => Some(files.files()),
            Source::Made(_) => None,
        }
    }

    fn shown(&self) -> Arc<CertifiedKey> {
        match &self.0 {
            Source::Files(files) => files.held(),
            Source::Made(pair) => Arc::clone(pair),
        }
    }

    /// What a server needs that shows this certificate, whichever there is at each handshake, and has clients
    /// show theirs to `clients`, if that is wanted.
    ///
    /// # Errors
    ///
    /// [`CertificateError`] if no TLS version or cipher is left.
    pub fn tls(
        self: &Arc<Self>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let clients = clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        let mut provider = provider();
        // Clients in Rust name AES-256 first. Go's servers, the API server's among them, choose AES-128 whatever comes
        // first, as it takes a third less of the processor.
        provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Pair)?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(resolver);
        config.ignore_client_order = true;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(Arc::new(config))
    }
}

const fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// As everywhere here.
pub(crate) fn provider() -> CryptoProvider {
    default_provider()
}

fn pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, CertificateError> {
    CertifiedKey::from_der(chain, key, &provider()).map_err(CertificateError::Pair)
}

fn fingerprint(pair: &CertifiedKey) -> String {
    let mut text = String::new();
    let hash = pair.cert.first().map(|certificate| digest(&SHA256, certificate));
    for (at, byte) in hash.iter().flat_map(AsRef::as_ref).enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        // A `String` takes all.
        let _written = write!(text, "{colon}{byte:02X}");
    }
    text
}

impl Files for CertificateFiles {
    type Held = CertifiedKey;
    const NAME: &str = "the certificate";

    fn paths(&self) -> Vec<&Path> {
        vec![&self.certificate, &self.key]
    }

    fn load(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let Self { certificate, key } = self;
        let not = |path: &Path, what| {
            let path = path.to_owned();
            move |source| CertificateError::Pem { path, what, source }
        };
        let bytes = |path: &Path| {
            read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source })
        };
        let chain = CertificateDer::pem_slice_iter(&bytes(certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .and_then(
                |chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(not(certificate, "certificate"))?;
        let secret = zeroize::Zeroizing::new(bytes(key)?);
        let key = PrivateKeyDer::from_pem_slice(&secret).map_err(not(key, "key"))?;
        pair(chain, key).map(Arc::new)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other half is a secret.
        f.debug_struct("Certificate")
            .field("sha256", &self.fingerprint())
            .field("files", &self.files())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A certificate for `name` and its key, in PEM.
    fn made(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let wanted = CertificateParams::new([name.to_owned()]).unwrap();
        (wanted.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(certificate: &str, key: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write(certificate, key);
            folder
        }

        fn files(&self) -> CertificateFiles {
            let path = |name| self.0.path().join(name);
            CertificateFiles { certificate: path("tls.crt"), key: path("tls.key") }
        }

        fn write(&self, certificate: &str, key: &str) {
            let files = self.files();
            // As a Secret is swapped: another file, so that no clock decides whether it has changed.
            for (path, text) in [(files.certificate, certificate), (files.key, key)] {
                let next = path.with_extension("next");
                fs::write(&next, text).unwrap();
                fs::rename(next, path).unwrap();
            }
        }
    }

    #[test]
    fn a_pair_that_changes_is_taken_and_a_broken_one_is_not() {
        let (first, first_key) = made("first");
        let (second, second_key) = made("second");
        let folder = Folder::with(&first, &first_key);
        let certificate = Certificate::of_files(folder.files()).unwrap();
        let shown = certificate.fingerprint();
        certificate.refresh();
        assert_eq!(certificate.fingerprint(), shown);
        for (broken, broken_key) in
            [(&*second, &*first_key), ("", &*second_key), (&*second, "no key"), ("", "")]
        {
            folder.write(broken, broken_key);
            certificate.refresh();
            assert_eq!(certificate.fingerprint(), shown);
        }
        fs::remove_file(folder.files().key).unwrap();
        certificate.refresh();
        assert_eq!(certificate.fingerprint(), shown);
        folder.write(&second, &second_key);
        certificate.refresh();
        assert_ne!(certificate.fingerprint(), shown);
    }

    #[test]
    fn at_the_start_what_is_broken_is_an_error_that_names_the_file() {
        let (first, key) = made("first");
        let (_, other) = made("other");
        for (certificate, key, said) in [
            ("", &*key, "tls.crt holds no certificate"),
            (&*first, "", "tls.key holds no key"),
            (&*first, &*other, "cannot be used together"),
        ] {
            let folder = Folder::with(certificate, key);
            let error = Certificate::of_files(folder.files()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let nowhere = PathBuf::from("/nowhere/tls.crt");
        let files = CertificateFiles { certificate: nowhere.clone(), key: nowhere };
        let error = Certificate::of_files(files).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/tls.crt cannot be read");
    }

    #[test]
    fn each_process_has_a_certificate_of_its_own_and_shows_no_key() {
        let [one, other] = [(); 2]
            .map(|()| Certificate::self_signed(names("kubewarm-0", "kubewarm-system")).unwrap());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.fingerprint().len(), 32 * 3 - 1);
        let shown = format!("{one:?}");
        assert!(
            shown.contains(&one.fingerprint()) && !shown.to_lowercase().contains("key"),
            "{shown}"
        );
    }

    #[test]
    fn the_service_is_named_in_every_form_and_a_host_that_is_no_name_left_out() {
        let found = names("kubewarm-7d9f-x2x", "ops");
        for name in ["localhost", "kubewarm-7d9f-x2x", "kubewarm.ops", "kubewarm.ops.svc"] {
            assert!(found.iter().any(|found| found == name), "{name} in {found:?}");
        }
        let without = names("Ünder score", "ops");
        assert_eq!(without.len(), found.len() - 1);
        assert!(Certificate::self_signed(without).is_ok());
    }
}
