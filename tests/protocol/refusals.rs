//! Tests of requests that are refused or not answered.

use crate::{
    engine::{informer, quick, run},
    reply::{Reply, end_bookmark, event, list, object, quiet, status},
    server::{Kind, ReceivedQuery},
};
use kubewarm_api::model::{FaultReason, ListStrategy};
use kubewarm_cache::informer::{
    FirstSyncMethod, InformerPhase, InformerTiming, RelistReason, Verb,
};
use std::time::{Duration, SystemTime};

fn one(asked: &ReceivedQuery) -> Reply {
    match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    }
}

#[tokio::test]
async fn a_throttled_list_waits_for_retry_after_and_keeps_its_method() {
    let ways = [
        ("pods", ListStrategy::List, Kind::List),
        ("services", ListStrategy::PagedList, Kind::First),
        ("endpoints", ListStrategy::WatchList, Kind::Stream),
    ];
    let informers = ways.map(|(resource, strategy, _)| {
        let mut informer = informer(resource);
        informer.settings.lists.strategy = strategy;
        informer
    });
    let all: Vec<_> = informers.iter().collect();
    let (server, engine) = run(quick(), &all, |asked| match (asked.kind, asked.nth) {
        (Kind::List | Kind::First | Kind::Stream, 0) => {
            Reply::status(429, "retry-after: 2\r\n", status(429, "TooManyRequests"))
        }
        (Kind::Stream, _) => {
            let all = [event("ADDED", object("a", 1, 3)), end_bookmark(7)];
            Reply::held(all.join("\n") + "\n")
        }
        (Kind::First, _) => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    for informer in &informers {
        let failing = engine.until(&informer.key, |report| report.fault.is_some()).await;
        let fault = failing.fault.unwrap();
        assert_eq!((fault.reason, fault.verb), (FaultReason::Throttled, Verb::List));
        let wait = fault.next_retry.unwrap().duration_since(fault.at).as_secs();
        assert!((2..=3).contains(&wait), "{}: {wait} s", informer.key);
    }
    for (informer, (resource, strategy, kind)) in informers.iter().zip(ways) {
        engine.until_watching(&informer.key).await;
        assert_eq!(engine.shown(&informer.key), ["a@3"]);
        let lists = server.asked().into_iter().filter(|asked| {
            let is_list = matches!(asked.kind, Kind::List | Kind::First | Kind::Stream);
            is_list && asked.path.ends_with(resource)
        });
        let lists: Vec<_> = lists.map(|asked| asked.kind).collect();
        assert_eq!(lists, [kind, kind], "{strategy:?}");
    }
}

#[tokio::test]
async fn an_informer_waits_as_retry_after_says() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_mins(1));
    // For each resource: the `Retry-After` header that the server sends, and the smallest and
    // largest wait of its informer, in seconds.
    let expected = [
        ("pods", "1".to_owned(), (1, 2)),
        ("configmaps", "30".to_owned(), (30, 38)),
        ("services", "99999999999".to_owned(), (120, 150)),
        ("endpoints", date, (50, 75)),
        ("events", "soon".to_owned(), (0, 1)),
    ];
    let informers: Vec<_> = expected.iter().map(|(kind, _, _)| informer(kind)).collect();
    let all: Vec<_> = informers.iter().collect();
    let headers = expected.clone();
    let (server, engine) = run(quick(), &all, move |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => {
            let (_, seconds, _) =
                headers.iter().find(|(kind, ..)| asked.path.ends_with(kind)).unwrap();
            let header = format!("retry-after: {seconds}\r\n");
            Reply::status(429, &header, status(429, "TooManyRequests"))
        }
        _ => one(asked),
    })
    .await;
    for (informer, (kind, _, (least, most))) in informers.iter().zip(&expected) {
        if *kind == "events" {
            continue;
        }
        let failing = engine.until(&informer.key, |report| report.fault.is_some()).await;
        let fault = failing.fault.unwrap();
        assert_eq!((fault.reason, fault.verb), (FaultReason::Throttled, Verb::Watch));
        let wait = fault.next_retry.unwrap().duration_since(fault.at).as_secs();
        assert!((*least..=*most).contains(&wait), "{kind}: {wait} s");
        assert_eq!(engine.shown(&informer.key), ["a@3"], "the store is still served");
    }
    // After one second, only this informer may have tried again.
    engine.until_watching(&informers[0].key).await;
    for informer in &informers[1..4] {
        let path = format!("/{}", informer.key.resource.resource());
        let watches =
            server.of(Kind::Watch).into_iter().filter(|asked| asked.path.ends_with(&path));
        assert_eq!(watches.count(), 1, "{path}");
    }
    let [first, again] = &server
        .of(Kind::Watch)
        .into_iter()
        .filter(|asked| asked.path.ends_with("/pods"))
        .collect::<Vec<_>>()[..]
    else {
        panic!("the first informer asks twice");
    };
    assert!(again.at - first.at >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_forbidden_watch_fails_only_its_informer_and_recovers() {
    let (pods, services) = (informer("pods"), informer("services"));
    let (server, engine) =
        run(quick(), &[&pods, &services], |asked| match (asked.kind, asked.nth) {
            (Kind::Watch, 0..4) if asked.path.ends_with("/pods") => {
                Reply::refused(403, "Forbidden")
            }
            _ => one(asked),
        })
        .await;
    let failing = engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    let fault = failing.fault.unwrap();
    assert_eq!((fault.reason, fault.verb), (FaultReason::Forbidden, Verb::Watch));
    assert!(failing.warmed.is_some(), "listed objects are served");
    assert_eq!(engine.shown(&pods.key), ["a@3"]);
    assert_eq!(engine.until_watching(&services.key).await.fault, None);
    engine
        .until(&pods.key, |report| {
            report.phase == InformerPhase::Watching && report.fault.is_none()
        })
        .await;
    assert_eq!((server.count(Kind::List), engine.relists()), (2, 0));
}

#[tokio::test]
async fn a_deleted_kind_is_purged_and_lists_again_when_it_returns() {
    let pods = informer("widgets.example.com");
    let (_server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) | (Kind::List, 1..4) => {
            Reply::status(404, "", "404 page not found".to_owned())
        }
        (Kind::List, 4) => Reply::json(list(3, &[object("a", 2, 2)])),
        _ => one(asked),
    })
    .await;
    let away = engine.until(&pods.key, |report| report.phase == InformerPhase::Failing).await;
    assert_eq!(away.fault.unwrap().reason, FaultReason::NotServed);
    assert!(away.warmed.is_none() && engine.shown(&pods.key).is_empty());
    let back = engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["a@2"], "its versions start again");
    assert_eq!(back.last_relist.unwrap().reason, RelistReason::Recreated);
}

