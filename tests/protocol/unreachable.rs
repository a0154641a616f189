//! Informers of an API server that cannot be reached for a while. Their own backoff is longer than
//! each test, so a test passes only if an informer starts early.

use crate::{
    engine::{ByName, Engine, informer, quick},
    reply::{Feed, Reply, list, object, quiet, status},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::Identity;
use kubewarm_cache::informer::{InformerPhase, InformerTiming};
use kubewarm_client::{ClientProvider, ServerReachability};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Clients that record in one place when the server answered, as the clients of the operator do.
struct Observed(ByName, ServerReachability);

impl ClientProvider for Observed {
    fn client_for(&self, identity: &Identity) -> Arc<kube::Client> {
        Arc::new(self.1.observe(kube::Client::clone(&self.0.client_for(identity))))
    }

    fn reachability(&self) -> ServerReachability {
        self.1.clone()
    }
}

fn patient() -> InformerTiming {
    InformerTiming { backoff: Duration::from_mins(10), ..quick() }
}

/// Sends a request that does not come from an informer. Returns whether the server answered.
async fn is_answered(client: &kube::Client) -> bool {
    kubewarm_client::get(client, "/version").await.is_ok()
}

/// Sends 20 successful requests that do not come from an informer. The pause after each request is
/// the longest random delay with which a success starts an informer early.
async fn succeed_for_a_while(client: &kube::Client) {
    for _ in 0..20 {
        assert!(is_answered(client).await);
        tokio::time::sleep(patient().reconnect_jitter).await;
    }
}

/// A script for the first watch of each resource. The test can cut these watches through the feeds.
fn first_watches() -> (Arc<parking_lot::Mutex<Vec<Feed>>>, impl Fn() -> Reply) {
    let feeds: Arc<parking_lot::Mutex<Vec<Feed>>> = Arc::default();
    let kept = Arc::clone(&feeds);
    let watch = move || {
        let (feed, watch) = Reply::fed();
        kept.lock().push(feed);
        watch
    };
    (feeds, watch)
}

fn listed(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

#[tokio::test]
async fn informers_resume_when_another_client_reaches_the_server_again() {
    let (is_up, all) = (Arc::new(AtomicBool::new(true)), ["pods", "services"].map(informer));
    let ((feeds, watch), up) = (first_watches(), Arc::clone(&is_up));
    let server = ScriptedServer::start(move |asked| match (asked.kind, asked.nth) {
        _ if !up.load(Ordering::Relaxed) => Reply::closed(),
        (Kind::Watch, 0) => watch(),
        _ => listed(asked),
    })
    .await;
    let clients = Observed(ByName(server.address), ServerReachability::default());
    let other = clients.client_for(&Identity::Operator);
    let mut engine = Engine::with_clients(Arc::new(clients), patient());
    for informer in &all {
        engine.start(informer);
        engine.until_watching(&informer.key).await;
    }
    is_up.store(false, Ordering::Relaxed);
    feeds.lock().iter().for_each(Feed::cut);
    for informer in &all {
        engine.until(&informer.key, |report| report.phase == InformerPhase::Failing).await;
    }
    assert!(!is_answered(&other).await);
    is_up.store(true, Ordering::Relaxed);
    assert!(is_answered(&other).await);
    for informer in &all {
        engine.until_watching(&informer.key).await;
    }
    assert_eq!(server.count(Kind::List), 2, "the watches resume");
}

#[tokio::test]
async fn an_informer_resumes_after_a_request_without_a_response() {
    let pods = informer("pods");
    let server = ScriptedServer::start(move |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => Reply::never(),
        _ => listed(asked),
    })
    .await;
    let clients = Observed(ByName(server.address), ServerReachability::default());
    let other = clients.client_for(&Identity::Operator);
    let timing = InformerTiming { watch_headers: Duration::from_secs(2), ..patient() };
    let mut engine = Engine::with_clients(Arc::new(clients), timing);
    engine.start(&pods);
    engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    assert!(is_answered(&other).await);
    engine.until_watching(&pods.key).await;
    assert_eq!((server.count(Kind::Watch), server.count(Kind::List)), (2, 1));
}

#[tokio::test]
async fn an_informer_whose_requests_alone_fail_is_not_woken_in_a_loop() {
    let pods = informer("pods");
    let (feeds, watch) = first_watches();
    let server = ScriptedServer::start(move |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => watch(),
        (Kind::Newest, _) => Reply::closed(),
        _ => listed(asked),
    })
    .await;
    let clients = Observed(ByName(server.address), ServerReachability::default());
    let other = clients.client_for(&Identity::Operator);
    let mut engine = Engine::with_clients(Arc::new(clients), patient());
    engine.start(&pods);
    engine.until_watching(&pods.key).await;
    feeds.lock().iter().for_each(Feed::cut);
    engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    assert!(is_answered(&other).await);
    engine.until(&pods.key, |_| server.count(Kind::Newest) == 1).await;
    succeed_for_a_while(&other).await;
    assert_eq!(server.count(Kind::Newest), 1, "the second early attempt waits for its own delay");
}

#[tokio::test]
async fn an_informer_that_waits_after_a_response_is_not_woken_by_another_clients_success() {
    let later = || Reply::status(429, "retry-after: 60\r\n", status(429, "TooManyRequests"));
    for code in [403, 429, 500] {
        let pods = informer("pods");
        let server = ScriptedServer::start(move |asked| match asked.kind {
            Kind::Watch if code == 429 => later(),
            Kind::Watch => Reply::refused(code, "Scripted"),
            _ => listed(asked),
        })
        .await;
        let clients = Observed(ByName(server.address), ServerReachability::default());
        let other = clients.client_for(&Identity::Operator);
        let mut engine = Engine::with_clients(Arc::new(clients), patient());
        engine.start(&pods);
        engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
        succeed_for_a_while(&other).await;
        assert_eq!((server.count(Kind::Watch), server.count(Kind::Newest)), (1, 0), "{code}");
    }
}
