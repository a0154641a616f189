//! Tests the loss of access during an open watch, and the return of access.

use crate::{
    engine::{Engine, informer, quick, run},
    read_engine::{ReadEngine, large_object_permits, request},
    reply::{Feed, Reply, event, list, object, quiet},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use jiff::Timestamp;
use kubewarm_api::model::{AccessLossPolicy, FaultReason, InformerKey, InformerSpec, Verb};
use kubewarm_cache::informer::{
    InformerHandles, InformerPermission, InformerPhase, InformerTiming, PermissionDenial,
    PermissionState, RelistReason, ResourceMetrics, UpstreamWatchEnd,
};
use kubewarm_serve::metrics::ClientWatchEnd;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// The watches in the order in which they were opened.
type Feeds = Arc<Mutex<Vec<Feed>>>;

fn forbidden() -> PermissionState {
    PermissionState::Refused(PermissionDenial {
        verbs: vec![Verb::Watch],
        reason: FaultReason::Forbidden,
        message: "pods is forbidden".into(),
        verified_at: Timestamp::now(),
        revoked: None,
    })
}

/// Publishes a decision of the access checker, which does not run in these tests.
fn decide(handles: &InformerHandles, key: &InformerKey, state: PermissionState) {
    let is_granted = matches!(state, PermissionState::Granted { .. });
    let confirmed_at = is_granted.then(Instant::now);
    handles.set_permission(key, &InformerPermission { state, confirmed_at });
}

fn block(handles: &InformerHandles, key: &InformerKey) {
    decide(handles, key, forbidden());
}

fn unblock(handles: &InformerHandles, key: &InformerKey) {
    let verified_at = Timestamp::now();
    decide(handles, key, PermissionState::Granted { verified_at, is_by_review: false });
}

/// Starts an informer whose first list contains `a@3`. The test writes the events of the informer's
/// watches through the feeds. The script `again` answers later lists.
async fn watched(
    spec: &InformerSpec,
    again: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
) -> (ScriptedServer, Engine, Feeds) {
    let feeds = Feeds::default();
    let noted = Arc::clone(&feeds);
    let (server, engine) = run(quick(), &[spec], move |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3)])),
        (Kind::List, _) => again(asked),
        (Kind::Watch, _) => {
            let (feed, watch) = Reply::fed();
            noted.lock().push(feed);
            watch
        }
        _ => quiet(asked),
    })
    .await;
    engine.until_watching(&spec.key).await;
    (server, engine, feeds)
}

fn send(feeds: &Feeds, line: String) {
    feeds.lock().last().unwrap().line(line);
}

/// Sends `a@9` and `b@10`, and waits until the store contains them.
async fn send_two(engine: &Engine, key: &InformerKey, feeds: &Feeds) {
    send(feeds, event("MODIFIED", object("a", 1, 9)));
    send(feeds, event("ADDED", object("b", 2, 10)));
    engine.until_shown(key, &["a@9", "b@10"]).await;
}

/// An informer whose profile has `onAccessLost: ServeStale`.
fn stale() -> InformerSpec {
    let mut pods = informer("pods");
    pods.settings.on_access_lost = AccessLossPolicy::ServeStale;
    pods
}

#[tokio::test]
async fn a_loss_ends_the_watch_and_drops_the_store_unless_a_profile_says_serve_stale() {
    for pods in [informer("pods"), stale()] {
        let is_kept = pods.settings.on_access_lost == AccessLossPolicy::ServeStale;
        let (server, engine, feeds) = watched(&pods, quiet).await;
        send_two(&engine, &pods.key, &feeds).await;
        block(&engine.reports, &pods.key);
        // From this moment on, the informer serves no reads. Its store is dropped only when its
        // task ends.
        let report = engine.reports.get(&pods.key).unwrap();
        assert_eq!((report.phase, report.is_warm()), (InformerPhase::Blocked, false));
        let left: &[&str] = if is_kept { &["a@9", "b@10"] } else { &[] };
        let report = engine.until_shown(&pods.key, left).await;
        let fault = report.fault.clone().unwrap();
        assert_eq!(
            (fault.reason, fault.verb, fault.next_retry),
            (FaultReason::Forbidden, Verb::Watch, None)
        );
        assert!(!report.serves(AccessLossPolicy::Reject));
        assert_eq!(report.serves(AccessLossPolicy::ServeStale), is_kept);
        send(&feeds, event("ADDED", object("c", 3, 11)));
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(engine.shown(&pods.key), left);
        let shut = |metrics: &ResourceMetrics| {
            metrics.upstream_watch_ends.with_label_values(&[UpstreamWatchEnd::Shutdown]).get()
        };
        assert_eq!(engine.count(shut), 1);
        let asked = (server.count(Kind::List), server.count(Kind::Watch));
        assert_eq!(asked, (1, 1), "no request is sent");
    }
}

