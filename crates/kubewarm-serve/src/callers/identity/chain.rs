//! The certificates that a client shows, and whose they are.
//!
//! As with the API server, a handshake proves only that a client has the key of the certificate that it shows.
//! Whether that is anybody's is asked of each request: a client whose certificate counts for nothing may have
//! a token all the same.

use super::{authority::Authority, subject::user_of};
use crate::certificate::provider;
use kubewarm_client::{User, Who};
use parking_lot::Mutex;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long what a certificate was good for stays so: it may have ended, and so may its CA's word.
const KNOWN: Duration = Duration::from_secs(10);
/// The longest chain, in bytes: each connection holds one, and usual ones have some 5 KiB.
const MAX_CHAIN: usize = 16 << 10;
/// Certificates between a client's own and the CA: whoever verifies tries their orders, one after the other.
const MAX_BETWEEN: usize = 4;

/// The chain that a client has shown, for as long as its connection lives.
pub(crate) struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    authority: Arc<Authority>,
    known: Mutex<Option<(Instant, Option<Arc<User>>)>>,
}

impl Chain {
    pub(crate) fn new(certificates: &[CertificateDer<'_>], authority: Arc<Authority>) -> Self {
        let certificates = certificates.iter().map(|it| it.clone().into_owned()).collect();
        Self { certificates, authority, known: Mutex::default() }
    }

    /// Who the certificate says is calling, as verified now or at most 10 s ago. `None` if no CA that counts vouches for it,
    /// so that a token counts.
    pub(crate) fn who(&self) -> Option<Who> {
        self.user().map(Who::of)
    }

    fn user(&self) -> Option<Arc<User>> {
        let mut known = self.known.lock();
        if let Some((at, user)) = &*known
            && at.elapsed() < KNOWN
        {
            return user.clone();
        }
        // A certificate is parsed only once a CA vouches for it.
        let is_good = self.authority.vouches_for(&self.certificates, UnixTime::now());
        let own = self.certificates.first().filter(|_| is_good);
        let user = own.and_then(|own| user_of(own)).map(Arc::new);
        *known = Some((Instant::now(), user.clone()));
        user
    }
}

/// Has clients show a certificate if they have one, and prove that it is theirs.
#[derive(Debug)]
pub(crate) struct Asking(WebPkiSupportedAlgorithms);

impl Asking {
    pub(crate) fn verifier() -> Arc<dyn ClientCertVerifier> {
        Arc::new(Self(provider().signature_verification_algorithms))
    }
}

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: what counts may change while clients are connected.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if between.len() > MAX_BETWEEN {
            return Err(Error::General(
                "the client's chain has more than 5 certificates".to_owned(),
            ));
        }
        let bytes = own.len() + between.iter().map(|it| it.len()).sum::<usize>();
        if bytes > MAX_CHAIN {
            return Err(Error::General("the client's chain is longer than 16 KiB".to_owned()));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::identity::sample::chain;

    #[test]
    fn a_certificate_says_who_it_is_of_and_nobody_is_anonymous() {
        let (known, other) = (chain("jane"), chain("jane"));
        assert!(matches!(known.who(), Some(Who::Known(user)) if user.name == "jane"));
        assert_eq!(chain("system:anonymous").who(), Some(Who::Unknown));
        let of_no_ca = Chain::new(&known.certificates, Arc::clone(&other.authority));
        assert_eq!(of_no_ca.who(), None);
    }

    #[test]
    fn chains_are_bounded_before_anybody_looks_into_them() {
        let asking = Asking::verifier();
        let now = UnixTime::now();
        let shown = |length: usize, between: usize| {
            let one = || CertificateDer::from(vec![0; length]);
            let between: Vec<_> = std::iter::repeat_with(one).take(between).collect();
            asking.verify_client_cert(&one(), &between, now).is_ok()
        };
        assert!(shown(1_000, 0) && shown(1_000, MAX_BETWEEN));
        assert!(!shown(1_000, MAX_BETWEEN + 1));
        assert!(!shown(MAX_CHAIN, 1));
    }
}
