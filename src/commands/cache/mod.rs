//! Flags with the address and the CA of the read API (kubewarm's HTTP server for clients), and the
//! kubeconfig that the program creates from these flags.

mod authority;

pub(super) use self::authority::authority;
use super::{CommandError, flag_values, profile_source::OperatorNamespaceArgs};
use clap::Args;
use http::Uri;
use kube::config::{Cluster, Kubeconfig};
use kubewarm_api::model::ProfileRef;
use kubewarm_client::{
    ApiServerConnection, ConnectError, ContextUser, kubeconfig_cluster, single_context_kubeconfig,
};
use std::path::PathBuf;

/// Address of the read API and the CA that verifies it. No flag disables verification.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheConnectionArgs {
    /// URL of the read API, such as `https://localhost:8443` for `kubectl port-forward` [default:
    /// the Service's URL in the cluster; for `get` outside of a pod, a port-forward that the
    /// command opens].
    #[arg(long, env = "KUBEWARM_CACHE_SERVER", value_name = "URL", value_parser = server)]
    pub cache_server: Option<Uri>,

    /// Read only from this profile; needs `get` on the profile.
    #[arg(long, value_name = "NAME", value_parser = flag_values::dns_name)]
    pub cache_profile: Option<String>,

    /// Namespace of --cache-profile [default: the context's].
    #[arg(
        long,
        value_name = "NAMESPACE",
        requires = "cache_profile",
        value_parser = flag_values::namespace
    )]
    pub cache_profile_namespace: Option<String>,

    /// Host name that the read API's certificate must contain [default: the host of --cache-server;
    /// for a local host without --cache-certificate-authority, the Service's name].
    #[arg(long, value_name = "NAME", value_parser = flag_values::dns_name)]
    pub cache_tls_server_name: Option<String>,

    #[command(flatten)]
    pub service: CacheServiceArgs,
}

/// The Service of the read API, and the CA that verifies its pods.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheServiceArgs {
    /// Service of the read API.
    #[arg(long, value_name = "NAME", default_value = "kubewarm")]
    pub cache_service: String,

    /// Secret whose `ca.crt`, or else `tls.crt`, verifies the read API [default: the `ConfigMap`
    /// SERVICE-ca, or else the Secret SERVICE-tls].
    #[arg(long, value_name = "NAME")]
    pub cache_secret: Option<String>,

    /// PEM file with the certificate of the CA or of the read API, instead of the Secret.
    #[arg(long, value_name = "FILE")]
    pub cache_certificate_authority: Option<PathBuf>,

    #[command(flatten)]
    pub operator_namespace: OperatorNamespaceArgs,
}

impl CacheConnectionArgs {
    /// Whether the flags name both the server and its CA, so that no server and no CA comes from
    /// the operator namespace.
    pub(super) fn is_complete(&self) -> bool {
        self.cache_server.is_some() && self.service.cache_certificate_authority.is_some()
    }
}

impl CacheServiceArgs {
    /// Returns the host name of the read API's Service in the cluster.
    fn host(&self) -> String {
        format!("{}.{}.svc", self.cache_service, self.operator_namespace.name())
    }
}

fn server(text: &str) -> Result<Uri, String> {
    let error = || "expected https://HOST or https://HOST:PORT, without a path".to_owned();
    let url: Uri = text.parse().map_err(|_| error())?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if url.scheme_str() == Some("https") && url.host().is_some() && is_bare && !has_user {
        return Ok(url);
    }
    Err(error())
}

/// Returns a kubeconfig for the read API with the user of `context`. The second value is a warning
/// if the CA comes from a `ConfigMap`. The function calls `connect` to read the CA from the
/// cluster.
///
/// # Errors
///
/// [`CommandError`] if there is no CA, if `connect` fails, or if the server or the CA would come
/// from a namespace that the user did not name. The owner of that namespace could choose the server
/// or the CA, and so receive the user's credentials.
pub(super) async fn kubeconfig(
    args: &CacheConnectionArgs,
    context: ContextUser,
    connect: impl FnOnce() -> Result<ApiServerConnection, ConnectError>,
) -> Result<(Kubeconfig, Option<String>), CommandError> {
    if !args.is_complete() {
        args.service.operator_namespace.require(
            "--operator-namespace, or --cache-server with --cache-certificate-authority",
            "the operator namespace decides which server gets your credentials",
        )?;
    }
    let (certificates, remark) = authority(&args.service, connect).await?;
    let profile = profile(args, context.namespace.as_deref());
    Ok((single_context_kubeconfig(cluster(args, profile.as_ref(), certificates), context), remark))
}

/// Returns a kubeconfig without credentials for the admin port of a pod of the read API's Service.
/// The pod's certificate must contain the Service's name. `certificates` verifies it; `None` means
/// plain HTTP. The server is `localhost`, because a port-forward connects to the pod's loopback
/// address.
pub(super) fn admin_kubeconfig(
    args: &CacheServiceArgs,
    certificates: Option<String>,
) -> Kubeconfig {
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let name = Some(args.host()).filter(|_| certificates.is_some());
    let cluster = kubeconfig_cluster(format!("{scheme}://localhost"), name, certificates);
    single_context_kubeconfig(cluster, ContextUser::default())
}

