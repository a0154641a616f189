//! The certificates that kubewarm issues to itself, and their rotation.
//!
//! ```text
//!            created                 after 3 lifetimes              expires
//!   (none) ──────────► next CA ────────────────────────► signing CA ─ ─ ─ ─► (none)
//!                         in the bundle       signs the leaf   │ another CA signs
//!                                                              ▼
//!                                                          retired CA, in the bundle until its end
//! ```
//!
//! A client that has read the bundle since the next CA was created can verify each certificate
//! before and after the change of the CA.

#[cfg(test)]
mod tests;

use super::{
    certificate_names::CertificateNames,
    certificate_pem::{CertificateError, CertificatePem, KeyedCertificate, until},
};
use jiff::Timestamp;
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of CAs in the bundle. Each forced rotation adds one, for up to 5 years, and every
/// client parses all of them.
const MAX_AUTHORITIES: usize = 8;

/// The lifetime of a CA, in lifetimes of a leaf.
const AUTHORITY_LEAVES: u32 = 61;

/// Lifetimes of certificates. All follow from that of the leaf, so no two of them can contradict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLifetimes {
    /// Lifetime of the serving certificate, 30 days by default. kubewarm renews it after two
    /// thirds.
    pub leaf: Duration,
}

impl CertificateLifetimes {
    /// 5 years for a leaf of 30 days.
    fn authority(self) -> Duration {
        self.leaf * AUTHORITY_LEAVES
    }

    /// The lifetimes with which kubewarm created a CA of this lifetime.
    pub(super) fn of_authority(lifetime: Duration) -> Self {
        Self { leaf: lifetime / AUTHORITY_LEAVES }
    }

    /// How long clients know a CA before it signs: 90 days for a leaf of 30 days. Within this time,
    /// most pods start again, and so read the bundle again.
    pub(super) fn publication(self) -> Duration {
        self.leaf * 3
    }

    /// Remaining lifetime of the signing CA at which the next one is created. After the publication
    /// of the next CA, half of this time remains for a leader that is late.
    fn succession(self) -> Duration {
        self.publication() * 2
    }
}

/// Whether the next CA can take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaRotation {
    /// After its publication.
    Allowed,
    /// Not while clients cannot read the bundle.
    Suspended,
    /// At once, because a user requested it. Clients without the new bundle fail.
    Forced,
}

/// The certificates of one Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificates {
    signing: KeyedCertificate,
    next: Option<KeyedCertificate>,
    /// CAs that signed earlier leaves. Clients can still have only them.
    retired: Vec<CertificatePem>,
    leaf: KeyedCertificate,
}

