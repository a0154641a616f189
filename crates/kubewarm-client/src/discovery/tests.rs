//! Tests discovery in paused time, against a fake API server.

use super::*;
use http::{Request, Response, header};
use kube::client::Body;
use kubewarm_api::model::FaultReason;
use kubewarm_api::model::GroupResource;
use parking_lot::Mutex;
use std::{collections::BTreeMap, convert::Infallible};
use tokio::time::sleep;
use tower::service_fn;

/// A fake API server with one response for each path, which counts the requests and the 304
/// responses.
#[derive(Clone, Default)]
struct FakeDiscoveryServer(Arc<Mutex<FakeDiscoveryState>>);

#[derive(Default)]
struct FakeDiscoveryState {
    bodies: BTreeMap<String, (u16, String)>,
    /// The response for `/apis` after a request for `/readyz`. Before this request, `/apis` has the
    /// response in `bodies`.
    whole: Option<(u16, String)>,
    paths: Vec<String>,
    not_modified: usize,
}

impl FakeDiscoveryServer {
    fn set(&self, path: &str, code: u16, body: &str) {
        self.0.lock().bodies.insert(path.to_owned(), (code, body.to_owned()));
    }

    fn set_group(&self, group: &str, plural: &str) {
        let resources = format!(
            r#"{{"resource":"{plural}","responseKind":{{"kind":"K"}},"scope":"Cluster",
            "verbs":["list","watch"]}}"#
        );
        let versions = format!(r#"{{"version":"v1","resources":[{resources}]}}"#);
        let item = format!(r#"{{"metadata":{{"name":"{group}"}},"versions":[{versions}]}}"#);
        let list = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{item}]}}"#);
        self.set(if group.is_empty() { "/api" } else { "/apis" }, 200, &list);
    }

    /// Removes all groups from `/apis` until the server gets a request for `/readyz`.
    fn hide_groups_until_ready(&self) {
        let mut state = self.0.lock();
        state.whole = state.bodies.get("/apis").cloned();
        let empty = r#"{"kind":"APIGroupDiscoveryList","items":[]}"#;
        state.bodies.insert("/apis".to_owned(), (200, empty.to_owned()));
    }

    fn requests(&self, path: &str) -> usize {
        self.0.lock().paths.iter().filter(|sent| *sent == path).count()
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let mut state = fake.0.lock();
            let path = request.uri().path().to_owned();
            state.paths.push(path.clone());
            if path == "/readyz"
                && let Some(whole) = state.whole.take()
            {
                state.bodies.insert("/apis".to_owned(), whole);
            }
            let (code, body) = state.bodies.get(&path).cloned().unwrap_or((404, String::new()));
            let tag = format!("\"{body}\"").replace(|c: char| !c.is_ascii_alphanumeric(), "");
            let is_same = request.headers().get(header::IF_NONE_MATCH).is_some_and(|t| *t == *tag);
            state.not_modified += usize::from(is_same);
            let answer = Response::builder().header(header::ETAG, tag);
            let answer = if is_same {
                answer.status(304).body(Body::empty())
            } else {
                answer.status(code).body(Body::from(body.into_bytes()))
            };
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }
}

fn is_served(discovery: &Discovery, group: &str, plural: &str) -> bool {
    let resource = GroupResource::new(group, plural).unwrap();
    let served = discovery.served().borrow().clone();
    served.is_some_and(|served| served.resolve(&resource, None).is_ok())
}

async fn started(fake: &FakeDiscoveryServer) -> Discovery {
    let discovery = Discovery::new(fake.client());
    let running = discovery.clone();
    tokio::spawn(async move { running.run(CancellationToken::new()).await });
    sleep(Duration::from_millis(500)).await;
    discovery
}

#[tokio::test(start_paused = true)]
async fn a_changed_document_is_published_and_an_unchanged_one_is_not() {
    let fake = FakeDiscoveryServer::default();
    fake.set_group("", "pods");
    fake.set_group("a.example", "ones");
    let discovery = started(&fake).await;
    let mut served = discovery.served();
    assert!(is_served(&discovery, "", "pods") && is_served(&discovery, "a.example", "ones"));
    served.mark_unchanged();
    sleep(Duration::from_secs(100)).await;
    assert!(!served.has_changed().unwrap());
    assert_eq!(fake.0.lock().not_modified, 6, "3 more polls of 2 documents");
    fake.set_group("b.example", "twos");
    sleep(Duration::from_secs(35)).await;
    assert!(served.has_changed().unwrap());
    assert!(
        is_served(&discovery, "b.example", "twos") && !is_served(&discovery, "a.example", "ones")
    );
}