#[tokio::test]
async fn a_refusal_of_a_blocked_informer_drops_the_store() {
    let pods = informer("pods");
    let (_server, engine, feeds) = watched(&pods, quiet).await;
    send_two(&engine, &pods.key, &feeds).await;
    let message = "no answer".into();
    let unverified = PermissionState::Unverified { verified_at: Timestamp::now(), message };
    decide(&engine.reports, &pods.key, unverified);
    assert_eq!(engine.shown(&pods.key), ["a@9", "b@10"]);
    assert!(!engine.reports.get(&pods.key).unwrap().is_warm());
    block(&engine.reports, &pods.key);
    let fault = engine.until_shown(&pods.key, &[]).await.fault.unwrap();
    assert_eq!(fault.reason, FaultReason::Forbidden);
}

#[tokio::test]
async fn access_that_returns_serves_nothing_before_a_list_is_complete() {
    let (release, released) = tokio::sync::watch::channel(false);
    let pods = stale();
    let (server, engine, feeds) = watched(&pods, move |asked| {
        if asked.nth == 1 {
            return Reply::refused(403, "Forbidden");
        }
        let mut released = released.clone();
        let whole = list(12, &[object("a", 1, 9), object("d", 4, 12)]);
        let head = whole.len() - 80;
        let (head, tail) = (whole[..head].to_owned(), whole[head..].to_owned());
        Reply::in_two(
            head,
            async move {
                released.wait_for(|is_released| *is_released).await.unwrap();
            },
            tail,
        )
    })
    .await;
    send_two(&engine, &pods.key, &feeds).await;
    let reports = engine.reports.clone();
    block(&reports, &pods.key);
    unblock(&reports, &pods.key);
    // After the return of access, the API server refused the first list, and the second list is in
    // progress.
    engine.until(&pods.key, |_| server.count(Kind::List) == 3).await;
    engine.until(&pods.key, |report| report.listed > 0).await;
    let report = engine.reports.get(&pods.key).unwrap();
    assert!(!report.is_warm() && report.lost_at.is_some(), "{report:#?}");
    release.send_replace(true);
    let report = engine.until(&pods.key, |report| report.phase == InformerPhase::Watching).await;
    assert!(report.is_warm() && report.fault.is_none());
    assert_eq!(report.losses, 1, "the loss is counted after access returned");
    assert_eq!(engine.shown(&pods.key), ["a@9", "d@12"]);
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::ForbiddenRecovered);
}

#[tokio::test]
async fn a_second_loss_during_the_list_keeps_the_time_of_the_first() {
    let pods = stale();
    let (server, engine, feeds) = watched(&pods, |_| Reply::never()).await;
    send_two(&engine, &pods.key, &feeds).await;
    let reports = engine.reports.clone();
    block(&reports, &pods.key);
    let first = engine.reports.get(&pods.key).unwrap().lost_at.unwrap();
    unblock(&reports, &pods.key);
    engine.until(&pods.key, |_| server.count(Kind::List) == 2).await;
    block(&reports, &pods.key);
    let report = engine.reports.get(&pods.key).unwrap();
    assert_eq!((report.phase, report.lost_at), (InformerPhase::Blocked, Some(first)));
    assert_eq!(report.losses, 2);
    assert_eq!(engine.shown(&pods.key), ["a@9", "b@10"]);
}

#[tokio::test]
async fn an_informer_paused_during_a_loss_of_access_still_relists() {
    let pods = stale();
    let (server, mut engine, feeds) =
        watched(&pods, |_| Reply::json(list(12, &[object("a", 1, 12)]))).await;
    send_two(&engine, &pods.key, &feeds).await;
    engine.pause(&pods);
    let reports = engine.reports.clone();
    block(&reports, &pods.key);
    assert_eq!(engine.shown(&pods.key), ["a@9", "b@10"]);
    let report = engine.reports.get(&pods.key).unwrap();
    assert_eq!((report.phase, report.is_warm()), (InformerPhase::Paused, false));
    engine.start(&pods);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.count(Kind::List), 1, "blocked, although resumed");
    engine.pause(&pods);
    unblock(&reports, &pods.key);
    assert!(!engine.reports.get(&pods.key).unwrap().is_warm(), "the store is older than the loss");
    engine.start(&pods);
    let report = engine.until_shown(&pods.key, &["a@12"]).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::ForbiddenRecovered);
    engine.until(&pods.key, kubewarm_cache::informer::InformerReport::is_warm).await;
}

