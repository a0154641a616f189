//! The certificate that an address presents, for whoever knows its SHA-256.

use crate::model::Fingerprint;
use aws_lc_rs::digest::{SHA256, digest};
use http::Uri;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{
        CryptoProvider, aws_lc_rs::default_provider, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime, pem::PemObject as _},
};
use std::{io, sync::Arc, time::Duration};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// For the connection and the handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of HTTPS.
const PORT: u16 = 443;

/// Why there is no certificate to trust.
#[derive(Debug, thiserror::Error)]
pub enum PresentedError {
    /// Nobody speaks TLS there.
    #[error("{address} does not answer with TLS")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody else's, or an older one.
    #[error(
        "{address} presents another certificate, of SHA-256 {found}; if that is what kubewarm's log says \
         (`serving reads`), pass it with --fingerprint"
    )]
    Other {
        /// Host and port.
        address: String,
        /// What is presented.
        found: Fingerprint,
    },
    /// No certificate can be shown for such a name.
    #[error("{host} is neither a name nor an address")]
    Host {
        /// As given.
        host: String,
        /// Why.
        #[source]
        source: InvalidDnsNameError,
    },
}

/// The certificate of `server`, in DER, once the server has shown that it holds its key, and its SHA-256
/// is `expected`. Nothing else of it is looked at: not who signed it, for which name, nor until when.
///
/// # Errors
///
/// [`PresentedError`].
///
/// # Cost
///
/// One connection of at most 10 s, over which no request is sent.
pub async fn presented(server: &Uri, expected: Fingerprint) -> Result<Vec<u8>, PresentedError> {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = server.port_u16().unwrap_or(PORT);
    let address = format!("{}:{port}", server.host().unwrap_or_default());
    let name = ServerName::try_from(host.to_owned())
        .map_err(|source| PresentedError::Host { host: host.to_owned(), source })?;
    let unreachable = |source| PresentedError::Unreachable { address: address.clone(), source };
    let exchange = async {
        let tcp = TcpStream::connect((host, port)).await?;
        let known = Known { expected, provider: Arc::new(default_provider()) };
        let tls = TlsConnector::from(Arc::new(known.config()?)).connect(name, tcp).await?;
        let (_, session) = tls.get_ref();
        Ok(session.peer_certificates().and_then(|chain| chain.first()).map(|it| it.to_vec()))
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no handshake within 10 s");
    match timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(late())) {
        Ok(Some(certificate)) => Ok(certificate),
        Ok(None) => Err(unreachable(io::Error::other("it presents no certificate"))),
        Err(error) => Err(match other(&error) {
            Some(found) => PresentedError::Other { address, found },
            None => unreachable(error),
        }),
    }
}

/// Trusts one certificate.
#[derive(Debug)]
struct Known {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// Another was presented.
#[derive(Debug, thiserror::Error)]
#[error("a certificate of SHA-256 {0}")]
struct Found(Fingerprint);

impl Known {
    fn config(self) -> Result<ClientConfig, io::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        // "Dangerous" are verifiers that trust more than is presented: this one trusts less.
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(self));
        Ok(builder.with_no_client_auth())
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        match fingerprint(certificate) {
            Some(found) if found == self.expected => Ok(ServerCertVerified::assertion()),
            Some(found) => {
                Err(CertificateError::Other(rustls::OtherError(Arc::new(Found(found)))).into())
            }
            None => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What was presented instead, if that is why the handshake failed.
fn other(error: &io::Error) -> Option<Fingerprint> {
    let error = error.get_ref()?.downcast_ref::<TlsError>()?;
    let TlsError::InvalidCertificate(CertificateError::Other(other)) = error else { return None };
    other.0.downcast_ref::<Found>().map(|found| found.0)
}

fn fingerprint(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
    digest(&SHA256, certificate).as_ref().try_into().ok().map(Fingerprint::new)
}

/// Of the first certificate in `pem`; `None` if it is none.
#[must_use]
pub fn fingerprint_of_pem(pem: &str) -> Option<Fingerprint> {
    fingerprint(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{ServerConfig, pki_types::PrivateKeyDer};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    #[tokio::test]
    async fn one_certificate_is_taken_and_no_other() {
        let pair = rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).unwrap();
        let shown = pair.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![shown.clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let _serving = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let _ends = acceptor.accept(tcp).await;
            }
        });
        let right = fingerprint(&shown).unwrap();
        assert_eq!(presented(&server, right).await.unwrap(), shown.to_vec());
        let error = presented(&server, Fingerprint::new([7; 32])).await.unwrap_err();
        assert!(
            matches!(&error, PresentedError::Other { found, .. } if *found == right),
            "{error:?}"
        );
        assert!(error.to_string().contains(&right.to_string()), "{error}");
    }

    #[tokio::test]
    async fn who_does_not_speak_tls_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let _serving = tokio::spawn(async move {
            let _ends = listener.accept().await;
        });
        let error = presented(&server, Fingerprint::new([0; 32])).await.unwrap_err();
        assert!(matches!(error, PresentedError::Unreachable { .. }), "{error:?}");
    }
}
