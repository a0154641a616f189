//! The certificates that a client presents, and the user that they authenticate.
//!
//! As in the API server, the TLS handshake verifies only that the client has the key of its
//! certificate. For each request, kubewarm then verifies that an accepted CA has signed the
//! certificate. A client whose certificate no accepted CA has signed can still send a token.

use super::{client_ca::ClientCa, subject::user_of};
use crate::certificate::provider;
use kubewarm_client::{AuthenticationResult, CallerInfo};
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

/// How long kubewarm caches the result of a certificate's verification. So kubewarm rejects an
/// expired certificate, or a certificate of a removed CA, at most 10 s too late.
const VERIFICATION_TTL: Duration = Duration::from_secs(10);
/// The maximum size of a client's certificate chain in bytes. kubewarm keeps the chain in memory as
/// long as the connection is open. Usual chains have about 5 KiB.
const MAX_CHAIN: usize = 16 << 10;
/// The maximum number of intermediate certificates in a chain. A longer chain would make the
/// verification slow, because the verification tries the certificates in every order.
const MAX_INTERMEDIATES: usize = 4;

/// The certificates that a client has presented in the TLS handshake of its connection.
pub(crate) struct ClientCertChain {
    certificates: Vec<CertificateDer<'static>>,
    authority: Arc<ClientCa>,
    known: Mutex<Option<(Instant, Option<Arc<CallerInfo>>)>>,
}

impl ClientCertChain {
    pub(crate) fn new(certificates: &[CertificateDer<'_>], authority: Arc<ClientCa>) -> Self {
        let certificates =
            certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { certificates, authority, known: Mutex::default() }
    }

    /// The user that the client certificate authenticates, from a verification at most 10 s ago.
    /// `None` if no accepted CA has signed the certificate; the caller then needs a token.
    pub(crate) fn authenticate(&self) -> Option<AuthenticationResult> {
        self.user().map(AuthenticationResult::of)
    }

    fn user(&self) -> Option<Arc<CallerInfo>> {
        let mut known = self.known.lock();
        if let Some((at, user)) = &*known
            && at.elapsed() < VERIFICATION_TTL
        {
            return user.clone();
        }
        // kubewarm parses only certificates that an accepted CA has signed, so an attacker cannot
        // pass hostile input to this parser.
        let is_good = self.authority.is_signed_by(&self.certificates, UnixTime::now());
        let leaf = self.certificates.first().filter(|_| is_good);
        let user = leaf.and_then(|leaf| user_of(leaf)).map(Arc::new);
        *known = Some((Instant::now(), user.clone()));
        user
    }
}

/// The TLS verifier that requests a client certificate in the handshake and verifies that the
/// client has the certificate's key. Clients without a certificate can connect too.
#[derive(Debug)]
pub(crate) struct OptionalClientCertVerifier(WebPkiSupportedAlgorithms);

impl OptionalClientCertVerifier {
    pub(crate) fn verifier() -> Arc<dyn ClientCertVerifier> {
        Arc::new(Self(provider().signature_verification_algorithms))
    }
}

impl ClientCertVerifier for OptionalClientCertVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// The server sends clients no names of CAs, because the accepted CAs can change while clients
    /// are connected.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if between.len() > MAX_INTERMEDIATES {
            return Err(Error::General(
                "the client's chain has more than 5 certificates".to_owned(),
            ));
        }
        let bytes = leaf.len() + between.iter().map(|certificate| certificate.len()).sum::<usize>();
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
    use crate::callers::identity::fixtures::chain;

    #[test]
    fn a_certificate_identifies_its_user_and_never_an_anonymous_one() {
        let (known, other) = (chain("jane"), chain("jane"));
        assert!(
            matches!(known.authenticate(), Some(AuthenticationResult::Known(user)) if user.name == "jane")
        );
        assert_eq!(chain("system:anonymous").authenticate(), Some(AuthenticationResult::Unknown));
        let of_no_ca = ClientCertChain::new(&known.certificates, Arc::clone(&other.authority));
        assert_eq!(of_no_ca.authenticate(), None);
    }

    #[test]
    fn certificate_chains_are_bounded_before_they_are_parsed() {
        let asking = OptionalClientCertVerifier::verifier();
        let now = UnixTime::now();
        let shown = |length: usize, between: usize| {
            let certificate = || CertificateDer::from(vec![0; length]);
            let between: Vec<_> = std::iter::repeat_with(certificate).take(between).collect();
            asking.verify_client_cert(&certificate(), &between, now).is_ok()
        };
        assert!(shown(1_000, 0) && shown(1_000, MAX_INTERMEDIATES));
        assert!(!shown(1_000, MAX_INTERMEDIATES + 1));
        assert!(!shown(MAX_CHAIN, 1));
    }
}