/// Why the certificates in a Secret cannot be used or renewed.
#[derive(Debug, thiserror::Error)]
pub enum IssuedCertificatesError {
    /// A key of the Secret has no value, although others have.
    #[error("its key {0} is missing")]
    Missing(&'static str),
    /// A key of the Secret has an unusable value.
    #[error("its key {key} cannot be used")]
    Unusable {
        /// The key of the Secret.
        key: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate cannot be created.
    #[error("a new certificate cannot be created")]
    Creation(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<CertificateError> for IssuedCertificatesError {
    fn from(error: CertificateError) -> Self {
        Self::Creation(error.into())
    }
}

const LEAF: [&str; 2] = ["tls.crt", "tls.key"];
const SIGNING: [&str; 2] = ["signing-ca.crt", "signing-ca.key"];
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
/// The key of Secrets and `ConfigMap`s with the CAs that clients need.
pub const BUNDLE: &str = "ca.crt";

impl IssuedCertificates {
    /// Creates a CA and its first leaf.
    ///
    /// # Errors
    ///
    /// [`IssuedCertificatesError::Creation`] if the cryptography library fails.
    pub fn create(
        names: &CertificateNames,
        lifetimes: CertificateLifetimes,
        now: Timestamp,
    ) -> Result<Self, IssuedCertificatesError> {
        let signing = KeyedCertificate::new_authority(names, now, lifetimes.authority())?;
        let leaf = signing.issue(names, now, lifetimes.leaf)?;
        Ok(Self { signing, next: None, retired: Vec::new(), leaf })
    }

    /// Parses a Secret's data. `None` if the Secret is still empty.
    ///
    /// # Errors
    ///
    /// [`IssuedCertificatesError`] if a key is missing or invalid. kubewarm does not replace such a
    /// Secret, because clients have its CA.
    pub fn parse(
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Option<Self>, IssuedCertificatesError> {
        if data.is_empty() {
            return Ok(None);
        }
        let signing = keyed_certificate(data, SIGNING)?
            .ok_or(IssuedCertificatesError::Missing(SIGNING[0]))?;
        let leaf =
            keyed_certificate(data, LEAF)?.ok_or(IssuedCertificatesError::Missing(LEAF[0]))?;
        let next = keyed_certificate(data, NEXT)?;
        let bundle =
            optional_text(data, BUNDLE)?.ok_or(IssuedCertificatesError::Missing(BUNDLE))?;
        let unusable = |source: CertificateError| unusable(BUNDLE, source);
        let known = [Some(&signing), next.as_ref()].map(|known| known.map(|it| &it.certificate));
        let mut retired = Vec::new();
        for text in split(bundle) {
            let certificate = CertificatePem::parse(&text).map_err(unusable)?;
            if !known.contains(&Some(&certificate)) {
                retired.push(certificate);
            }
        }
        Ok(Some(Self { signing, next, retired, leaf }))
    }

    /// The Secret's data.
    pub fn data(&self) -> BTreeMap<String, Vec<u8>> {
        let pairs =
            [(SIGNING, Some(&self.signing)), (NEXT, self.next.as_ref()), (LEAF, Some(&self.leaf))];
        let pairs = pairs.into_iter().filter_map(|(keys, pair)| Some((keys, pair?)));
        let mut data: BTreeMap<_, _> = pairs
            .flat_map(|([certificate, key], pair)| {
                [(certificate, &pair.certificate.text), (key, &pair.key)]
            })
            .map(|(key, text)| (key.to_owned(), text.clone().into_bytes()))
            .collect();
        data.insert(BUNDLE.to_owned(), self.bundle().into_bytes());
        data
    }

    /// All CAs that clients need, in PEM. The signing one is the first, because some clients read
    /// only one.
    pub fn bundle(&self) -> String {
        self.authorities().map(|authority| authority.text.as_str()).collect()
    }

    fn authorities(&self) -> impl Iterator<Item = &CertificatePem> {
        let keyed = [Some(&self.signing), self.next.as_ref()].into_iter().flatten();
        keyed.map(|keyed| &keyed.certificate).chain(&self.retired)
    }

    /// The serving certificate and its key, in PEM.
    pub fn leaf(&self) -> (&str, &str) {
        (&self.leaf.certificate.text, &self.leaf.key)
    }

    /// Whether the bundle is full, so that no rotation is possible before a CA expires.
    pub fn is_full(&self) -> bool {
        self.authorities().count() >= MAX_AUTHORITIES
    }

    /// The certificates that should replace these at the time `now`; `None` if none should.
    ///
    /// `names` are the names that the leaf should have. A CA with other names is replaced like one
    /// that expires, so a new name is valid only after the publication of its CA. A full bundle
    /// gets no further CA.
    ///
    /// # Errors
    ///
    /// [`IssuedCertificatesError::Creation`].
    pub fn renewed(
        &self,
        names: &CertificateNames,
        lifetimes: CertificateLifetimes,
        now: Timestamp,
        rotation: CaRotation,
    ) -> Result<Option<Self>, IssuedCertificatesError> {
        let mut renewed = self.clone();
        // Another replica's clock can be late.
        let is_over =
            |authority: &CertificatePem| until(now, authority.expires_at) > lifetimes.publication();
        renewed.retired.retain(|authority| !is_over(authority));
        let is_wrong = |authority: &CertificatePem| authority.permitted.as_ref() != Some(names);
        // A next CA for other names has signed nothing, so no client needs it.
        renewed.next = renewed.next.filter(|next| !is_wrong(&next.certificate));
        let signing = &self.signing.certificate;
        let is_useless = signing.expires_at <= now || signing.is_premature(now);
        let is_forced = rotation == CaRotation::Forced || is_useless;
        let is_due = is_wrong(signing) || until(signing.expires_at, now) < lifetimes.succession();
        if renewed.next.is_none() && (is_due || is_forced) && !renewed.is_full() {
            let next = KeyedCertificate::new_authority(names, now, lifetimes.authority())?;
            renewed.next = Some(next);
        }
        let is_ripe = |next: &mut KeyedCertificate| {
            // As `check` computes it, also if `lifetimes` have changed since then.
            let planned = CertificateLifetimes::of_authority(next.certificate.lifetime());
            let is_known = until(now, next.certificate.created_at) >= planned.publication();
            is_forced || (is_known && rotation == CaRotation::Allowed)
        };
        if let Some(next) = renewed.next.take_if(is_ripe) {
            let before = std::mem::replace(&mut renewed.signing, next);
            renewed.retired.push(before.certificate);
        }
        let (authority, leaf) = (&renewed.signing, &renewed.leaf.certificate);
        // A leaf that ends with its CA cannot be replaced by a longer one.
        let is_old = until(leaf.expires_at, now) < lifetimes.leaf / 3
            && leaf.expires_at < authority.certificate.expires_at;
        if is_old || leaf.is_premature(now) || !leaf.is_issued_by(&authority.certificate) {
            // The old names, while the CA does not permit the new ones.
            let permitted = authority.certificate.permitted.as_ref().unwrap_or(names);
            renewed.leaf = authority.issue(permitted, now, lifetimes.leaf)?;
        }
        Ok(Some(renewed).filter(|renewed| renewed != self))
    }
}

fn unusable(
    key: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> IssuedCertificatesError {
    IssuedCertificatesError::Unusable { key, source: source.into() }
}

fn optional_text<'a>(
    data: &'a BTreeMap<String, Vec<u8>>,
    key: &'static str,
) -> Result<Option<&'a str>, IssuedCertificatesError> {
    let value = data.get(key).filter(|value| !value.is_empty());
    value.map(|value| std::str::from_utf8(value)).transpose().map_err(|error| unusable(key, error))
}

fn keyed_certificate(
    data: &BTreeMap<String, Vec<u8>>,
    [certificate, key]: [&'static str; 2],
) -> Result<Option<KeyedCertificate>, IssuedCertificatesError> {
    let Some(text_of_certificate) = optional_text(data, certificate)? else { return Ok(None) };
    let text_of_key = optional_text(data, key)?.ok_or(IssuedCertificatesError::Missing(key))?;
    let pair = KeyedCertificate::parse(text_of_certificate, text_of_key);
    let pair = pair.map_err(|error| match error {
        CertificateError::Key | CertificateError::Pair => unusable(key, error),
        CertificateError::Certificate | CertificateError::Creation(_) => {
            unusable(certificate, error)
        }
    })?;
    Ok(Some(pair))
}

/// The certificates of a bundle, each as a text of its own.
pub(super) fn split(bundle: &str) -> impl Iterator<Item = String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let parts = bundle.split(BEGIN);
    parts.filter(|part| !part.trim().is_empty()).map(|part| format!("{BEGIN}{part}"))
}
