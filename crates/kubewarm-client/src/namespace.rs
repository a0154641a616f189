//! Checks whether a namespace exists, so that kubewarm can distinguish a missing namespace from a missing permission.

use super::api_client::ApiClient;
use http::StatusCode;
use kube::{Client, core::PartialObjectMeta};
use kubewarm_api::model::is_dns_label;
use std::time::Duration;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The largest object that etcd accepts by default is 1.5 MiB.
const MAX_BYTES: usize = 2 << 20;
const TIME: Duration = Duration::from_secs(5);

/// Whether a namespace exists, as far as an identity can find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceExistence {
    /// The namespace exists and is not being deleted.
    Present,
    /// The namespace is being deleted. Its roles can already be gone.
    Terminating,
    /// The namespace does not exist.
    Absent,
    /// The identity is not permitted to read the namespace: the API server responded with 401 or 403.
    NotAllowed,
    /// The request failed, or the API server responded with an unexpected status.
    Unknown,
}

/// Returns whether the namespace in `body` is being deleted. `body` is the namespace as JSON.
#[must_use]
pub fn is_terminating(body: &[u8]) -> bool {
    let found = serde_json::from_slice::<PartialObjectMeta>(body);
    found.is_ok_and(|found| found.metadata.deletion_timestamp.is_some())
}

/// Reads the namespace `name` with the identity of `client`.
///
/// # Cost
///
/// One request of at most 5 s; none if `name` is not a valid namespace name.
pub async fn fetch_namespace_existence(client: &Client, name: &str) -> NamespaceExistence {
    // The path contains the name, so an invalid name could request another resource.
    if !is_dns_label(name) {
        return NamespaceExistence::Absent;
    }
    let request = ApiClient::new(client).get(format!("/api/v1/namespaces/{name}"));
    let request = request.accept(METADATA_ONLY).within(TIME).at_most(MAX_BYTES);
    let Ok(response) = request.send().await else { return NamespaceExistence::Unknown };
    match response.status {
        StatusCode::OK => {
            if is_terminating(&response.body) {
                NamespaceExistence::Terminating
            } else {
                NamespaceExistence::Present
            }
        }
        StatusCode::NOT_FOUND => NamespaceExistence::Absent,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => NamespaceExistence::NotAllowed,
        _ => NamespaceExistence::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use tower::service_fn;

    fn answering(code: u16) -> Client {
        replying(code, "")
    }

    fn replying(code: u16, body: &'static str) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop");
            let response =
                Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, Infallible>(response.unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn each_http_status_decides_whether_the_namespace_exists() {
        for (code, expected) in [
            (200, NamespaceExistence::Present),
            (404, NamespaceExistence::Absent),
            (403, NamespaceExistence::NotAllowed),
            (401, NamespaceExistence::NotAllowed),
            (503, NamespaceExistence::Unknown),
        ] {
            assert_eq!(
                fetch_namespace_existence(&answering(code), "shop").await,
                expected,
                "{code}"
            );
        }
    }

    #[tokio::test]
    async fn a_namespace_with_a_deletion_timestamp_is_leaving() {
        let leaving = r#"{"metadata":{"name":"shop","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert_eq!(
            fetch_namespace_existence(&replying(200, leaving), "shop").await,
            NamespaceExistence::Terminating
        );
        let there = r#"{"metadata":{"name":"shop"}}"#;
        assert_eq!(
            fetch_namespace_existence(&replying(200, there), "shop").await,
            NamespaceExistence::Present
        );
    }

    #[tokio::test]
    async fn an_invalid_namespace_name_is_reported_as_absent() {
        for name in ["", "a/b", "..", "A", "a?b", "%2e"] {
            assert_eq!(
                fetch_namespace_existence(&answering(200), name).await,
                NamespaceExistence::Absent,
                "{name}"
            );
        }
    }
}
