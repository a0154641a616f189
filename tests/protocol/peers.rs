//! Tests of informers that copy their stores from another replica. Whatever the other replica
//! sends, the store ends with the API server's objects.

use crate::{
    engine::{Engine, informer, quick},
    read_engine::{ReadEngine, ReadSetup, operator_client},
    reply::{Reply, bookmark, end_bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::{InformerScope, InformerSpec, ListStrategy, ResourceVersion};
use kubewarm_cache::informer::{FirstSyncMethod, InformerPhase};
use kubewarm_client::PeerReplicas;
use kubewarm_wire::{PEER_SUMMARY_HEADER, PeerStoreSummary};
use std::{future::pending, time::Duration};

/// The store's objects at version 7, and the changes up to version 9.
fn copied() -> Vec<String> {
    vec![
        event("ADDED", object("d", 4, 2)),
        event("ADDED", object("a", 1, 3)),
        event("ADDED", object("b", 2, 5)),
        end_bookmark(7),
        event("MODIFIED", object("a", 1, 8)),
        event("DELETED", object("b", 2, 9)),
        event("MODIFIED", object("c", 3, 10)),
        bookmark(12),
    ]
}

/// The age of a peer's store in a test.
const AGE: Duration = Duration::from_secs(90);

/// An informer that a profile declares. kubewarm's own informers always list.
fn pods() -> InformerSpec {
    let mut pods = informer("pods");
    pods.key.declared_in = Some("ns".into());
    pods
}

fn text(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}

/// The header of the store in [`copied`], from an informer that received the same events.
async fn summary() -> PeerStoreSummary {
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::Stream => Reply::held(text(&copied())),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, mut pods) = (Engine::new(&server, quick()), pods());
    pods.settings.lists.strategy = ListStrategy::WatchList;
    engine.start(&pods);
    engine.until(&pods.key, |report| report.version == Some(12.into())).await;
    let path = kubewarm_wire::peer_store_path(&pods.key);
    assert!(engine.reports.transfer("/other").is_none());
    engine.reports.transfer(&path).unwrap().summary
}

/// A response with these lines and the header of the store in [`copied`].
fn answer(lines: &[String], header: &PeerStoreSummary) -> Reply {
    Reply::json(text(lines)).with_header(PEER_SUMMARY_HEADER, &header.header())
}

/// A replica with the store in [`copied`].
async fn peer() -> ScriptedServer {
    let header = summary().await;
    ScriptedServer::start(move |_| answer(&copied(), &header)).await
}

/// An API server with one object, which no copy contains.
async fn api_server() -> ScriptedServer {
    ScriptedServer::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(20, &[object("listed", 9, 19)])),
        Kind::Newest => Reply::json(list(12, &[])),
        _ => quiet(asked),
    })
    .await
}

#[tokio::test]
async fn a_copy_has_the_objects_the_log_and_the_version_of_the_peer_and_needs_no_list() {
    let peer = peer().await;
    let server = api_server().await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    let pods = pods();
    engine.start(&pods);
    let report = engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@8", "c@10", "d@2"]);
    assert_eq!(report.warmed.unwrap().strategy, FirstSyncMethod::Peer);
    assert_eq!((server.count(Kind::List), server.count(Kind::Newest)), (0, 1));
    assert_eq!(server.of(Kind::Watch)[0].query("resourceVersion"), "12");
    // Watches and lists at the versions of the peer's event log find all changes.
    let reader = engine.catalog.reader(&pods.key).unwrap();
    assert!(reader.follow(&7.into()).is_ok() && reader.follow(&6.into()).is_err());
    let mut follower = reader.follow(&8.into()).unwrap();
    let mut names = Vec::new();
    while let kubewarm_cache::store::FollowerEvent::Change(change) = follower.next_event() {
        names.push((String::from_utf8_lossy(change.name()).into_owned(), change.exists()));
    }
    assert_eq!(names, [("b".to_owned(), false), ("c".to_owned(), true)]);
    let upstream = engine.count(|metrics| metrics.upstream_list_items.get());
    assert_eq!(upstream, 0, "the metrics of lists count only the API server");
    // A relist shows what the API server has, so it asks no peer.
    engine.relist(&pods.key, kubewarm_cache::informer::RelistReason::Redefined);
    engine.until_shown(&pods.key, &["listed@19"]).await;
    assert_eq!((peer.asked().len(), server.count(Kind::List)), (1, 1));
}

