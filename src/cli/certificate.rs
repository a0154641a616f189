//! Flags of `run` for the certificates that kubewarm issues to itself.

use crate::commands;
use clap::Args;
use kubewarm_api::model::is_dns_label;
use kubewarm_serve::certificate::{
    CertificateLifetimes, CertificateName, CertificateNames, cluster_domain,
};
use std::{fs, time::Duration};

/// The domain of most clusters, as in kubeadm.
const DEFAULT_DOMAIN: &str = "cluster.local";
/// The Service of the chart.
const DEFAULT_SERVICE: &str = "kubewarm";
/// Shorter lifetimes leave the leader no time for a renewal.
const MIN_LIFETIME: Duration = Duration::from_secs(10);
/// Longer lifetimes would make the CA outlive its algorithm: its lifetime is 61 times as long.
const MAX_LIFETIME: Duration = Duration::from_hours(365 * 24);

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates")]
pub struct CertificateArgs {
    /// Secret in the operator namespace with a CA and a certificate for all replicas, which
    /// kubewarm creates and renews. The `ConfigMap` of the same name gets the CA for clients. Both
    /// objects must exist, and kubewarm needs permission to get and update them [default: a
    /// self-signed certificate, or the files of other flags].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tls_cert_file", "admin_tls_cert_file"])]
    pub certificate_secret: Option<String>,

    /// Services of the operator namespace whose names are in the certificate, separated by commas
    /// [default: kubewarm].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = service)]
    pub certificate_services: Vec<String>,

    /// Additional DNS names and IP addresses in the certificate, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub certificate_names: Vec<CertificateName>,

    /// Lifetime of the certificate, 10s to 8760h. kubewarm renews it after two thirds. Its CA is
    /// valid for 61 lifetimes. Below 504h, the alert `KubewarmCertificateExpiration` fires before
    /// each renewal.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "720h",
        value_parser = lifetime
    )]
    pub certificate_lifetime: Duration,

    /// Keep the `ConfigMap` kubewarm-api-ca in each namespace with the label kubewarm.io/inject:
    /// one bundle of the CAs of kubewarm and of the API server, so that pods can verify either. Not
    /// with
    /// --watch-namespaces, because kubewarm needs a ClusterRole
    /// (`kubewarm rbac --operator --inject --operator-namespace NAMESPACE`).
    #[arg(long, requires = "certificate_secret", conflicts_with = "watch_namespaces")]
    pub inject: bool,

    /// Keep the `ConfigMap` kubewarm-inject in the operator namespace: the parameters of the
    /// admission policy by which the API server injects pods in namespaces with the label
    /// kubewarm.io/inject=pods (`kubewarm rbac --operator --inject --inject-policy`).
    #[arg(long, requires = "inject")]
    pub inject_policy: bool,

    /// DNS domain of the cluster, for the names in the certificate [default: the domain in
    /// /etc/resolv.conf, else cluster.local].
    #[arg(long, value_name = "DOMAIN", value_parser = domain)]
    pub cluster_domain: Option<String>,
}

impl CertificateArgs {
    /// The names in the certificate. Reads `/etc/resolv.conf` if no flag gives the domain.
    pub fn names(&self, namespace: &str) -> CertificateNames {
        let domain = self.domain();
        let default = [DEFAULT_SERVICE.to_owned()];
        let given = &self.certificate_services[..];
        let services = if given.is_empty() { &default } else { given };
        CertificateNames::new(services, namespace, &domain, &self.certificate_names)
    }

    /// The cluster's DNS domain. Reads `/etc/resolv.conf` if no flag gives the domain.
    pub fn domain(&self) -> String {
        let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let flag = self.cluster_domain.as_deref();
        flag.or_else(|| cluster_domain(&resolver)).unwrap_or(DEFAULT_DOMAIN).to_owned()
    }

    pub const fn lifetimes(&self) -> CertificateLifetimes {
        CertificateLifetimes { leaf: self.certificate_lifetime }
    }
}

fn service(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("expected the name of a Service: lower-case letters, digits and '-'".to_owned())
}

fn domain(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(CertificateName::Dns(domain)) => Ok(domain),
        Ok(CertificateName::Ip(_)) | Err(_) => Err("expected a DNS domain".to_owned()),
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = commands::long_duration(text)?;
    if !(MIN_LIFETIME..=MAX_LIFETIME).contains(&lifetime) {
        return Err("a certificate's lifetime is 10s to 8760h".to_owned());
    }
    Ok(lifetime)
}
