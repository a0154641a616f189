//! Whether a namespace exists, so that "forbidden" and "not there" can be told apart.

use super::api_client::ApiClient;
use http::StatusCode;
use kube::{Client, core::PartialObjectMeta};
use kubewarm_api::model::is_dns_label;
use std::time::Duration;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The largest object that etcd takes by default is 1.5 MiB.
const MAX_BYTES: usize = 2 << 20;
const TIME: Duration = Duration::from_secs(5);

/// What is known of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Existence {
    /// It exists.
    Present,
    /// It is being deleted: its roles go first, then the rest, then the namespace.
    Leaving,
    /// It does not exist.
    Absent,
    /// The identity may not look.
    NotAllowed,
    /// The API server could not be asked.
    Unknown,
}

/// Whether the namespace of this body is being deleted.
#[must_use]
pub fn is_leaving(body: &[u8]) -> bool {
    let found = serde_json::from_slice::<PartialObjectMeta>(body);
    found.is_ok_and(|found| found.metadata.deletion_timestamp.is_some())
}

/// Looks the namespace `name` up, as the identity of `client`.
///
/// # Cost
///
/// One request of at most 5 s; none for what cannot be the name of a namespace.
pub async fn existence(client: &Client, name: &str) -> Existence {
    // Nothing but the name of a namespace may reach the path.
    if !is_dns_label(name) {
        return Existence::Absent;
    }
    let request = ApiClient::new(client).get(format!("/api/v1/namespaces/{name}"));
    let request = request.accept(METADATA_ONLY).within(TIME).at_most(MAX_BYTES);
    let Ok(answer) = request.send().await else { return Existence::Unknown };
    match answer.status {
        StatusCode::OK => {
            if is_leaving(&answer.body) {
                Existence::Leaving
            } else {
                Existence::Present
            }
        }
        StatusCode::NOT_FOUND => Existence::Absent,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Existence::NotAllowed,
        _ => Existence::Unknown,
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
        saying(code, "")
    }

    fn saying(code: u16, body: &'static str) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop");
            let answer =
                Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn each_status_has_its_meaning() {
        for (code, expected) in [
            (200, Existence::Present),
            (404, Existence::Absent),
            (403, Existence::NotAllowed),
            (401, Existence::NotAllowed),
            (503, Existence::Unknown),
        ] {
            assert_eq!(existence(&answering(code), "shop").await, expected, "{code}");
        }
    }

    #[tokio::test]
    async fn one_that_is_being_deleted_is_leaving() {
        let leaving = r#"{"metadata":{"name":"shop","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert_eq!(existence(&saying(200, leaving), "shop").await, Existence::Leaving);
        let there = r#"{"metadata":{"name":"shop"}}"#;
        assert_eq!(existence(&saying(200, there), "shop").await, Existence::Present);
    }

    #[tokio::test]
    async fn what_is_no_name_is_not_asked() {
        for name in ["", "a/b", "..", "A", "a?b", "%2e"] {
            assert_eq!(existence(&answering(200), name).await, Existence::Absent, "{name}");
        }
    }
}
