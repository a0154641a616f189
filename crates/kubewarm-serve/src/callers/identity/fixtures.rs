//! CAs and client certificates for tests.

use super::{ClientCa, ClientCertChain};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use std::{fs, sync::Arc};

pub(super) fn signed(name: &str) -> (String, CertificateDer<'static>) {
    signed_within(name, (2000, 3000))
}

/// A CA that is valid from the start of the first year to the start of the second, and a
/// certificate that it signed for the client `name`.
pub(super) fn signed_within(
    name: &str,
    (first, end): (i32, i32),
) -> (String, CertificateDer<'static>) {
    signed_with(name, |wanted| {
        (wanted.not_before, wanted.not_after) =
            (date_time_ymd(first, 1, 1), date_time_ymd(end, 1, 1));
    })
}

/// A CA with the parameters that `change` sets, and a certificate that it signed for the client
/// `name`.
pub(super) fn signed_with(
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> (String, CertificateDer<'static>) {
    let mut wanted = CertificateParams::default();
    (wanted.not_before, wanted.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(3000, 1, 1));
    wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut wanted);
    let key = KeyPair::generate().unwrap();
    let authority = wanted.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(wanted, key);
    let mut wanted = CertificateParams::default();
    wanted.distinguished_name = DistinguishedName::new();
    wanted.distinguished_name.push(DnType::CommonName, name);
    wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = wanted.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    (authority, client.der().clone())
}

/// The certificate chain of the client `name`, signed by an accepted CA.
pub(in crate::callers) fn chain(name: &str) -> Arc<ClientCertChain> {
    let (authority, client) = signed(name);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    fs::write(&file, authority).unwrap();
    Arc::new(ClientCertChain::new(&[client], Arc::new(ClientCa::of_file(file).unwrap())))
}
