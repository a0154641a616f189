//! An account that the API server answers no more, while the watch that it has opened goes on.

use crate::{
    engine::{ByName, Engine, cell, quick, run},
    reply::{Feed, Reply, event, list, object, quiet},
    server::{Asked, Kind, Server},
};
use kubewarm::{
    access::{AccessReports, Declared, Standing, Surroundings, Verifier, Wanted},
    cluster::Buckets,
    informer::{CellReport, Phase, RelistReason},
    model::{CellKey, CellSpec, Identity, NamespaceCheck, OnAccessLost, Reason},
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Instead of ten minutes.
const PATIENCE: Duration = Duration::from_secs(3);

/// A cell that is read by an account whose flow somebody has filled: of its requests, only the first
/// list and the first watch come through, and the second trial once `released`. `a@3` was listed, and
/// the watch has brought `b@8`.
struct Scene {
    server: Server,
    engine: Engine,
    access: AccessReports,
    pods: CellSpec,
    feed: Feed,
    release: watch::Sender<bool>,
    _verifying: DropGuard,
}

/// `answers_others`: whether the API server answers the operator, at least.
async fn scene(answers_others: bool) -> Scene {
    let feed = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&feed);
    let (release, released) = watch::channel(false);
    let mut pods = cell("pods");
    let identity = Identity::ServiceAccount { namespace: "ns".into(), name: "full".into() };
    pods.key = CellKey { identity, ..pods.key };
    let (server, engine) = run(quick(), &[&pods], move |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3)])),
        (Kind::List, _) => Reply::json(list(12, &[object("a", 1, 3), object("d", 4, 12)])),
        (Kind::Watch, 0) => {
            let (feed, watch) = Reply::fed();
            *noted.lock() = Some(feed);
            watch
        }
        // The trials.
        (Kind::Newest, 0) => Reply::refused(429, "TooManyRequests"),
        (Kind::Newest, _) => {
            let mut released = released.clone();
            let wait = async move {
                let _dropped = released.wait_for(|it| *it).await;
            };
            let whole = list(12, &[]);
            Reply::in_two(whole[..9].to_owned(), wait, whole[9..].to_owned())
        }
        (Kind::Review, _) if !answers_others || asked.by != "the operator" => {
            Reply::refused(429, "TooManyRequests")
        }
        _ => quiet(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    let feed = feed.lock().clone().unwrap();
    feed.line(event("ADDED", object("b", 2, 8)));
    engine.until_shown(&pods.key, &["a@3", "b@8"]).await;
    let (key, reports) = (pods.key.clone(), engine.reports.clone());
    let wanted = Wanted { key, namespace_check: NamespaceCheck::Known, payer: "ns".into() };
    let declared = Declared { wanted: vec![wanted], unchecked: Vec::new() };
    let verifier = Verifier::new(Surroundings {
        buckets: Buckets::default(),
        clients: Arc::new(ByName(server.address)),
        declared: Box::new(move || Some(declared.clone())),
        fences: Arc::new(reports.clone()),
        reports,
        changes: engine.changes(),
        patience: PATIENCE,
        count: Box::new(|_, _| {}),
    });
    let (access, stop) = (verifier.reports(), CancellationToken::new());
    let verifying = stop.clone().drop_guard();
    tokio::spawn(verifier.run(stop));
    Scene { server, engine, access, pods, feed, release, _verifying: verifying }
}

#[tokio::test]
async fn what_nobody_can_verify_is_taken_back_and_served_no_more_until_somebody_can() {
    let Scene { server, engine, access, pods, feed, release, _verifying } = scene(true).await;
    let fenced = engine.until(&pods.key, |report| report.phase == Phase::Fenced).await;
    assert_eq!(engine.shown(&pods.key), ["a@3"], "what the list brought was verified by it");
    let fault = fenced.fault.clone().unwrap();
    assert_eq!(fault.reason, Reason::Unverified);
    assert!(fault.message.contains("scripted TooManyRequests"), "{}", fault.message);
    assert!(!fenced.serves(OnAccessLost::default()));
    assert!(fenced.serves(OnAccessLost::ServeStale));
    feed.line(event("ADDED", object("c", 3, 9)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(engine.shown(&pods.key), ["a@3"]);
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 1), "nothing is tried");
    let standing = || access.get(&pods.key).unwrap().standing;
    assert!(matches!(standing(), Standing::Unverified(_)), "{:?}", standing());

    release.send_replace(true);
    engine.until_shown(&pods.key, &["a@3", "d@12"]).await;
    let report = engine.until(&pods.key, CellReport::is_warm).await;
    assert_eq!(report.last_relist.unwrap().reason, RelistReason::ForbiddenRecovered);
    assert_eq!(server.of(Kind::List)[1].query("resourceVersion"), "8", "not older than was shown");
    assert!(matches!(standing(), Standing::Granted { .. }), "{:?}", standing());
}

#[tokio::test]
async fn a_server_that_answers_nobody_takes_nothing_away() {
    let Scene { server, engine, access, pods, feed: _open, release: _unused, _verifying } =
        scene(false).await;
    let is_control = |asked: &Asked| {
        asked.by == "the operator" && asked.path.ends_with("/selfsubjectrulesreviews")
    };
    // Whether it answers anybody.
    engine.until(&pods.key, |_| server.of(Kind::Review).iter().any(is_control)).await;
    tokio::time::sleep(PATIENCE * 2).await;
    assert_eq!(engine.shown(&pods.key), ["a@3", "b@8"]);
    assert_eq!(engine.reports.get(&pods.key).unwrap().phase, Phase::Watching);
    let standing = access.get(&pods.key).unwrap().standing;
    assert!(matches!(standing, Standing::Granted { .. }), "{standing:?}");
}