#[tokio::test]
async fn a_peer_whose_answer_is_wrong_in_any_way_is_replaced_by_a_list() {
    type Answer = Box<dyn Fn(&PeerStoreSummary) -> Reply + Send + Sync>;
    let lines = |change: fn(&mut Vec<String>)| -> Answer {
        Box::new(move |header| {
            let mut lines = copied();
            change(&mut lines);
            answer(&lines, header)
        })
    };
    let cases: Vec<(&str, Answer)> = vec![
        ("another format", Box::new(|_| Reply::refused(404, "NotFound"))),
        ("no permission", Box::new(|_| Reply::refused(403, "Forbidden"))),
        ("no permission", Box::new(|_| Reply::refused(401, "Unauthorized"))),
        ("busy", Box::new(|_| Reply::refused(429, "TooManyRequests"))),
        ("the API server is away", Box::new(|_| Reply::refused(503, "ServiceUnavailable"))),
        ("a broken connection", Box::new(|_| Reply::closed())),
        ("no response", Box::new(|_| Reply::never())),
        (
            "no body",
            Box::new(|header| {
                Reply::steps(futures::stream::once(pending()))
                    .with_header(PEER_SUMMARY_HEADER, &header.header())
            }),
        ),
        ("no header", Box::new(|_| Reply::json(text(&copied())))),
        (
            "nonsense",
            Box::new(|header| {
                Reply::json("<html>").with_header(PEER_SUMMARY_HEADER, &header.header())
            }),
        ),
        (
            "an opaque version",
            Box::new(|_| {
                let opaque = ResourceVersion::parse("x").unwrap();
                answer(&copied(), &PeerStoreSummary::new(&opaque, (3, 0), Duration::ZERO))
            }),
        ),
        (
            "another digest",
            Box::new(|_| {
                answer(&copied(), &PeerStoreSummary::new(&12.into(), (3, 7), Duration::ZERO))
            }),
        ),
        (
            "a cut",
            Box::new(|header| {
                Reply::cut(text(&copied()[..7])).with_header(PEER_SUMMARY_HEADER, &header.header())
            }),
        ),
        ("nothing", lines(Vec::clear)),
        ("no changes", lines(|lines| lines.truncate(4))),
        ("no last bookmark", lines(|lines| drop(lines.pop()))),
        ("a missing object", lines(|lines| drop(lines.remove(0)))),
        ("a missing change", lines(|lines| drop(lines.remove(6)))),
        ("a repeated change", lines(|lines| lines.insert(5, lines[4].clone()))),
        ("changes in another order", lines(|lines| lines.swap(4, 6))),
        ("an object that is no object", lines(|lines| lines[0] = event("ADDED", r#"{"a":1}"#))),
        ("a change that is no object", lines(|lines| lines[4] = event("MODIFIED", r#"{"a":1}"#))),
        ("an error", lines(|lines| lines[4] = event("ERROR", status(410, "Expired")))),
        ("an older bookmark", lines(|lines| lines[7] = bookmark(9))),
    ];
    let header = summary().await;
    let tests = cases.into_iter().map(|(name, reply)| {
        let header = header.clone();
        async move {
            let peer = ScriptedServer::start(move |_: &ReceivedQuery| reply(&header)).await;
            let server = api_server().await;
            let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
            let pods = pods();
            engine.start(&pods);
            let report = engine.until_watching(&pods.key).await;
            assert_eq!(engine.shown(&pods.key), ["listed@19"], "{name}");
            assert_eq!(report.warmed.unwrap().strategy, FirstSyncMethod::List, "{name}");
            assert_eq!(report.undecodable.len(), 0, "{name}");
            assert_eq!((peer.asked().len(), server.count(Kind::List)), (1, 1), "{name}");
        }
    });
    futures::future::join_all(tests).await;
}

#[tokio::test]
async fn a_copy_is_as_old_as_the_peers_store_and_serves_nothing_before_it_is_confirmed() {
    let header = summary().await;
    let old = PeerStoreSummary::new(&12.into(), (header.objects, header.digest), AGE);
    let peer = ScriptedServer::start(move |_| answer(&copied(), &old)).await;
    // The API server has a newer version, which the watch does not reach.
    let (confirm, confirmed) = tokio::sync::watch::channel(false);
    let server = ScriptedServer::start(move |asked| match asked.kind {
        Kind::Newest => {
            let mut confirmed = confirmed.clone();
            let wait = async move { drop(confirmed.wait_for(|is_confirmed| *is_confirmed).await) };
            Reply::in_two(String::new(), wait, list(50, &[]))
        }
        _ => quiet(asked),
    })
    .await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    let pods = pods();
    engine.start(&pods);
    let report = engine.until_shown(&pods.key, &["a@8", "c@10", "d@2"]).await;
    assert!(report.synced_at.is_none() && server.of(Kind::Watch).is_empty(), "{report:?}");
    confirm.send_replace(true);
    let report = engine.until_watching(&pods.key).await;
    assert!(report.current_at.unwrap().elapsed() >= AGE, "{report:?}");
}

#[tokio::test]
async fn kubewarms_own_informers_always_list() {
    let peer = peer().await;
    let server = api_server().await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    let pods = informer("pods");
    engine.start(&pods);
    engine.until_watching(&pods.key).await;
    assert_eq!((peer.asked().len(), server.count(Kind::List)), (0, 1));
}

#[tokio::test]
async fn a_silent_peer_is_no_peer_and_is_asked_by_one_informer_only() {
    for (reply, has_peers) in [
        ((|_| Reply::refused(404, "NotFound")) as fn(&ReceivedQuery) -> Reply, true),
        (|_| Reply::closed(), false),
    ] {
        let peer = ScriptedServer::start(reply).await;
        let peers = PeerReplicas::of_clients([operator_client(&peer)]);
        let server = api_server().await;
        let mut engine = Engine::new(&server, quick()).with_replicas(peers.clone());
        let (pods, mut nodes) = (pods(), informer("nodes"));
        nodes.key.declared_in = Some("ns".into());
        for informer in [&pods, &nodes] {
            engine.start(informer);
            engine.until_watching(&informer.key).await;
        }
        assert_eq!(peers.has_peers(), has_peers);
        assert_eq!(peer.asked().len(), if has_peers { 2 } else { 1 });
    }
}

#[tokio::test]
async fn informers_that_wait_for_a_list_slot_do_not_ask_a_peer_that_was_silent_meanwhile() {
    // The time for which an informer waits for a silent peer does not matter here.
    let silent = ScriptedServer::start(|_| Reply::closed()).await;
    let other = ScriptedServer::start(|_| Reply::refused(404, "NotFound")).await;
    let server = api_server().await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&silent, &other]);
    let informers: Vec<_> = (0..40)
        .map(|number| {
            let mut pods = pods();
            pods.key.scope = InformerScope::Namespace(format!("ns-{number}").into());
            pods
        })
        .collect();
    for informer in &informers {
        engine.start(informer);
    }
    for informer in &informers {
        engine.until_watching(&informer.key).await;
    }
    // Eight informers have a list slot at the same time.
    assert!(silent.asked().len() <= 8, "{}", silent.asked().len());
    assert_eq!(other.asked().len(), 40);
}

#[tokio::test]
async fn a_second_peer_answers_if_the_first_cannot() {
    let peer = peer().await;
    let broken = ScriptedServer::start(|_| Reply::cut(text(&copied()[..1]))).await;
    let server = api_server().await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&broken, &peer]);
    let pods = pods();
    engine.start(&pods);
    engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@8", "c@10", "d@2"]);
    assert_eq!(server.count(Kind::List), 0);
}

#[tokio::test]
async fn nothing_is_served_before_the_api_server_has_shown_permission_and_a_version() {
    let header = summary().await;
    // Versions went back: the peer's store is that of an undone history.
    let older = header.clone();
    let peer = ScriptedServer::start(move |_| answer(&copied(), &older)).await;
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(11, &[object("listed", 9, 4)])),
        Kind::Newest => Reply::json(list(11, &[])),
        _ => quiet(asked),
    })
    .await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    let pods = pods();
    engine.start(&pods);
    engine.until_shown(&pods.key, &["listed@4"]).await;
    engine.until_watching(&pods.key).await;
    // No watch began at the version of the undone history.
    let watches = server.of(Kind::Watch);
    assert!(watches.iter().all(|watch| watch.query("resourceVersion") == "11"), "{watches:?}");

    // The informer's identity may not read any more.
    let peer = ScriptedServer::start(move |_| answer(&copied(), &header)).await;
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::List | Kind::Newest => Reply::refused(403, "Forbidden"),
        _ => quiet(asked),
    })
    .await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    engine.start(&pods);
    let report = engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    assert!(report.synced_at.is_none() && report.warmed.is_none(), "{report:?}");
    assert_eq!(engine.shown(&pods.key), [] as [&str; 0]);
}

