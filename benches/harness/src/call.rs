//! Plain requests to the API server, as fast as the client library lets them go.

use anyhow::{Context, Result, bail};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use kube::{Client, Config, client::Body, config::KubeConfigOptions, config::Kubeconfig};
use std::path::Path;

/// The API server indents JSON for agents that it takes for a browser or for curl.
const AGENT: &str = "kubewarm-bench";

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A whole object.
    Json,
    /// A whole object, in YAML.
    Yaml,
    /// A JSON merge patch.
    MergePatch,
}

/// A client without hidden retries: what is measured is one request.
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

/// A GET whose body is not read yet.
///
/// # Errors
///
/// Transport errors, and any status but success with what the server said.
pub async fn get(client: &Client, path: &str, accept: &str) -> Result<Response<Body>> {
    let request = Request::get(path)
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::USER_AGENT, AGENT)
        .body(Body::empty())?;
    checked(path, client.send(request).await?).await
}

/// A GET of JSON.
///
/// # Errors
///
/// As [`get`], and if the body is not JSON.
pub async fn get_json(client: &Client, path: &str) -> Result<serde_json::Value> {
    let body = get(client, path, "application/json").await?.into_body();
    Ok(serde_json::from_slice(&body.collect().await?.to_bytes())?)
}

/// A GET of text.
///
/// # Errors
///
/// As [`get`], and if the body is not UTF-8.
pub async fn get_text(client: &Client, path: &str) -> Result<String> {
    let body = get(client, path, "*/*").await?.into_body();
    Ok(String::from_utf8(body.collect().await?.to_bytes().into())?)
}

/// A POST of JSON, and what came back.
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

/// A write; the answer is read, so that the connection can be used again, and thrown away.
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