#[tokio::test(start_paused = true)]
async fn hurried_discovery_polls_every_5_s_and_refreshes_at_most_once_a_second() {
    let fake = FakeDiscoveryServer::default();
    fake.set_group("", "pods");
    fake.set_group("a.example", "ones");
    let discovery = started(&fake).await;
    discovery.set_hurried(true);
    sleep(Duration::from_mins(1)).await;
    let hurried = fake.requests("/api");
    assert!((11..=14).contains(&hurried), "{hurried}");
    discovery.set_hurried(false);
    for _ in 0..1_000 {
        discovery.refresh();
        sleep(Duration::from_millis(10)).await;
    }
    let refreshed = fake.requests("/api") - hurried;
    assert!((8..=13).contains(&refreshed), "{refreshed}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_the_snapshot_and_is_reported() {
    let fake = FakeDiscoveryServer::default();
    fake.set_group("", "pods");
    fake.set_group("a.example", "ones");
    let discovery = started(&fake).await;
    fake.set("/apis", 503, r#"{"kind":"Status","message":"starting"}"#);
    discovery.refresh();
    sleep(Duration::from_secs(10)).await;
    let fault = discovery.fault().borrow().clone().unwrap();
    assert_eq!(fault.message(), "starting");
    assert!(is_served(&discovery, "a.example", "ones"));
    fake.set("/apis", 200, "<html>");
    sleep(Duration::from_secs(35)).await;
    let fault = discovery.fault().borrow().clone().unwrap();
    assert_eq!(fault.reason(), FaultReason::Malformed);
    fake.set_group("a.example", "ones");
    sleep(Duration::from_secs(35)).await;
    assert_eq!(*discovery.fault().borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn a_starting_api_server_removes_no_resource() {
    let fake = FakeDiscoveryServer::default();
    fake.set_group("", "pods");
    fake.set_group("a.example", "ones");
    let discovery = started(&fake).await;
    fake.set_group("b.example", "twos");
    fake.set("/readyz", 500, "[-]poststarthook/crd-informer-synced failed");
    sleep(Duration::from_secs(100)).await;
    assert!(
        is_served(&discovery, "a.example", "ones") && !is_served(&discovery, "b.example", "twos")
    );
    assert!(discovery.fault().borrow().is_some());
    fake.set("/readyz", 200, "ok");
    sleep(Duration::from_secs(35)).await;
    assert!(
        !is_served(&discovery, "a.example", "ones") && is_served(&discovery, "b.example", "twos")
    );
    assert_eq!(*discovery.fault().borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn resources_that_are_missing_only_before_the_api_server_is_ready_stay() {
    let fake = FakeDiscoveryServer::default();
    fake.set_group("", "pods");
    fake.set_group("a.example", "ones");
    let discovery = started(&fake).await;
    let mut served = discovery.served();
    served.mark_unchanged();
    fake.hide_groups_until_ready();
    sleep(Duration::from_secs(35)).await;
    assert_eq!(fake.requests("/readyz"), 1);
    assert!(!served.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_aggregated_discovery_is_reported_as_unsupported() {
    let legacy = r#"{"kind":"APIVersions","versions":["v1"]}"#;
    let refusal = r#"{"kind":"Status","reason":"NotAcceptable","message":"only JSON"}"#;
    for (code, body) in [(200, legacy), (406, refusal)] {
        let fake = FakeDiscoveryServer::default();
        fake.set("/api", code, body);
        fake.set_group("a.example", "ones");
        let discovery = started(&fake).await;
        assert!(discovery.served().borrow().is_none());
        let fault = discovery.fault().borrow().clone().unwrap();
        assert_eq!(fault.reason(), FaultReason::Unsupported);
        assert!(fault.message().contains("Kubernetes 1.32 or newer"), "{fault}");
    }
}