#[tokio::test]
async fn reads_are_strict_next_to_another_replica_that_clients_can_come_from() {
    let peers = PeerReplicas::of_clients([]);
    for is_ready in [false, true] {
        if is_ready {
            peers.record_ready();
        }
        assert!(!peers.is_newly_ready(), "there is no other replica");
    }
    let other = ScriptedServer::start(quiet).await;
    let peers = PeerReplicas::of_clients([operator_client(&other)]);
    let setup = ReadSetup { peers: Some(peers.clone()), ..ReadSetup::default() };
    let world = ReadEngine::start_with(setup, |asked| match asked.kind {
        Kind::List | Kind::First => Reply::json(list(7, &[object("a", 1, 3)])),
        Kind::Newest => Reply::json(list(7, &[])),
        _ => quiet(asked),
    })
    .await;
    world.engine.until_watching(&world.key).await;
    peers.record_answer();
    let checks = || world.server.count(Kind::First) + world.server.count(Kind::Newest);
    let before = checks();
    assert_eq!(world.read("/api/v1/pods").await.unwrap(), ["a"]);
    assert_eq!(checks(), before, "the replica is not ready yet");
    peers.record_ready();
    assert_eq!(world.read("/api/v1/pods").await.unwrap(), ["a"]);
    assert!(checks() > before, "a read needs a check of its own");
}
