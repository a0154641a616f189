//! The way to the read API, as a kubeconfig says it.

mod authority;

use super::{Error, cluster::ConnectionArgs, specs::HomeArgs, value};
use clap::Args;
use http::Uri;
use k8s_openapi::ByteString;
use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kubewarm_api::model::{ProfileRef, is_dns_label};
use kubewarm_client::{Present, present};
use std::path::{Path, PathBuf, absolute};

/// Where the read API is, and how its certificate is known. None is taken unverified.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheArgs {
    /// URL of the read API, such as `https://localhost:8443` behind `kubectl port-forward` [default: the
    /// Service's URL, which programs in the cluster use].
    #[arg(long, env = "KUBEWARM_CACHE_SERVER", value_name = "URL", value_parser = server)]
    pub cache_server: Option<Uri>,

    /// Profile to read from. Nothing else is read, and you need `get` on the profile.
    #[arg(long, value_name = "NAME", value_parser = dns_name)]
    pub cache_profile: Option<String>,

    /// Namespace of that profile [default: the namespace of the context].
    #[arg(
        long,
        value_name = "NAMESPACE",
        requires = "cache_profile",
        value_parser = value::namespace
    )]
    pub cache_profile_namespace: Option<String>,

    /// Service of the read API.
    #[arg(long, value_name = "NAME", default_value = "kubewarm")]
    pub cache_service: String,

    /// Secret whose `ca.crt`, or else `tls.crt`, verifies the read API. If you cannot `get` it, the `ca.crt` of
    /// the `ConfigMap` SERVICE-ca is used.
    #[arg(long, value_name = "NAME", default_value = "kubewarm-tls")]
    pub cache_secret: String,

    /// File with the certificate of the CA, or of the read API itself, as PEM, instead of the Secret.
    #[arg(long, value_name = "FILE")]
    pub cache_certificate_authority: Option<PathBuf>,

    /// Name in the certificate, if it is not the host of --cache-server [default: the Service's name, if
    /// --cache-server is this host and the certificate is of the Secret].
    #[arg(long, value_name = "NAME", value_parser = dns_name)]
    pub cache_tls_server_name: Option<String>,

    /// Where it runs.
    #[command(flatten)]
    pub home: HomeArgs,
}

fn server(text: &str) -> Result<Uri, String> {
    let wanted = || "expected https://HOST or https://HOST:PORT, without a path".to_owned();
    let url: Uri = text.parse().map_err(|_| wanted())?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if url.scheme_str() == Some("https") && url.host().is_some() && is_bare && !has_user {
        return Ok(url);
    }
    Err(wanted())
}

fn dns_name(text: &str) -> Result<String, String> {
    if text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err("expected a name of DNS: lower-case letters, digits, '-' and '.'".to_owned())
}

/// What cluster, user and context are called in what is written.
const NAME: &str = "kubewarm";

/// A kubeconfig of one context: the read API that `args` names, as the user of the present context, or
/// with the token in `token_file`; and what has to be said of whom it trusts.
///
/// # Errors
///
/// [`Error`] where there is no configuration, or no certificate to trust.
pub(super) async fn kubeconfig(
    args: &CacheArgs,
    connection: &ConnectionArgs,
    token_file: Option<&Path>,
) -> Result<(Kubeconfig, Option<String>), Error> {
    connection.refuse_impersonation()?;
    let mut found = present(&connection.options())?;
    if let Some(path) = token_file {
        let path = absolute(path)
            .map_err(|error| Error::caused(format!("cannot read {}", path.display()), error))?;
        let token_file = Some(path.display().to_string());
        found.user = AuthInfo { token_file, ..AuthInfo::default() };
    }
    let (certificates, remark) = authority::authority(args, || connection.connect()).await?;
    let profile = profile(args, found.namespace.as_deref());
    Ok((document(cluster(args, profile.as_ref(), certificates), found), remark))
}

/// The profile that `args` name, in the namespace of the context unless they name another.
fn profile(args: &CacheArgs, namespace: Option<&str>) -> Option<ProfileRef> {
    let name = args.cache_profile.as_deref()?;
    let namespace = args.cache_profile_namespace.as_deref().or(namespace).unwrap_or("default");
    Some(ProfileRef { namespace: namespace.into(), name: name.into() })
}

