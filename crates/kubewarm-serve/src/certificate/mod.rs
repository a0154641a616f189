//! The TLS serving certificate of a listener. kubewarm reads the certificate from files, and reads
//! the files again when they change. Or it issues the certificate itself
//! ([`IssuedCertificates`]). Until then, and without either, kubewarm shows a self-signed
//! certificate that it creates when it starts.

mod certificate_names;
mod certificate_pem;
mod issued_certificates;
mod published_authorities;
pub(crate) mod reloading_files;

pub use self::{
    certificate_names::{CertificateName, CertificateNames, cluster_domain},
    issued_certificates::{
        BUNDLE, CaRotation, CertificateLifetimes, IssuedCertificates, IssuedCertificatesError,
    },
    published_authorities::{PublishedAuthority, published_authorities},
    reloading_files::keep_refreshed,
};

use self::reloading_files::{ReloadingFiles, read};
use crate::ServeError;
use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    CipherSuite, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

const UNUSABLE: &str = "the certificate and the key cannot be used together";

/// A certificate chain with its private key.
pub struct ServingCertificate(ReloadingFiles<CertifiedKey>);

/// The DNS names in a self-signed certificate: the local names for a port-forward, the host name
/// `host`, and the names of kubewarm's Service in the operator's `namespace`.
pub fn names(host: &str, namespace: &str) -> Vec<String> {
    let service = format!("kubewarm.{namespace}");
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubewarm"].map(Into::into).into();
    names.extend([format!("{service}.svc"), format!("{service}.svc.cluster.local"), service]);
    let host = host.to_ascii_lowercase();
    // The result omits a host name with characters that a certificate cannot contain, such as
    // spaces.
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_name && !host.is_empty() && !names.contains(&host) {
        names.push(host);
    }
    names
}

impl ServingCertificate {
    /// Reads the certificate chain and the private key from these PEM files. kubewarm reads the
    /// files again when they change.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if a file cannot be read, or the key does not belong to the certificate.
    pub fn of_files(certificate: PathBuf, key: PathBuf) -> Result<Self, ServeError> {
        let paths = vec![certificate.clone(), key.clone()];
        ReloadingFiles::new("the certificate", paths, move || load(&certificate, &key)).map(Self)
    }

    /// A new self-signed certificate for `names`, with a key that exists only in this process.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the certificate cannot be created.
    pub fn self_signed(names: Vec<String>) -> Result<Self, ServeError> {
        let made = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut parameters = CertificateParams::new(names)?;
            parameters.distinguished_name.push(DnType::CommonName, "kubewarm, self-signed");
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let certificate = parameters.self_signed(&key)?;
            Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der())))
        };
        let (certificate, key) =
            made().map_err(ServeError::of("no certificate can be made for this process"))?;
        let pair = Arc::new(pair(vec![certificate], key.into())?);
        ReloadingFiles::new("the certificate", Vec::new(), move || Ok(Arc::clone(&pair))).map(Self)
    }

    /// Replaces the certificate, where no files are its source. Returns whether it has changed.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the leaf's key does not belong to its certificate. The previous
    /// certificate stays in use.
    pub fn replace(&self, issued: &IssuedCertificates) -> Result<bool, ServeError> {
        let (certificate, key) = issued.leaf();
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(ServeError::of(UNUSABLE))?;
        if chain == self.0.contents().cert {
            return Ok(false);
        }
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(ServeError::of(UNUSABLE))?;
        self.0.replace(Arc::new(pair(chain, key)?));
        Ok(true)
    }

    /// SHA-256 of the current certificate, in the format of `openssl x509 -fingerprint -sha256`.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.0.contents())
    }

    /// The current certificate in DER.
    pub fn der(&self) -> Option<CertificateDer<'static>> {
        self.0.contents().cert.first().cloned()
    }

    /// The time at which the current certificate expires; `None` if the certificate cannot be
    /// parsed.
    pub fn expiry(&self) -> Option<Timestamp> {
        let der = self.der()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
    }

    /// Reads the certificate files again if they have changed. If the files are invalid, kubewarm
    /// keeps the previous certificate and logs one warning.
    pub fn refresh(&self) {
        if let Some(pair) = self.0.refresh() {
            let (file, sha256) = (self.0.file().display(), fingerprint(&pair));
            tracing::info!(%file, %sha256, "the certificate has changed");
        }
    }

    /// The TLS configuration of a server. Each handshake uses the current certificate. `protocols`
    /// are the ALPN protocols, the preferred one first. If `clients` is given, the server requests
    /// a client certificate, and `clients` verifies it.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the TLS library supports no version or cipher.
    pub fn tls(
        self: &Arc<Self>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        protocols: &[&[u8]],
    ) -> Result<ServerConfig, ServeError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let clients = clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        let mut provider = provider();
        // kubewarm's server prefers AES-128, which needs a third less processor time than AES-256.
        // Go servers, such as the API server, prefer AES-128 too, but Rust's TLS clients do not.
        provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(ServeError::of(UNUSABLE))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(resolver);
        config.ignore_client_order = true;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
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

pub(crate) fn provider() -> CryptoProvider {
    default_provider()
}