/// Returns the profile that `--cache-profile` names. Without a namespace in `args`, the profile is
/// in `namespace`, the namespace of the kubeconfig's context.
fn profile(args: &CacheConnectionArgs, namespace: Option<&str>) -> Option<ProfileRef> {
    let name = args.cache_profile.as_deref()?;
    let namespace = args.cache_profile_namespace.as_deref().or(namespace).unwrap_or("default");
    Some(ProfileRef { namespace: namespace.into(), name: name.into() })
}

/// Returns the kubeconfig's cluster: server URL, CA and TLS server name.
fn cluster(args: &CacheConnectionArgs, profile: Option<&ProfileRef>, authority: String) -> Cluster {
    let service = args.service.host();
    let server = match &args.cache_server {
        Some(url) => url.to_string(),
        None => format!("https://{service}"),
    };
    let path = profile.map_or_else(String::new, |ProfileRef { namespace, name }| {
        format!("/profiles/{namespace}/{name}")
    });
    // Only a certificate from the Secret certainly contains the Service's name. A certificate from
    // a file can contain any name.
    let is_of_secret = args.service.cache_certificate_authority.is_none();
    let is_forward = args.cache_server.as_ref().is_some_and(is_this_host) && is_of_secret;
    let name = args.cache_tls_server_name.clone().or_else(|| is_forward.then_some(service));
    kubeconfig_cluster(format!("{}{path}", server.trim_end_matches('/')), name, Some(authority))
}

fn is_this_host(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::parse, *};
    use serde_json::json;

    fn parse_cluster(line: &str) -> Cluster {
        let args = parse::<CacheConnectionArgs>(line).unwrap();
        let profile = profile(&args, Some("shop"));
        cluster(&args, profile.as_ref(), "pem".to_owned())
    }

    #[test]
    fn the_default_server_is_the_service_and_a_local_forward_keeps_its_name() {
        let ca = Some("cGVt".to_owned());
        let cluster = parse_cluster("");
        assert_eq!(cluster.server.as_deref(), Some("https://kubewarm.kubewarm-system.svc"));
        assert_eq!((cluster.tls_server_name, cluster.certificate_authority_data), (None, ca));
        let cluster = parse_cluster("--cache-tls-server-name cache.example");
        assert_eq!(cluster.server.as_deref(), Some("https://kubewarm.kubewarm-system.svc"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("cache.example"));

        let cluster = parse_cluster(
            "--cache-server https://localhost:8443 --cache-service kw --operator-namespace ops",
        );
        assert_eq!(cluster.server.as_deref(), Some("https://localhost:8443"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("kw.ops.svc"));

        let cluster = parse_cluster(
            "--cache-server https://[::1]:8443/ --cache-tls-server-name cache.example \
             --cache-profile b --cache-profile-namespace a",
        );
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:8443/profiles/a/b"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("cache.example"));
    }

    #[test]
    fn only_a_certificate_from_the_secret_has_a_default_name() {
        for line in [
            "--cache-server https://cache.example",
            "--cache-server https://localhost:1 --cache-certificate-authority ca.crt",
        ] {
            assert_eq!(parse_cluster(line).tls_server_name, None, "{line}");
        }
    }

    #[test]
    fn a_server_is_an_https_url_without_path_query_and_user() {
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
    fn the_default_namespace_of_a_profile_is_the_contexts() {
        let path = |line: &str| {
            parse_cluster(line).server.unwrap().split_once(".svc").unwrap().1.to_owned()
        };
        assert_eq!(path("--cache-profile checkout.v2"), "/profiles/shop/checkout.v2");
        let elsewhere = "--cache-profile a --cache-profile-namespace b";
        assert_eq!(path(elsewhere), "/profiles/b/a");
        assert_eq!(path(""), "");
        for line in ["--cache-profile a/b", "--cache-profile ..", "--cache-profile-namespace a"] {
            assert!(parse::<CacheConnectionArgs>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn an_admin_port_gets_no_credentials_and_is_verified_by_the_services_name() {
        let args = parse::<CacheServiceArgs>("--operator-namespace ops").unwrap();
        let server = |certificates: Option<&str>| {
            let kubeconfig = admin_kubeconfig(&args, certificates.map(str::to_owned));
            let user = serde_json::to_value(&kubeconfig.auth_infos[0].auth_info).unwrap();
            assert_eq!(user, json!({}));
            let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
            (cluster.server.unwrap(), cluster.tls_server_name)
        };
        assert_eq!(
            server(Some("pem")),
            ("https://localhost".to_owned(), Some("kubewarm.ops.svc".to_owned()))
        );
        assert_eq!(server(None), ("http://localhost".to_owned(), None));
    }

    #[tokio::test]
    async fn a_server_or_ca_from_a_namespace_that_the_user_did_not_name_is_rejected() {
        let (server, file) = ("--cache-server https://a", "--cache-certificate-authority no/such");
        for line in ["", server, file] {
            let args = parse::<CacheConnectionArgs>(line).unwrap();
            let result = kubeconfig(&args, ContextUser::default(), || {
                panic!("the command must not read the CA")
            })
            .await;
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with("pass --operator-namespace, or --cache-server "), "{error}");
        }
        let args = parse::<CacheConnectionArgs>(&format!("{server} {file}")).unwrap();
        let result = kubeconfig(&args, ContextUser::default(), || {
            panic!("the command must not read the CA")
        })
        .await;
        assert_eq!(result.unwrap_err().to_string(), "cannot read no/such");
    }
}
