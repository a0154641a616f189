//! Plain requests to the API server.

use anyhow::{Context, Result, bail};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use kube::{Client, Config, client::Body, config::KubeConfigOptions, config::Kubeconfig};
use std::path::Path;

/// The `User-Agent` of the bench. The API server indents JSON for clients that look like a browser
/// or curl, which would make the measured responses larger.
const AGENT: &str = "kubewarm-bench";

/// The format of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A complete object in JSON.
    Json,
    /// A complete object in YAML.
    Yaml,
    /// A JSON merge patch.
    MergePatch,
}

/// A client without retries, so that one request is measured.
///
/// # Errors
///
/// If the kubeconfig cannot be used.
pub async fn connect(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// A GET request. The caller reads the body.
///
/// # Errors
///
/// Transport errors, and any status except success, with the server's message.
pub async fn get(client: &Client, path: &str, accept: &str) -> Result<Response<Body>> {
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, AGENT)
        .body(Body::empty())?;
    checked(path, client.send(request).await?).await
}

/// A GET request whose response is JSON.
///
/// # Errors
///
/// As [`get`], and if the body is not JSON.
pub async fn get_json(client: &Client, path: &str) -> Result<serde_json::Value> {
    let body = get(client, path, "application/json").await?.into_body();
    Ok(serde_json::from_slice(&body.collect().await?.to_bytes())?)
}

/// A GET request whose response is text.
///
/// # Errors
///
/// As [`get`], and if the body is not UTF-8.
pub async fn get_text(client: &Client, path: &str) -> Result<String> {
    let body = get(client, path, "*/*").await?.into_body();
    Ok(String::from_utf8(body.collect().await?.to_bytes().into())?)
}

/// A POST request with JSON. Returns the response.
///
/// # Errors
///
/// As [`get_json`].
pub async fn create(
    client: &Client,
    path: &str,
    object: &serde_json::Value,
) -> Result<serde_json::Value> {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, AGENT)
        .body(Body::from(serde_json::to_vec(object)?))?;
    let body = checked(path, client.send(request).await?).await?.into_body();
    Ok(serde_json::from_slice(&body.collect().await?.to_bytes())?)
}

/// A write request. The response is read and dropped, so that the connection can be used again.
///
/// # Errors
///
/// As [`get`].
pub async fn write(
    client: &Client,
    method: Method,
    path: &str,
    content: Content,
    body: Vec<u8>,
) -> Result<()> {
    let content = match content {
        Content::Json => "application/json",
        Content::Yaml => "application/yaml",
        Content::MergePatch => "application/merge-patch+json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content)
        .header(header::ACCEPT, "application/json")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, AGENT)
        .body(Body::from(body))?;
    let mut body = checked(path, client.send(request).await?).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

async fn checked(path: &str, response: Response<Body>) -> Result<Response<Body>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.into_body().collect().await?.to_bytes();
    bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
}
