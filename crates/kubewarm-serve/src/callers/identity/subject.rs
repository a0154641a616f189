//! Reads the user from a client certificate, as the Kubernetes API defines it. The user name is the
//! certificate's common name, and the groups are its organizations.

use aws_lc_rs::digest::{SHA256, digest};
use kubewarm_client::CallerInfo;
use std::fmt::Write as _;
use x509_parser::{
    certificate::X509Certificate,
    der_parser::{Oid, oid},
    prelude::FromDer as _,
    x509::AttributeTypeAndValue,
};

/// The object identifier of the certificate attribute that contains the user's UID. The UID
/// distinguishes users that had the same name at different times.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// The key in the user's `extra` that contains the certificate's fingerprint. The API server writes
/// the fingerprint to its audit log.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The user in the verified certificate `der`. `None` if the certificate has no common name,
/// several UIDs or an empty UID, or if kubewarm cannot parse all of it.
pub(super) fn user_of(der: &[u8]) -> Option<CallerInfo> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let subject = certificate.subject();
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
    let names: Vec<_> = subject.iter_common_name().map(text).collect::<Option<_>>()?;
    let groups = subject.iter_organization().map(text).collect::<Option<_>>()?;
    let uids: Vec<_> = subject.iter_by_oid(&UID).map(text).collect::<Option<_>>()?;
    let uid = match &*uids {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return None,
    };
    // If a certificate has several common names, the last common name counts, as in the API server.
    let name = names.last().filter(|name| !name.is_empty())?.clone();
    let mut id = "X509SHA256=".to_owned();
    for byte in digest(&SHA256, der).as_ref() {
        // Writing to a `String` cannot fail.
        let _written = write!(id, "{byte:02x}");
    }
    let extra = [(CREDENTIAL.to_owned(), vec![id])].into();
    Some(CallerInfo { name, uid, groups, extra }.with_authenticated_group())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair};

    fn made(subject: &[(DnType, &str)]) -> Vec<u8> {
        let mut wanted = CertificateParams::new([]).unwrap();
        wanted.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            wanted.distinguished_name.push(kind.clone(), *value);
        }
        wanted.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57683, 9], vec![5, 0])];
        wanted.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn uid() -> DnType {
        DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2])
    }

    #[test]
    fn the_name_is_the_common_name_and_the_groups_are_the_organizations() {
        let der = made(&[
            (DnType::CommonName, "jané"),
            (DnType::OrganizationName, "readers"),
            (DnType::OrganizationalUnitName, "system:masters"),
            (uid(), "u-1"),
        ]);
        let user = user_of(&der).unwrap();
        assert_eq!((&*user.name, &*user.uid), ("jané", "u-1"));
        assert_eq!(user.groups, ["readers", "system:authenticated"]);
        let id = &user.extra[CREDENTIAL][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    }

    #[test]
    fn a_malformed_or_nameless_certificate_has_no_user() {
        let der = made(&[(DnType::OrganizationName, "readers")]);
        assert_eq!(user_of(&der), None);
        let der = made(&[(DnType::CommonName, "jane"), (uid(), "")]);
        assert_eq!(user_of(&der), None);
        let mut wanted = CertificateParams::new([]).unwrap();
        let wide = DnValue::BmpString("jane".parse().unwrap());
        wanted.distinguished_name.push(DnType::CommonName, wide);
        let der = wanted.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(user_of(der.der()), None, "BMP strings are not supported");
        let der = made(&[(DnType::CommonName, "jane")]);
        assert_eq!(user_of(&[&der[..], b"x"].concat()), None);
        assert_eq!(user_of(&der[1..]), None);
    }
}
