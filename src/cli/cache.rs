//! Where the read API is, and how its certificate is known: of several commands.

use super::HomeArgs;
use clap::Args;
use http::Uri;
use kubewarm_api::model::{ProfileRef, is_dns_label};
use std::path::PathBuf;

/// Where the read API is, and how its certificate is known. None is taken unverified.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheArgs {
    /// The URL of the read API, such as `https://localhost:8443` behind `kubectl port-forward` [default: the
    /// Service's, by which programs in the cluster reach it].
    #[arg(long, env = "KUBEWARM_SERVER", value_name = "URL", value_parser = server)]
    pub server: Option<Uri>,

    /// Read from the cells of this profile alone, which takes `get` on it.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = profile)]
    pub profile: Option<ProfileRef>,

    /// The Service of the read API.
    #[arg(long, value_name = "NAME", default_value = "kubewarm")]
    pub service: String,

    /// The Secret whose `ca.crt`, or else `tls.crt`, vouches for the read API. Whoever may not get it has the `ca.crt`
    /// of the `ConfigMap` that is called as the Service and `-ca`.
    #[arg(long, value_name = "NAME", default_value = "kubewarm-tls")]
    pub secret: String,

    /// A file with the certificate of the CA, or with that of the read API itself, as PEM, in place of
    /// the Secret.
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,

    /// The name that the certificate is for, if it is not the host of --server [default: that of the
    /// Service, if --server is this host and the certificate is of the Secret].
    #[arg(long, value_name = "NAME", value_parser = dns_name)]
    pub tls_server_name: Option<String>,

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

fn profile(text: &str) -> Result<ProfileRef, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_dns_label(namespace) && dns_name(name).is_ok() => {
            Ok(ProfileRef { namespace: namespace.into(), name: name.into() })
        }
        _ => Err("expected NAMESPACE/NAME of a CacheProfile".to_owned()),
    }
}

fn dns_name(text: &str) -> Result<String, String> {
    if text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err("expected a name of DNS: lower-case letters, digits, '-' and '.'".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_profile_is_named_with_its_namespace() {
        let found = profile("shop/checkout.v2").unwrap();
        assert_eq!((&*found.namespace, &*found.name), ("shop", "checkout.v2"));
        for text in ["", "checkout", "/a", "a/", "a/b/c", "A/b", "a/../b"] {
            assert!(profile(text).is_err(), "{text}");
        }
    }
}