#[tokio::test]
async fn server_errors_are_retried_without_a_relist() {
    let pods = informer("pods");
    let (server, engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::Watch, 0) => Reply::refused(500, "InternalError"),
        (Kind::Watch, 1) => Reply::status(503, "", "<html>down</html>".to_owned()),
        (Kind::Watch, 2) => Reply::closed(),
        (Kind::Newest, 0) => Reply::refused(503, "ServiceUnavailable"),
        _ => one(asked),
    })
    .await;
    engine.until(&pods.key, |report| report.fault.is_some()).await;
    let report = engine
        .until(&pods.key, |report| {
            report.phase == InformerPhase::Watching && report.fault.is_none()
        })
        .await;
    assert!(report.warmed.is_some());
    assert_eq!((server.count(Kind::List), server.count(Kind::Watch)), (1, 4));
    assert_eq!(engine.failures(), 4, "each failure delays the next request");
    let lasted = server.of(Kind::Watch)[3].at - server.of(Kind::Watch)[2].at;
    assert!(lasted >= quick().backoff * 6, "the fourth wait: {lasted:?}");
}

#[tokio::test]
async fn a_response_without_headers_times_out() {
    let pods = informer("pods");
    let timing = InformerTiming {
        list_headers: Duration::from_secs(2),
        watch_headers: Duration::from_secs(2),
        ..quick()
    };
    let (server, engine) = run(timing, &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List | Kind::Stream, _) | (Kind::Watch, 0) => Reply::never(),
        (Kind::First, _) => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    let report = engine.until(&pods.key, |report| report.fault.is_some()).await;
    assert_eq!(report.warmed.unwrap().strategy, FirstSyncMethod::PagedList);
    let fault = report.fault.unwrap();
    assert_eq!((fault.reason, fault.verb), (FaultReason::TimedOut, Verb::Watch));
    engine.until_watching(&pods.key).await;
    assert_eq!((server.count(Kind::List), server.count(Kind::Stream)), (1, 1));
}

#[tokio::test]
async fn a_server_without_a_version_is_listed_in_pages() {
    let pods = informer("pods");
    let timing = InformerTiming { watch_headers: Duration::from_secs(2), ..quick() };
    let (server, engine) = run(timing, &[&pods], |asked| match asked.kind {
        Kind::Version => Reply::never(),
        Kind::First => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => one(asked),
    })
    .await;
    engine.until_shown(&pods.key, &["a@3"]).await;
    assert_eq!(server.count(Kind::List), 0);
}
