//! The certificates of one control plane: its CA, the API server's certificate and users'
//! certificates.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::{Action, Result};
use crate::layout::Layout;

/// The CA, which signs users' certificates while the control plane runs.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    layout: Layout,
}

/// The paths of a certificate and its key.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Creates the CA (`ca.crt`), the API server's certificate and the key that signs
    /// ServiceAccount tokens. The API server's certificate also names `addresses`.
    pub(crate) fn create(layout: &Layout, addresses: &[Ipv4Addr]) -> Result<Self> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name = name("testbed", None);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let authority = Self { issuer, layout: layout.clone() };
        authority.write("ca.crt", &authority.issuer.pem())?;

        // Pods use the second name.
        let names = ["localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name = name("kube-apiserver", None);
        for address in [Ipv4Addr::LOCALHOST].iter().chain(addresses) {
            server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(*address)));
        }
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        authority.sign("server", server)?;

        authority.make_token_key()?;
        Ok(authority)
    }

    /// Creates the key that signs ServiceAccount tokens (`sa.key`, `sa.pub`), and replaces an
    /// earlier key.
    pub(crate) fn make_token_key(&self) -> Result<()> {
        let tokens = KeyPair::generate()?;
        self.write("sa.key", &tokens.serialize_pem())?;
        self.write("sa.pub", &tokens.public_key_pem())?;
        Ok(())
    }

    /// Creates the certificate and key of a user in `group` (Kubernetes reads CN and O).
    pub(crate) fn user(&self, file: &str, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, params)
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> Result<Pair> {
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            certificate: self.write(&format!("{file}.crt"), &certificate.pem())?,
            key: self.write(&format!("{file}.key"), &key.serialize_pem())?,
        })
    }

    fn write(&self, file: &str, pem: &str) -> Result<PathBuf> {
        let path = self.layout.pki(file);
        fs::write(&path, pem).action(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
