//! Tests an informer whose access checks get no answer while its open watch continues.

use crate::{
    engine::{ByName, Engine, informer, quick, run},
    reply::{Feed, Reply, event, list, object, quiet},
    server::{Kind, ScriptedServer},
};
use kubewarm::access::{AccessChecker, AccessStates, CheckSettings, CheckerDependencies};
use kubewarm_api::model::{
    AccessLossPolicy, FaultReason, Identity, InformerKey, InformerSpec, NamespaceCheckPolicy,
};
use kubewarm_cache::informer::{InformerPhase, PermissionState};
use kubewarm_client::NamespaceBuckets;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long access may be unconfirmed before the engine blocks the informer. The default is ten
/// minutes.
const PATIENCE: Duration = Duration::from_secs(3);

/// An informer whose identity the API server throttles. Only the first list, the watches and, once
/// `released`, the second access check succeed. The list contains `a@3`, and the watch has sent
/// `b@8`.
struct UnverifiedFixture {
    server: ScriptedServer,
    engine: Engine,
    access: AccessStates,
    pods: InformerSpec,
    feed: Feed,
    noted: Arc<Mutex<Option<Feed>>>,
    release: watch::Sender<bool>,
    _verifying: DropGuard,
}

async fn scene() -> UnverifiedFixture {
    let feed = Arc::new(Mutex::new(None));
    let opened = Arc::clone(&feed);
    let (release, released) = watch::channel(false);
    let mut pods = informer("pods");
    let identity = Identity::ServiceAccount { namespace: "ns".into(), name: "full".into() };
    pods.key = InformerKey { identity, ..pods.key };
    let (server, engine) = run(quick(), &[&pods], move |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3)])),
        (Kind::List, _) => Reply::refused(500, "InternalError"),
        (Kind::Watch, _) => {
            let (feed, watch) = Reply::fed();
            *opened.lock() = Some(feed);
            watch
        }
        // The API server throttles the first access check and every access review.
        (Kind::Newest, 0) | (Kind::Review, _) => Reply::refused(429, "TooManyRequests"),
        (Kind::Newest, _) => {
            let mut released = released.clone();
            let wait = async move {
                let _dropped = released.wait_for(|is_released| *is_released).await;
            };
            let whole = list(12, &[]);
            Reply::in_two(whole[..9].to_owned(), wait, whole[9..].to_owned())
        }
        _ => quiet(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    let noted = feed;
    let feed = noted.lock().clone().unwrap();
    feed.line(event("ADDED", object("b", 2, 8)));
    engine.until_shown(&pods.key, &["a@3", "b@8"]).await;
    let (key, reports) = (pods.key.clone(), engine.reports.clone());
    let check = CheckSettings { namespace_check: NamespaceCheckPolicy::Skip, payer: "ns".into() };
    let checks = Arc::new([(key.clone(), check)].into());
    let verifier = AccessChecker::new(CheckerDependencies {
        buckets: NamespaceBuckets::default(),
        clients: Arc::new(ByName(server.address)),
        informers: Box::new(move || Some(Arc::clone(&checks))),
        profile_informers: Arc::default(),
        reports,
        max_access_age: PATIENCE,
        count_check: Box::new(|_, _| {}),
    });
    let (access, stop) = (verifier.reports(), CancellationToken::new());
    let verifying = stop.clone().drop_guard();
    tokio::spawn(verifier.run(stop));
    UnverifiedFixture { server, engine, access, pods, feed, noted, release, _verifying: verifying }
}

#[tokio::test]
async fn an_unchecked_informer_is_blocked_and_resumes_from_its_version_after_a_check() {
    let UnverifiedFixture { server, engine, access, pods, feed, noted, release, _verifying } =
        scene().await;
    let closed = engine.until(&pods.key, |report| report.phase == InformerPhase::Blocked).await;
    let fault = closed.fault.clone().unwrap();
    assert_eq!(fault.reason, FaultReason::Unverified);
    assert!(fault.message.contains("scripted TooManyRequests"), "{}", fault.message);
    assert!(!closed.serves(AccessLossPolicy::Reject));
    assert!(closed.serves(AccessLossPolicy::ServeStale));
    // The informer is blocked: its store stays, but its watch has ended. So this event changes
    // nothing.
    feed.line(event("ADDED", object("c", 3, 9)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(engine.shown(&pods.key), ["a@3", "b@8"]);
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1), "no request is sent");
    let state = || access.get(&pods.key).unwrap().state;
    assert!(matches!(state(), PermissionState::Unverified { .. }), "{:?}", state());

    release.send_replace(true);
    let report = engine.until(&pods.key, |report| report.phase == InformerPhase::Watching).await;
    assert!(report.is_warm() && report.last_relist.is_none(), "{report:#?}");
    assert_eq!((server.count(Kind::List), report.losses), (1, 1), "no list");
    let watches = server.of(Kind::Watch);
    assert_eq!(watches.last().unwrap().query("resourceVersion"), "8");
    noted.lock().clone().unwrap().line(event("ADDED", object("c", 3, 9)));
    engine.until_shown(&pods.key, &["a@3", "b@8", "c@9"]).await;
    assert!(matches!(state(), PermissionState::Granted { .. }), "{:?}", state());
}
