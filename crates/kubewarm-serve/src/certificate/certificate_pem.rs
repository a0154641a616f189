//! Certificates in PEM, and the creation of a CA and of the certificates that it signs.

use super::certificate_names::CertificateNames;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::{fmt, time::Duration};
use x509_parser::{certificate::X509Certificate, pem::parse_x509_pem, prelude::FromDer as _};

/// How long before its creation a certificate is valid, because clients' clocks can be late.
const BACKDATING: SignedDuration = SignedDuration::from_hours(1);

/// A certificate in PEM, with what the rotation needs to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificatePem {
    /// The text, with one line break at the end, and without further certificates.
    pub(super) text: String,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// The names that a CA's constraints permit; `None` if there are no constraints.
    pub(super) permitted: Option<CertificateNames>,
    subject: String,
    issuer: String,
    public_key: Vec<u8>,
}

/// A certificate with its private key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct KeyedCertificate {
    pub(super) certificate: CertificatePem,
    /// PKCS #8, in PEM.
    pub(super) key: String,
}

/// Why a certificate cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("it is not a certificate in PEM")]
    Certificate,
    #[error("it is not a private key in PEM")]
    // Without a cause, because its text could quote a line of the key.
    Key,
    #[error("the key does not belong to the certificate")]
    Pair,
    #[error("no certificate can be created")]
    Creation(#[from] rcgen::Error),
}

impl CertificatePem {
    /// Parses the first certificate in `text`.
    pub(super) fn parse(text: &str) -> Result<Self, CertificateError> {
        let (_, pem) =
            parse_x509_pem(text.as_bytes()).map_err(|_| CertificateError::Certificate)?;
        let (_, certificate) =
            X509Certificate::from_der(&pem.contents).map_err(|_| CertificateError::Certificate)?;
        let validity = certificate.validity();
        let at = |second| Timestamp::from_second(second).map_err(|_| CertificateError::Certificate);
        let begin = at(validity.not_before.timestamp())?;
        Ok(Self {
            text: format!("{}\n", text.trim()),
            created_at: begin.checked_add(BACKDATING).unwrap_or(begin),
            expires_at: at(validity.not_after.timestamp())?,
            permitted: CertificateNames::permitted(&certificate),
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// The time from the creation to the expiry.
    pub(super) fn lifetime(&self) -> Duration {
        until(self.expires_at, self.created_at)
    }

    /// Whether clients whose clock is right reject the certificate as not valid yet. The clock of
    /// the replica that created it was then wrong.
    pub(super) fn is_premature(&self, now: Timestamp) -> bool {
        until(self.created_at, now) > BACKDATING.unsigned_abs()
    }

    /// Whether the CA `authority` issued this certificate. Each CA has a name of its own.
    pub(super) fn is_issued_by(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }
}

impl KeyedCertificate {
    /// Parses a certificate and its key.
    pub(super) fn parse(certificate: &str, key: &str) -> Result<Self, CertificateError> {
        let certificate = CertificatePem::parse(certificate)?;
        let pair = KeyPair::from_pem(key).map_err(|_| CertificateError::Key)?;
        if pair.public_key_raw() != certificate.public_key {
            return Err(CertificateError::Pair);
        }
        Ok(Self { certificate, key: key.to_owned() })
    }

    /// Creates a CA that can sign certificates for only these names.
    pub(super) fn new_authority(
        names: &CertificateNames,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Self, CertificateError> {
        let mut parameters = CertificateParams::default();
        // Verifiers find a CA by its name, so two CAs of one bundle need different names.
        let name = format!("kubewarm {:016x}", fastrand::u64(..));
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Name constraints do not cover the names of client certificates.
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.name_constraints = Some(names.constraints());
        set_validity(&mut parameters, now, now.checked_add(lifetime).unwrap_or(Timestamp::MAX));
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        Self::parse(&certificate.pem(), &key.serialize_pem())
    }

    /// Creates a serving certificate, which this CA signs. The certificate expires with the CA at
    /// the latest.
    pub(super) fn issue(
        &self,
        names: &CertificateNames,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Self, CertificateError> {
        let key = KeyPair::from_pem(&self.key).map_err(|_| CertificateError::Key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate.text, key)?;
        let mut parameters = CertificateParams::default();
        parameters.subject_alt_names = names.subject_alt_names()?;
        parameters.distinguished_name.push(DnType::CommonName, "kubewarm");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let expires_at = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        set_validity(&mut parameters, now, expires_at.min(self.certificate.expires_at));
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &issuer)?;
        Self::parse(&certificate.pem(), &key.serialize_pem())
    }
}

/// The time from `now` to `then`, or zero.
pub(super) fn until(then: Timestamp, now: Timestamp) -> Duration {
    then.duration_since(now).try_into().unwrap_or_default()
}

fn set_validity(parameters: &mut CertificateParams, now: Timestamp, expires_at: Timestamp) {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    parameters.not_before = at(now.checked_sub(BACKDATING).unwrap_or(now));
    parameters.not_after = at(expires_at);
}

impl fmt::Debug for KeyedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the key, which is secret.
        f.debug_struct("KeyedCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
