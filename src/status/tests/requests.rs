//! Tests of the requests that the status writer and the event recorder send, and of their reactions
//! to responses.

use crate::status::{EventRecorder, ProfileEvent, StatusWrite, StatusWriteOutcome, StatusWriter};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{AccessStatus, CacheProfileStatus},
};
use kubewarm_client::NamespaceBuckets;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc};

/// A fake API server that answers the first request with one status code, and all later requests
/// with another status code. It records the requests.
#[derive(Clone, Default)]
struct StatusServer {
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

#[derive(Clone, Debug)]
struct ReceivedRequest {
    line: String,
    content_type: String,
    body: Value,
}

impl StatusServer {
    fn answering(code: u16) -> (Self, Client) {
        Self::answering_first(code, code)
    }

    fn answering_first(first: u16, then: u16) -> (Self, Client) {
        let server = Self::default();
        let requests = Arc::clone(&server.requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let requests = Arc::clone(&requests);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let content_type = head.headers.get("content-type").cloned();
                let code = if requests.lock().is_empty() { first } else { then };
                requests.lock().push(ReceivedRequest {
                    line: format!("{} {}", head.method, head.uri),
                    content_type: content_type.unwrap().to_str().unwrap().to_owned(),
                    body: serde_json::from_slice(&body).unwrap(),
                });
                let body = if code < 300 {
                    json!({"metadata": {"uid": "u-1"}})
                } else {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "metadata": {}, "message": "no", "reason": "No", "code": code})
                };
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        (server, Client::new(service, "default"))
    }
}

fn profile() -> ProfileRef {
    ProfileRef { namespace: "shop".into(), name: "checkout".into() }
}

fn write() -> StatusWrite {
    let status = CacheProfileStatus { objects: Some(5), ..CacheProfileStatus::default() };
    StatusWrite { profile: profile(), uid: "u-1".into(), status: Arc::new(status) }
}

fn recorder(client: &Client) -> EventRecorder {
    EventRecorder::new(client, "kubewarm-0", NamespaceBuckets::default())
}

fn notice(note: &str) -> ProfileEvent {
    ProfileEvent {
        profile: profile(),
        uid: "u-1".into(),
        target: String::new(),
        type_: "Warning",
        reason: "NotReady",
        note: note.into(),
    }
}

#[tokio::test]
async fn a_status_is_applied_with_force() {
    let (server, client) = StatusServer::answering(200);
    assert_eq!(StatusWriter::new(&client).write(&write()).await, StatusWriteOutcome::Written);
    let requests = server.requests.lock()[0].clone();
    assert_eq!(
        requests.line,
        "PATCH /apis/kubewarm.io/v1alpha1/namespaces/shop/cacheprofiles/checkout/status\
         ?fieldManager=kubewarm&force=true"
    );
    assert_eq!(requests.content_type, "application/apply-patch+yaml");
    let expected = json!({
        "apiVersion": "kubewarm.io/v1alpha1",
        "kind": "CacheProfile",
        "metadata": {"namespace": "shop", "name": "checkout"},
        "status": {"objects": 5},
    });
    assert_eq!(requests.body, expected);
}

#[tokio::test]
async fn only_a_404_ends_the_retries() {
    for (code, outcome) in [
        (201, StatusWriteOutcome::Written),
        (404, StatusWriteOutcome::NotFound),
        (403, StatusWriteOutcome::Failed),
        (409, StatusWriteOutcome::Failed),
        (422, StatusWriteOutcome::Failed),
        (429, StatusWriteOutcome::Failed),
        (500, StatusWriteOutcome::Failed),
        (503, StatusWriteOutcome::Failed),
    ] {
        let (_server, client) = StatusServer::answering(code);
        assert_eq!(StatusWriter::new(&client).write(&write()).await, outcome, "{code}");
    }
}

#[tokio::test]
async fn a_status_written_to_another_uid_is_not_retried() {
    let (_server, client) = StatusServer::answering(200);
    assert_eq!(
        StatusWriter::new(&client).write(&StatusWrite { uid: "u-0".into(), ..write() }).await,
        StatusWriteOutcome::NotFound
    );
}

#[tokio::test]
async fn an_oversized_status_omits_the_parts_that_a_command_prints() {
    let (server, client) = StatusServer::answering(200);
    let access = AccessStatus {
        subject: Some("reader".into()),
        manifests: Some("m".repeat(2 << 20)),
        ..AccessStatus::default()
    };
    let status = CacheProfileStatus { access: Some(access), ..CacheProfileStatus::default() };
    StatusWriter::new(&client).write(&StatusWrite { status: Arc::new(status), ..write() }).await;
    let expected = json!({"access": {"subject": "reader"}});
    assert_eq!(server.requests.lock()[0].body["status"], expected);
}

#[tokio::test]
async fn an_event_refers_to_the_profile() {
    let (server, client) = StatusServer::answering(201);
    let recorder = recorder(&client);
    recorder.send(&notice("why"), jiff::Timestamp::UNIX_EPOCH).await;
    let requests = server.requests.lock()[0].clone();
    assert_eq!(requests.line, "POST /apis/events.k8s.io/v1/namespaces/shop/events");
    assert_eq!(
        requests.body,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "shop", "generateName": "checkout-"},
            "eventTime": "1970-01-01T00:00:00.000000Z",
            "action": "Warming",
            "reason": "NotReady",
            "note": "why",
            "type": "Warning",
            "regarding": {
                "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
                "namespace": "shop", "name": "checkout", "uid": "u-1",
            },
            "reportingController": "kubewarm.io/kubewarm",
            "reportingInstance": "kubewarm-0",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_refused_once_is_sent_again() {
    let (server, client) = StatusServer::answering_first(403, 201);
    let recorder = recorder(&client);
    for _ in 0..2 {
        recorder.send(&notice("why"), jiff::Timestamp::UNIX_EPOCH).await;
    }
    assert_eq!(
        server.requests.lock().len(),
        3,
        "the first Event is sent twice and the second Event once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_refuses_an_event_twice_gets_no_more() {
    let (server, client) = StatusServer::answering(403);
    let recorder = recorder(&client);
    for _ in 0..3 {
        recorder.send(&notice("why"), jiff::Timestamp::UNIX_EPOCH).await;
    }
    assert_eq!(server.requests.lock().len(), 2);
    let elsewhere = ProfileEvent {
        profile: ProfileRef { namespace: "other".into(), name: "checkout".into() },
        ..notice("why")
    };
    recorder.send(&elsewhere, jiff::Timestamp::UNIX_EPOCH).await;
    assert_eq!(server.requests.lock().len(), 4, "another namespace can accept Events");
}
