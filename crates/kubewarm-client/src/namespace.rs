//! Checks whether a namespace exists, so that kubewarm distinguishes a missing namespace from a
//! missing permission.

use super::api_client::ApiClient;
use http::StatusCode;
use kube::{Client, core::PartialObjectMeta};
use kubewarm_api::model::is_dns_label;
use std::time::Duration;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Size limit of the response, 2 MiB. A Namespace always fits, because etcd accepts objects of at
/// most 1.5 MiB by default.
const MAX_BYTES: usize = 2 << 20;
const TIME: Duration = Duration::from_secs(5);

/// The result of a request for a Namespace object with one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceExistence {
    /// The namespace exists and is not being deleted.
    Present,
    /// The namespace is being deleted. Its Roles and RoleBindings can already be deleted, so a 403
    /// in this namespace is expected.
    Terminating,
    /// The namespace does not exist.
    Absent,
    /// The API server responded with 401 or 403: the identity cannot read the namespace.
    NotAllowed,
    /// The request failed, or the API server responded with an unexpected status.
    Unknown,
}

/// Returns whether the Namespace object in `body`, which is JSON, is being deleted.
pub fn is_terminating(body: &[u8]) -> bool {
    let meta = serde_json::from_slice::<PartialObjectMeta>(body);
    meta.is_ok_and(|meta| meta.metadata.deletion_timestamp.is_some())
}

/// Requests the namespace `name` with the credentials of `client`, and returns whether the
/// namespace exists.
///
/// # Cost
///
/// One request of at most 5 s. If `name` is not a valid namespace name, the function sends no
/// request.
pub async fn fetch_namespace_existence(client: &Client, name: &str) -> NamespaceExistence {
    // The path of the request contains `name`, so an invalid name such as `a/b` could address
    // another resource.
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
    async fn a_namespace_with_a_deletion_timestamp_is_terminating() {
        let terminating =
            r#"{"metadata":{"name":"shop","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert_eq!(
            fetch_namespace_existence(&replying(200, terminating), "shop").await,
            NamespaceExistence::Terminating
        );
        let present = r#"{"metadata":{"name":"shop"}}"#;
        assert_eq!(
            fetch_namespace_existence(&replying(200, present), "shop").await,
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
