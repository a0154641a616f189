//! A question of a person to a server, and its whole answer: for the commands, which ask once.

use super::{
    answer::{Answer, Bounds, Timed, ask, ask_timed},
    transport,
};
use crate::model::{Fault, Reason};
use http::{HeaderValue, Method, Request, Uri, header};
use kube::{
    Client, Config,
    client::Body,
    config::{Cluster, Context, KubeConfigOptions, Kubeconfig, NamedCluster, NamedContext},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// `/debug/cells` of ten thousand cells is some 10 MiB.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(15), body_bytes: 64 << 20 };

/// Everything of a kind, in one answer.
const WHOLE: Bounds = Bounds { time: Duration::from_mins(1), body_bytes: 512 << 20 };

/// Why an operator cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Not the URL of an admin address.
    #[error(
        "--operator: expected the URL of an admin address such as http://localhost:9090, or https"
    )]
    Url,
    /// No client could be made.
    #[error("--operator: cannot connect")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Of the certificate of the server's CA.
    #[error("--operator-ca-file: expected a file of certificates in PEM")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How the certificate of an admin address is verified.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The CA, as PEM; else those that this machine trusts.
    pub ca_file: Option<PathBuf>,
    /// Whom it must be for; else the host of the URL.
    pub server_name: Option<String>,
}

/// Asks for `path`, which must be encoded already.
///
/// # Errors
///
/// The fault of the request, never for a status.
///
/// # Cost
///
/// One request of at most 15 s and 64 MiB.
pub async fn get(client: &Client, path: &str) -> Result<Answer, Fault> {
    send(client, Method::GET, path, None, Body::empty()).await
}

/// The same in the form that `accept` says.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// As for [`get`].
pub async fn get_in_form(
    client: &Client,
    path: &str,
    accept: &'static str,
) -> Result<Answer, Fault> {
    ask(client, in_form(path, accept)?, BOUNDS).await
}

fn in_form(path: &str, accept: &'static str) -> Result<Request<Body>, Fault> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = parsed(path)?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    Ok(request)
}

/// The same in the form that `accept` says, with how long it took.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// One request of at most 60 s and 512 MiB, all of which is held.
pub async fn get_timed(client: &Client, path: &str, accept: &'static str) -> Result<Timed, Fault> {
    ask_timed(client, in_form(path, accept)?, WHOLE).await
}

/// The same with a bearer token.
///
/// # Errors
///
/// As for [`get`], and [`Reason::Internal`] for what is no token.
///
/// # Cost
///
/// As for [`get`].
pub async fn get_as(client: &Client, path: &str, token: &str) -> Result<Answer, Fault> {
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Fault::new(Reason::Internal, "this is no bearer token"))?;
    bearer.set_sensitive(true);
    send(client, Method::GET, path, Some(bearer), Body::empty()).await
}

/// Has everything checked that is checked when `object` is created at `path`, and creates nothing.
///
/// # Errors
///
/// As for [`get`].
///
/// # Cost
///
/// As for [`get`].
pub async fn dry_run(client: &Client, path: &str, object: &Value) -> Result<Answer, Fault> {
    let body = Body::from(object.to_string().into_bytes());
    send(client, Method::POST, &format!("{path}?dryRun=All"), None, body).await
}

/// A client for the admin address of an operator, such as the end of a port-forward. It knows no
/// credentials.
///
/// # Errors
///
/// [`OperatorError`] if `url` is not one of HTTP, or has a path, or the CA cannot be read.
pub async fn operator_client(url: &str, trust: &Trust) -> Result<Client, OperatorError> {
    let url: Uri = url.parse().map_err(|_| OperatorError::Url)?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_web || !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err(OperatorError::Url);
    }
    let mut config = match &trust.ca_file {
        Some(file) => verified(&url, file).await?,
        None => Config::new(url),
    };
    config.tls_server_name.clone_from(&trust.server_name);
    transport::plain(config, None).map_err(|source| OperatorError::Client(Box::new(source)))
}

/// Whose server's certificate is of the CA in `file`.
async fn verified(url: &Uri, file: &Path) -> Result<Config, OperatorError> {
    let cluster = Cluster {
        server: Some(url.to_string()),
        certificate_authority: Some(file.to_string_lossy().into_owned()),
        ..Cluster::default()
    };
    let name = || "operator".to_owned();
    let context = Context { cluster: name(), ..Context::default() };
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(cluster),
            other: BTreeMap::new(),
        }],
        contexts: vec![NamedContext {
            name: name(),
            context: Some(context),
            other: BTreeMap::new(),
        }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    };
    let made = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = made.map_err(|source| OperatorError::Authority(Box::new(source)))?;
    if config.root_cert.as_deref().is_none_or(<[_]>::is_empty) {
        return Err(OperatorError::Authority("there is none in it".into()));
    }
    Ok(config)
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    bearer: Option<HeaderValue>,
    body: Body,
) -> Result<Answer, Fault> {
    let mut request = Request::new(body);
    if let Some(bearer) = bearer {
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    *request.method_mut() = method;
    *request.uri_mut() = parsed(path)?;
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    ask(client, request, BOUNDS).await
}

fn parsed(path: &str) -> Result<Uri, Fault> {
    path.parse().map_err(|_| Fault::new(Reason::Internal, format!("{path:?} is no path")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_admin_address_is_http_and_nothing_more() {
        let anybody = Trust::default();
        for url in ["http://localhost:9090", "http://[::1]:9090/"] {
            assert!(operator_client(url, &anybody).await.is_ok(), "{url}");
        }
        for url in ["localhost:9090", "ftp://localhost:9090", "http://localhost/metrics", "", "/"] {
            assert!(operator_client(url, &anybody).await.is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_ca_that_cannot_be_read_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for ca_file in [file.path().to_owned(), "/nowhere/ca.crt".into()] {
            let trust = Trust { ca_file: Some(ca_file), server_name: None };
            let error = operator_client("https://localhost:9090", &trust).await.err().unwrap();
            assert!(error.to_string().starts_with("--operator-ca-file: "), "{error}");
        }
    }

    #[tokio::test]
    async fn nothing_is_created_by_a_dry_run() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            assert_eq!(request.method(), Method::POST);
            assert_eq!(request.uri(), "/api/v1/namespaces?dryRun=All");
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
        });
        let client = Client::new(service, "default");
        let answer = dry_run(&client, "/api/v1/namespaces", &Value::Null).await;
        assert_eq!(answer.unwrap().status, 200);
    }
}
