//! The accepted CAs of client certificates, from a file that kubewarm reads again when the file
//! changes.

use crate::{
    ServeError,
    certificate::{
        not_pem, provider,
        reloading_files::{ReloadingFiles, read},
    },
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use x509_parser::{
    certificate::{Validity, X509Certificate},
    prelude::FromDer as _,
    time::ASN1Time,
    x509::X509Version,
};

/// The accepted CAs of client certificates.
pub struct ClientCa(ReloadingFiles<Vec<TrustedCa>>);

/// One accepted CA, with its own verifier, because rustls checks only the key and the name of
/// trusted CAs. The API server checks the rest too (`Certificate.Verify` in Go's `crypto/x509`).
struct TrustedCa {
    verifier: Arc<dyn ClientCertVerifier>,
    validity: Validity,
    certificate: CertificateDer<'static>,
    /// The CA's `pathLenConstraint`: the maximum number of intermediate certificates; `None`
    /// without a limit.
    path_length: Option<u32>,
}

impl ClientCa {
    /// Reads the CAs from the PEM file at `path`.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the file cannot be read, or contains no CA.
    pub fn of_file(path: PathBuf) -> Result<Self, ServeError> {
        let paths = vec![path.clone()];
        ReloadingFiles::new("the CAs of clients", paths, move || load(&path)).map(Self)
    }

    /// Reads the file again if it has changed. If the file is invalid, kubewarm keeps the previous
    /// CAs and logs one warning.
    pub(crate) fn refresh(&self) {
        if self.0.refresh().is_some() {
            let file = self.0.file().display();
            tracing::info!(%file, "the CAs of clients have changed");
        }
    }

    /// Whether the first certificate of `chain` is a client certificate, valid at `now`, that an
    /// accepted CA has signed. All further certificates of `chain` are intermediate certificates.
    pub(super) fn is_signed_by(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((leaf, between)) = chain.split_first() else { return false };
        let may_sign =
            |authority: &&TrustedCa| authority.is_valid_at(now) && authority.permits_path(between);
        self.0.contents().iter().filter(may_sign).any(|authority| {
            let verified = authority.verifier.verify_client_cert(leaf, between, now);
            if let Err(error) = &verified {
                let file = self.0.file().display();
                tracing::debug!(%error, %file, "a CA does not accept a client's certificate");
            }
            verified.is_ok()
        })
    }
}

impl TrustedCa {
    fn of(certificate: CertificateDer<'static>, path: &Path) -> Result<Self, ServeError> {
        let problem = format!("{} holds a certificate that cannot be a CA's", path.display());
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(ServeError::of(problem.clone()))?;
        check_usage(&parsed)
            .map_err(|reason| ServeError::of(format!("{problem}: {}", parsed.subject()))(reason))?;
        let validity = parsed.validity().clone();
        let constraints = parsed.basic_constraints().ok().flatten();
        let path_length = constraints.and_then(|extension| extension.value.path_len_constraint);
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(ServeError::of(problem.clone()))?;
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        let verifier = verifier.map_err(ServeError::of(problem))?;
        Ok(Self { verifier, validity, certificate, path_length })
    }

    /// Whether the CA's `path_length` permits a chain with the intermediate certificates `between`.
    /// If `between` contains the CA itself, the CA does not count.
    fn permits_path(&self, between: &[CertificateDer<'_>]) -> bool {
        let intermediate =
            between.iter().filter(|certificate| ***certificate != *self.certificate).count();
        self.path_length.is_none_or(|most| intermediate as u64 <= most.into())
    }

    fn is_valid_at(&self, now: UnixTime) -> bool {
        let now =
            i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
        now.is_some_and(|now| self.validity.is_valid_at(now))
    }
}

/// Checks that the certificate may sign certificates of clients, by the rules of Go's
/// `CheckSignatureFrom` and of its check of extended key usages.
///
/// # Errors
///
/// The reason why the certificate may not sign them.
fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), &'static str> {
    const UNREADABLE: &str = "its extensions cannot be read";
    let constraints = certificate.basic_constraints().map_err(|_| UNREADABLE)?;
    // Only version 3 has extensions, so a CA of an older version cannot mark itself as a CA. As in
    // Go, each certificate of an older version can be a CA.
    let is_ca = match constraints {
        Some(constraints) => constraints.value.ca,
        None => certificate.version() != X509Version::V3,
    };
    if !is_ca {
        return Err("it is not the certificate of a CA (basicConstraints)");
    }
    let usage = certificate.key_usage().map_err(|_| UNREADABLE)?;
    if usage.is_some_and(|extension| !extension.value.key_cert_sign()) {
        return Err("its keyUsage does not permit to sign certificates");
    }
    let extended = certificate.extended_key_usage().map_err(|_| UNREADABLE)?;
    if extended.is_some_and(|extension| !(extension.value.client_auth || extension.value.any)) {
        return Err("its extendedKeyUsage does not permit clients");
    }
    Ok(())
}

