//! The certificates of one control plane: an authority of its own, the server's, and users'.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::{Action, Result};
use crate::layout::Layout;

/// Signs certificates of users for as long as the control plane lives.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    layout: Layout,
}

/// Where a certificate and its key lie.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes the authority (`ca.crt`), the server's pair, which is good for these addresses too, and
    /// the key that signs tokens of service accounts.
    pub(crate) fn create(layout: &Layout, addresses: &[Ipv4Addr]) -> Result<Self> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name = name("testbed", None);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let authority = Self { issuer, layout: layout.clone() };
        authority.write("ca.crt", &authority.issuer.pem())?;

        // The second as pods would call it.
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

    /// Makes the key that signs tokens of service accounts (`sa.key`, `sa.pub`), in place of any
    /// other.
    pub(crate) fn make_token_key(&self) -> Result<()> {
        let tokens = KeyPair::generate()?;
        self.write("sa.key", &tokens.serialize_pem())?;
        self.write("sa.pub", &tokens.public_key_pem())?;
        Ok(())
    }

    /// The pair of a user, who is in `group` (Kubernetes reads CN and O).
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
