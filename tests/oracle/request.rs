//! Sends one request, and measures the time at which its response began to arrive.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Timeout of a request, because a disturbed server may never answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A response.
pub(crate) struct OracleReply {
    pub(crate) head: http::response::Parts,
    /// When the first byte arrived.
    pub(crate) arrived: Instant,
    pub(crate) body: Vec<u8>,
}

impl OracleReply {
    pub(crate) fn code(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Sends a request. Returns `None` if the connection broke, or after [`TIMEOUT`].
pub(crate) async fn send(
    client: &Client,
    request: (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Option<OracleReply> {
    tokio::time::timeout(TIMEOUT, async {
        let (head, body) = open(client, request, headers, body).await?.into_parts();
        let arrived = Instant::now();
        let body = body.collect().await.ok()?.to_bytes().to_vec();
        Some(OracleReply { head, arrived, body })
    })
    .await
    .ok()?
}

/// Sends a request and returns when the head of the response has arrived.
pub(crate) async fn open(
    client: &Client,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Option<http::Response<Body>> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = http::Request::builder().method(method).uri(path);
    request = request.header("content-type", kind);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
    client.send(request.body(body).ok()?).await.ok()
}