fn load(path: &Path) -> Result<Arc<Vec<TrustedCa>>, ServeError> {
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&read(path)?) {
        all.push(TrustedCa::of(certificate.map_err(not_pem(path, "certificate"))?, path)?);
    }
    if all.is_empty() {
        let problem = format!("{} holds no certificate of a CA in PEM", path.display());
        return Err(ServeError::of(problem)(VerifierBuilderError::NoRootAnchors));
    }
    Ok(Arc::new(all))
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").field("path", &self.0.file()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::identity::fixtures::{signed, signed_with, signed_within};
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    };
    use std::{error::Error as _, fs};

    struct BundleFolder(tempfile::TempDir);

    impl BundleFolder {
        fn with(text: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write(text);
            folder
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("ca.crt")
        }

        /// Replaces the file, as the kubelet does with a mounted Secret. The file then has a new
        /// inode, which shows the change even if the modification time is equal.
        fn write(&self, text: &str) {
            let next = self.file().with_extension("next");
            fs::write(&next, text).unwrap();
            fs::rename(next, self.file()).unwrap();
        }
    }

    #[test]
    fn a_changed_file_is_used_and_a_broken_file_keeps_the_previous_cas() {
        let [(first, of_first), (second, of_second)] = [signed("jane"), signed("jane")];
        let folder = BundleFolder::with(&first);
        let authority = ClientCa::of_file(folder.file()).unwrap();
        let vouches = || {
            authority.refresh();
            [&of_first, &of_second]
                .map(|client| authority.is_signed_by(std::slice::from_ref(client), UnixTime::now()))
        };
        assert_eq!(vouches(), [true, false]);
        let garbled = second.replace("MII", "---");
        let half = format!("{second}{}", &first[..first.len() / 2]);
        for broken in ["", "no certificate", &garbled, &half] {
            folder.write(broken);
            assert_eq!(vouches(), [true, false], "{broken}");
        }
        fs::remove_file(folder.file()).unwrap();
        assert_eq!(vouches(), [true, false]);
        folder.write(&second);
        assert_eq!(vouches(), [false, true]);
        folder.write(&format!("{first}{second}"));
        assert_eq!(vouches(), [true, true]);
        assert!(!authority.is_signed_by(&[], UnixTime::now()));
    }

    #[test]
    fn a_ca_outside_its_validity_accepts_no_certificate() {
        let [(current, of_current), (expired, of_expired), (future, of_future)] =
            [(2000, 3000), (2000, 2001), (2999, 3000)].map(|years| signed_within("jane", years));
        let folder = BundleFolder::with(&format!("{expired}{future}{current}"));
        let authorities = ClientCa::of_file(folder.file()).unwrap();
        let is_accepted = [of_current, of_expired, of_future]
            .map(|client| authorities.is_signed_by(&[client], UnixTime::now()));
        assert_eq!(is_accepted, [true, false, false]);
    }

    #[test]
    fn only_a_certificate_that_may_sign_client_certificates_is_a_ca() {
        type Change = fn(&mut CertificateParams);
        let cases: [(Change, Option<&str>); 7] = [
            (|_| {}, None),
            (|params| params.is_ca = IsCa::NoCa, Some("basicConstraints")),
            (|params| params.is_ca = IsCa::ExplicitNoCa, Some("basicConstraints")),
            (
                |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature],
                Some("keyUsage"),
            ),
            (|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign], None),
            (
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
                Some("extendedKeyUsage"),
            ),
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], None),
        ];
        for (change, expected) in cases {
            let (authority, client) = signed_with("jane", change);
            let folder = BundleFolder::with(&authority);
            match (ClientCa::of_file(folder.file()), expected) {
                (Ok(authority), None) => {
                    assert!(authority.is_signed_by(&[client], UnixTime::now()));
                }
                (Err(error), Some(reason)) => {
                    let source = error.source().map(ToString::to_string).unwrap_or_default();
                    assert!(source.contains(reason), "{error}: {source}");
                }
                (result, _) => panic!("{expected:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_ca_limits_the_number_of_intermediate_certificates() {
        let (authority, client) =
            signed_with("jane", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
        let folder = BundleFolder::with(&authority);
        let bundle = ClientCa::of_file(folder.file()).unwrap();
        let ca = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        let (_, other) = signed("john");
        let is_accepted =
            |chain: &[CertificateDer<'_>]| bundle.is_signed_by(chain, UnixTime::now());
        assert!(is_accepted(std::slice::from_ref(&client)) && is_accepted(&[client.clone(), ca]));
        assert!(!is_accepted(&[client, other]));
    }

    #[test]
    fn a_broken_file_at_the_start_is_an_error_that_names_the_file() {
        for text in ["", "no certificate"] {
            let folder = BundleFolder::with(text);
            let error = ClientCa::of_file(folder.file()).unwrap_err().to_string();
            assert!(error.contains("ca.crt"), "{error}");
        }
        let error = ClientCa::of_file("/nowhere/ca.crt".into()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/ca.crt"), "{error}");
    }
}
