//! What a client of the bundle can know about its CAs.

use super::{
    certificate_pem::CertificatePem,
    issued_certificates::{CertificateLifetimes, split},
};
use jiff::Timestamp;

/// A CA in a bundle that kubewarm has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedAuthority {
    /// When kubewarm created the CA and published it.
    pub published_at: Timestamp,
    /// When the CA signs the certificate at the latest. For the CA that signs now, this is its
    /// publication.
    pub signs_at: Timestamp,
}

/// The CA in `bundle` that signs kubewarm's certificate, and the one that will sign next. The
/// earlier ones do not count. Empty if the bundle contains no certificate that kubewarm created.
pub fn published_authorities(bundle: &str) -> Vec<PublishedAuthority> {
    let parsed = split(bundle).filter_map(|text| CertificatePem::parse(&text).ok());
    let mut parsed = parsed.filter(|authority| authority.permitted.is_some());
    // The bundle begins with the CA that signs.
    let Some(signing) = parsed.next() else { return Vec::new() };
    let next = parsed.filter(|authority| authority.created_at > signing.created_at).map(|next| {
        let publication = CertificateLifetimes::of_authority(next.lifetime()).publication();
        let signs_at = next.created_at.checked_add(publication).unwrap_or(Timestamp::MAX);
        PublishedAuthority { published_at: next.created_at, signs_at }
    });
    let at = signing.created_at;
    let signing = PublishedAuthority { published_at: at, signs_at: at };
    [signing].into_iter().chain(next).collect()
}