fn pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, ServeError> {
    CertifiedKey::from_der(chain, key, &provider()).map_err(ServeError::of(UNUSABLE))
}

fn fingerprint(pair: &CertifiedKey) -> String {
    let hash = pair.cert.first().map(|certificate| digest(&SHA256, certificate));
    let bytes = hash.iter().flat_map(AsRef::as_ref).map(|byte| format!("{byte:02X}"));
    bytes.collect::<Vec<_>>().join(":")
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, ServeError> {
    let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
        .map_err(not_pem(certificate, "certificate"))?;
    let secret = zeroize::Zeroizing::new(read(key)?);
    let key = PrivateKeyDer::from_pem_slice(&secret).map_err(not_pem(key, "key"))?;
    pair(chain, key).map(Arc::new)
}

/// Returns a function for `map_err`. Its error names the file `path`, and `what`, the content that
/// the file lacks.
pub(crate) fn not_pem(path: &Path, what: &str) -> impl FnOnce(pem::Error) -> ServeError + use<> {
    ServeError::of(format!("{} holds no {what} in PEM", path.display()))
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.contents())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output contains only the fingerprint, because the private key is secret.
        let sha256 = self.fingerprint();
        f.debug_struct("ServingCertificate").field("sha256", &sha256).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn made(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    struct CertificateFolder(tempfile::TempDir);

    impl CertificateFolder {
        fn with(certificate: &str, key: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write(certificate, key);
            folder
        }

        fn files(&self) -> [PathBuf; 2] {
            ["tls.crt", "tls.key"].map(|name| self.0.path().join(name))
        }

        fn certificate(&self) -> Result<ServingCertificate, ServeError> {
            let [certificate, key] = self.files();
            ServingCertificate::of_files(certificate, key)
        }

        fn write(&self, certificate: &str, key: &str) {
            // Replaces the files, as the kubelet does with a mounted Secret. The files then have
            // new inodes, which show the change even if the modification time is equal.
            for (path, text) in self.files().into_iter().zip([certificate, key]) {
                let next = path.with_extension("next");
                fs::write(&next, text).unwrap();
                fs::rename(next, path).unwrap();
            }
        }
    }

    #[test]
    fn a_changed_pair_is_used_and_a_broken_pair_is_ignored() {
        let (first, first_key) = made("first");
        let (second, second_key) = made("second");
        let folder = CertificateFolder::with(&first, &first_key);
        let certificate = folder.certificate().unwrap();
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
        fs::remove_file(&folder.files()[1]).unwrap();
        certificate.refresh();
        assert_eq!(certificate.fingerprint(), shown);
        folder.write(&second, &second_key);
        certificate.refresh();
        assert_ne!(certificate.fingerprint(), shown);
    }

    #[test]
    fn the_expiry_is_that_of_the_certificate_that_is_shown_now() {
        let made = |year| {
            let key = KeyPair::generate().unwrap();
            let mut parameters = CertificateParams::new(["a".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 2);
            (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let expiry = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let (first, key) = made(2031);
        let folder = CertificateFolder::with(&first, &key);
        let certificate = folder.certificate().unwrap();
        assert_eq!(certificate.expiry(), expiry("2031-01-02T00:00:00Z"));
        let (second, key) = made(2032);
        folder.write(&second, &key);
        certificate.refresh();
        assert_eq!(certificate.expiry(), expiry("2032-01-02T00:00:00Z"));
    }

    #[test]
    fn a_broken_file_at_the_start_is_an_error_that_names_the_file() {
        let (first, key) = made("first");
        let (_, other) = made("other");
        for (certificate, key, reason) in [
            ("", &*key, "tls.crt holds no certificate"),
            (&*first, "", "tls.key holds no key"),
            (&*first, &*other, "cannot be used together"),
        ] {
            let folder = CertificateFolder::with(certificate, key);
            let error = folder.certificate().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let nowhere = PathBuf::from("/nowhere/tls.crt");
        let error = ServingCertificate::of_files(nowhere.clone(), nowhere).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/tls.crt cannot be read");
    }

    #[test]
    fn each_process_has_its_own_certificate_and_debug_output_hides_the_key() {
        let [first, other] = [(); 2].map(|()| {
            ServingCertificate::self_signed(names("kubewarm-0", "kubewarm-system")).unwrap()
        });
        assert_ne!(first.fingerprint(), other.fingerprint());
        assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
        let shown = format!("{first:?}");
        assert!(
            shown.contains(&first.fingerprint()) && !shown.to_lowercase().contains("key"),
            "{shown}"
        );
    }

    #[test]
    fn a_certificate_has_all_names_of_the_service_and_no_invalid_host_name() {
        let all = names("kubewarm-7d9f-x2x", "ops");
        for name in ["localhost", "kubewarm-7d9f-x2x", "kubewarm.ops", "kubewarm.ops.svc"] {
            assert!(all.iter().any(|known| known == name), "{name} in {all:?}");
        }
        let without = names("Ünder score", "ops");
        assert_eq!(without.len(), all.len() - 1);
        assert!(ServingCertificate::self_signed(without).is_ok());
    }
}