/// Host, path and certificates.
fn cluster(args: &CacheArgs, profile: Option<&ProfileRef>, authority: String) -> Cluster {
    let service = format!("{}.{}.svc", args.cache_service, args.home.operator_namespace);
    let server = match &args.cache_server {
        Some(url) => url.to_string(),
        None => format!("https://{service}"),
    };
    let path = profile
        .map_or_else(String::new, |of| format!("/profiles/{}/{}", of.namespace, of.name));
    // A certificate that is known by itself is of whatever name its owner gave it.
    let is_of_secret = args.cache_certificate_authority.is_none();
    let is_forward = args.cache_server.as_ref().is_some_and(is_this_host) && is_of_secret;
    let name = args.cache_tls_server_name.clone().or_else(|| is_forward.then_some(service));
    Cluster {
        server: Some(format!("{}{path}", server.trim_end_matches('/'))),
        certificate_authority_data: Some(base64(authority)),
        tls_server_name: name,
        ..Cluster::default()
    }
}

fn is_this_host(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn document(cluster: Cluster, Present { user, namespace }: Present) -> Kubeconfig {
    let name = || NAME.to_owned();
    let context = Context { cluster: name(), user: Some(name()), namespace, ..Context::default() };
    Kubeconfig {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

/// As the API writes bytes.
fn base64(text: String) -> String {
    match serde_json::to_value(ByteString(text.into_bytes())) {
        Ok(serde_json::Value::String(text)) => text,
        // Bytes are always a text.
        Ok(_) | Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::parse, *};

    fn of(line: &str) -> Cluster {
        let args = parse::<CacheArgs>(line).unwrap();
        let profile = profile(&args, Some("shop"));
        cluster(&args, profile.as_ref(), "pem".to_owned())
    }

    #[test]
    fn programs_in_the_cluster_find_the_service_and_others_the_end_of_a_forward() {
        let ca = Some("cGVt".to_owned());
        let found = of("");
        assert_eq!(found.server.as_deref(), Some("https://kubewarm.kubewarm-system.svc"));
        assert_eq!((found.tls_server_name, found.certificate_authority_data), (None, ca));

        let found = of("--cache-server https://localhost:8443 --cache-service kw --operator-namespace ops");
        assert_eq!(found.server.as_deref(), Some("https://localhost:8443"));
        assert_eq!(found.tls_server_name.as_deref(), Some("kw.ops.svc"));

        let found = of(
            "--cache-server https://[::1]:8443/ --cache-tls-server-name cache.example \
             --cache-profile b --cache-profile-namespace a",
        );
        assert_eq!(found.server.as_deref(), Some("https://[::1]:8443/profiles/a/b"));
        assert_eq!(found.tls_server_name.as_deref(), Some("cache.example"));
    }

    #[test]
    fn a_name_is_supposed_of_the_secret_alone() {
        for line in [
            "--cache-server https://cache.example",
            "--cache-server https://localhost:1 --cache-certificate-authority ca.crt",
        ] {
            assert_eq!(of(line).tls_server_name, None, "{line}");
        }
    }

    #[test]
    fn a_server_is_https_and_nothing_more() {
        for text in ["https://localhost:8443", "https://[::1]:8443/", "https://kubewarm.ops.svc"] {
            assert!(server(text).is_ok(), "{text}");
        }
        for text in
            ["", "localhost:8443", "http://localhost", "https://a/b", "https://a@b", "https://a?b"]
        {
            assert!(server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_profile_is_of_the_namespace_of_the_context_unless_another_is_named() {
        let path = |line: &str| of(line).server.unwrap().split_once(".svc").unwrap().1.to_owned();
        assert_eq!(path("--cache-profile checkout.v2"), "/profiles/shop/checkout.v2");
        let elsewhere = "--cache-profile a --cache-profile-namespace b";
        assert_eq!(path(elsewhere), "/profiles/b/a");
        assert_eq!(path(""), "");
        for line in ["--cache-profile a/b", "--cache-profile ..", "--cache-profile-namespace a"] {
            assert!(parse::<CacheArgs>(line).is_err(), "{line}");
        }
    }
}
