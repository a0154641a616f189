//! The names for which a certificate is valid.

use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints, SanType};
use rustls::pki_types::DnsName;
use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

/// The names of a port-forward, which every certificate contains.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A DNS name or an IP address in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateName {
    /// In lower case.
    Dns(String),
    /// Clients that connect to an IP address compare only addresses.
    Ip(IpAddr),
}

/// All names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames(BTreeSet<CertificateName>);

impl CertificateNames {
    /// The names of the API server, of these Services in `namespace`, and `more`, in the cluster's
    /// DNS domain.
    ///
    /// The API server's names are those under which programs in pods connect to it. With them, an
    /// unmodified program can connect to kubewarm instead.
    pub fn new(
        services: &[String],
        namespace: &str,
        domain: &str,
        more: &[CertificateName],
    ) -> Self {
        let mut names: BTreeSet<_> =
            LOCAL.into_iter().filter_map(|name| name.parse().ok()).collect();
        names.extend(more.iter().cloned());
        let services = services.iter().map(|service| (service.as_str(), namespace));
        for (service, namespace) in services.chain([("kubernetes", "default")]) {
            let there = format!("{service}.{namespace}");
            let all = [format!("{there}.svc"), format!("{there}.svc.{domain}"), there];
            names.extend(all.map(|name| CertificateName::Dns(name.to_ascii_lowercase())));
            names.insert(CertificateName::Dns(service.to_owned()));
        }
        Self(names)
    }

    /// The names that a CA's name constraints permit; `None` if the CA has no constraints.
    pub(super) fn permitted(authority: &X509Certificate<'_>) -> Option<Self> {
        let constraints = authority.name_constraints().ok()??.value;
        let subtrees = constraints.permitted_subtrees.as_ref()?.iter();
        let names = subtrees.filter_map(|subtree| {
            if let GeneralName::DNSName(name) = subtree.base {
                return Some(CertificateName::Dns(name.to_owned()));
            }
            let GeneralName::IPAddress(bytes) = subtree.base else { return None };
            address_of(bytes).map(CertificateName::Ip)
        });
        Some(Self(names.collect()))
    }

    pub(super) fn subject_alt_names(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let names = self.0.iter().map(|name| match name {
            CertificateName::Dns(name) => name.as_str().try_into().map(SanType::DnsName),
            CertificateName::Ip(address) => Ok(SanType::IpAddress(*address)),
        });
        names.collect()
    }

    /// Constraints for a CA that can issue certificates for only these names, and for names below
    /// these DNS names. X.509 knows no constraint to exactly one DNS name.
    ///
    /// One permitted address excludes all others, and [`LOCAL`] has two.
    pub(super) fn constraints(&self) -> NameConstraints {
        let subtree = |name: &CertificateName| match name {
            CertificateName::Dns(name) => GeneralSubtree::DnsName(name.clone()),
            CertificateName::Ip(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
            }
        };
        NameConstraints {
            permitted_subtrees: self.0.iter().map(subtree).collect(),
            excluded_subtrees: Vec::new(),
        }
    }
}

/// The address of a constraint, which is an address followed by a mask of the same length (RFC
/// 5280, 4.2.1.10).
fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let (address, _) = bytes.split_at_checked(bytes.len() / 2)?;
    let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from)).ok()
}

/// The cluster's DNS domain in the text of `/etc/resolv.conf`: what follows `svc.` in the search
/// list, which the kubelet writes for each pod. `None` outside a pod.
pub fn cluster_domain(resolv_conf: &str) -> Option<&str> {
    // The resolver uses only the last list (resolv.conf(5)).
    let last = resolv_conf.lines().rev().find_map(|line| line.trim().strip_prefix("search"));
    let domains = last?.split_ascii_whitespace();
    let mut domains = domains.filter_map(|entry| entry.strip_prefix("svc."));
    domains.next().map(|domain| domain.trim_end_matches('.')).filter(|domain| !domain.is_empty())
}

impl FromStr for CertificateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        // The grammar of rustls' clients, which reject a whole certificate because of one other
        // name. It has no wildcards, which a constraint could not express.
        let is_name =
            !text.contains('_') && !text.ends_with('.') && DnsName::try_from(text).is_ok();
        if !is_name {
            return Err(format!(
                "{text:?} is neither a DNS name without wildcards nor an IP address"
            ));
        }
        Ok(Self::Dns(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for CertificateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            write!(f, "{}{name}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_services_and_of_the_api_server() {
        let services = ["kubewarm".to_owned(), "kubewarm-metrics".to_owned()];
        let more = ["10.0.0.1", "Warm.example.com"].map(|name| name.parse().unwrap());
        let names = CertificateNames::new(&services, "ops", "example.org", &more);
        assert_eq!(
            names.to_string(),
            "kubernetes, kubernetes.default, kubernetes.default.svc, \
             kubernetes.default.svc.example.org, kubewarm, kubewarm-metrics, kubewarm-metrics.ops, \
             kubewarm-metrics.ops.svc, kubewarm-metrics.ops.svc.example.org, kubewarm.ops, \
             kubewarm.ops.svc, kubewarm.ops.svc.example.org, localhost, warm.example.com, 10.0.0.1, \
             127.0.0.1, ::1"
        );
    }

    #[test]
    fn what_clients_reject_is_no_name() {
        for text in [
            "*.example.com",
            "",
            "a..b",
            "a_b",
            "a b",
            "a.",
            "10.0.0.256",
            "a-.example.com",
            "a.-b.example.com",
            "host:8443",
        ] {
            assert!(text.parse::<CertificateName>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_domain_comes_from_the_search_list() {
        let pod = "nameserver 10.0.0.10\nsearch ops.svc.example.org svc.example.org example.org\n";
        assert_eq!(cluster_domain(pod), Some("example.org"));
        assert_eq!(cluster_domain(&format!("search other\n{pod}")), Some("example.org"));
        for text in
            ["", "search", "search example.org", "nameserver svc.example.org", "search svc."]
        {
            assert_eq!(cluster_domain(text), None, "{text}");
        }
    }
}
