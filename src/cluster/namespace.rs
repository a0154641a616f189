//! Whether a namespace exists, so that "forbidden" and "not there" can be told apart.

use super::answer::{Bounds, ask};
use http::{HeaderValue, Request, StatusCode, header};
use kube::{Client, client::Body};
use std::time::Duration;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The largest object that etcd takes by default is 1.5 MiB.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(5), body_bytes: 2 << 20 };

/// What is known of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Existence {
    /// It exists; it may be about to be deleted.
    Present,
    /// It does not exist.
    Absent,
    /// The identity may not look.
    NotAllowed,
    /// The API server could not be asked.
    Unknown,
}

/// Looks the namespace `name` up, as the identity of `client`.
///
/// # Cost
///
/// One request of at most 5 s; none for what cannot be the name of a namespace.
pub async fn existence(client: &Client, name: &str) -> Existence {
    // A name that is no label is none of a namespace, and must not reach the path.
    let is_label = (1..=63).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if !is_label {
        return Existence::Absent;
    }
    let Ok(mut request) = Request::get(format!("/api/v1/namespaces/{name}")).body(Body::empty())
    else {
        return Existence::Unknown;
    };
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(METADATA_ONLY));
    let Ok(answer) = ask(client, request, BOUNDS).await else { return Existence::Unknown };
    match answer.status {
        StatusCode::OK => Existence::Present,
        StatusCode::NOT_FOUND => Existence::Absent,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Existence::NotAllowed,
        _ => Existence::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use std::convert::Infallible;
    use tower::service_fn;

    fn answering(code: u16) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop");
            let answer = Response::builder().status(code).body(Body::empty());
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
    async fn what_is_no_name_is_not_asked() {
        for name in ["", "a/b", "..", "A", "a?b", "%2e"] {
            assert_eq!(existence(&answering(200), name).await, Existence::Absent, "{name}");
        }
    }
}