#[tokio::test]
async fn access_lost_in_the_first_list_leaves_nothing() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::held(&list(7, &[object("a", 1, 3), object("b", 2, 5)])[..240]),
        (Kind::List, _) => Reply::json(list(9, &[object("b", 2, 5)])),
        _ => quiet(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@3"]).await;
    let reports = engine.reports.clone();
    block(&reports, &pods.key);
    let report = engine.until_shown(&pods.key, &[]).await;
    assert!(!report.serves(AccessLossPolicy::ServeStale), "the first list was never complete");
    unblock(&reports, &pods.key);
    let report = engine.until(&pods.key, |report| report.phase == InformerPhase::Watching).await;
    assert!(report.is_warm() && report.last_relist.is_none());
    assert_eq!((engine.shown(&pods.key), server.count(Kind::List)), (vec!["b@5".to_owned()], 2));
}

#[tokio::test]
async fn a_refused_informer_retries_as_soon_as_access_returns() {
    let pods = informer("pods");
    let slow = InformerTiming { backoff: Duration::from_mins(1), ..quick() };
    let (server, engine) = run(slow, &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::refused(403, "Forbidden"),
        (Kind::List, _) => Reply::json(list(9, &[object("b", 2, 5)])),
        _ => quiet(asked),
    })
    .await;
    engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    unblock(&engine.reports, &pods.key);
    engine.until_shown(&pods.key, &["b@5"]).await;
    assert_eq!(server.count(Kind::List), 2);
}

#[tokio::test]
async fn a_store_is_dropped_when_no_profile_serves_stale_data() {
    let mut pods = stale();
    let (server, mut engine, feeds) =
        watched(&pods, |_| Reply::json(list(12, &[object("a", 1, 12)]))).await;
    send_two(&engine, &pods.key, &feeds).await;
    let reports = engine.reports.clone();
    block(&reports, &pods.key);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(engine.shown(&pods.key), ["a@9", "b@10"]);
    pods.settings.on_access_lost = AccessLossPolicy::Reject;
    engine.retune(&pods);
    let report = engine.until(&pods.key, |report| report.synced_at.is_none()).await;
    assert_eq!(
        (report.phase, report.version, report.synced_at),
        (InformerPhase::Blocked, None, None)
    );
    assert_eq!(engine.catalog.reader(&pods.key).unwrap().usage().bytes, 0);
    unblock(&reports, &pods.key);
    engine.until_shown(&pods.key, &["a@12"]).await;
    assert_eq!(server.count(Kind::List), 2);
}

/// Blocks an informer while a client's watch waits for changes. Returns the watch's last event.
async fn last_event_after(state: PermissionState) -> Value {
    let world = ReadEngine::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    let request = request("/api/v1/pods?watch=1");
    let watching = request.watch.clone().unwrap();
    let mut watch = world
        .reads
        .watch(&request, &watching, None, &"caller", &large_object_permits())
        .await
        .unwrap();
    assert_eq!(watch.next().await.unwrap().events, 1, "the initial object");
    let is_open = timeout(Duration::from_millis(100), watch.next()).await.is_err();
    assert!(is_open && watch.ended().is_none());
    decide(&world.engine.reports, &world.key, state);
    let last = timeout(Duration::from_secs(6), watch.next()).await.unwrap().unwrap();
    assert_eq!(watch.ended(), Some(ClientWatchEnd::InformerGone));
    assert!(watch.next().await.is_none());
    serde_json::from_slice(&last.lines).unwrap()
}

#[tokio::test]
async fn a_block_ends_a_clients_watch_with_its_cause() {
    let unverified =
        PermissionState::Unverified { verified_at: Timestamp::now(), message: "429".into() };
    for (state, code, why) in [
        // The API server has not rejected the informer, so the store keeps its objects and its
        // event log. After 429, client-go watches from its last version, without a list.
        (unverified, 429, "could not verify"),
        // kubewarm empties the store, so the client must list again.
        (forbidden(), 410, "lacks list or watch permission"),
    ] {
        let event = last_event_after(state).await;
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(code)));
        assert!(event["object"]["message"].as_str().unwrap().contains(why), "{event}");
    }
}
