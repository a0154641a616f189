//! Watches that end, break and lie.

use crate::{
    engine::{Engine, cell, quick},
    reply::{Reply, event, list, object, quiet, status},
    server::{Kind, Server},
};
use kubewarm::{
    informer::{Informers as _, RelistReason},
    model::Reason,
};

#[tokio::test]
async fn gone_as_a_status_and_as_an_event_each_cost_one_relist() {
    let server = Server::start(|asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => Reply::json(list(7, &[object("a", 1, 3), object("b", 2, 5)])),
        (Kind::List, 1) => Reply::json(list(20, &[object("a", 1, 3)])),
        (Kind::List, _) => Reply::json(list(30, &[object("a", 9, 28)])),
        (Kind::Watch, 0) => Reply::refused(410, "Expired"),
        (Kind::Watch, 1) => Reply::lines([event("ERROR", status(410, "Expired"))]),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, pods) = (Engine::new(&server, quick()), cell("pods"));
    engine.start(&pods);
    let report = engine.until_shown(&pods.key, &["a@28"]).await;
    engine.until_watching(&pods.key).await;
    assert!(report.warmed.is_some());
    let relist = engine.until(&pods.key, |report| report.last_relist.is_some()).await;
    let relist = relist.last_relist.unwrap();
    assert_eq!((relist.reason, relist.replaced, relist.deleted_in_gap), (RelistReason::Gone, 1, 0));
    assert_eq!((engine.tape.relists(), server.count(Kind::List)), (2, 3));
    let lists = server.of(Kind::List);
    assert_eq!(lists[1].query("resourceVersion"), "7", "never below what was seen");
    assert_eq!(lists[1].query("resourceVersionMatch"), "NotOlderThan");
}

#[tokio::test]
async fn an_error_event_again_and_again_makes_the_waits_grow() {
    let server = Server::start(|asked| match asked.kind {
        Kind::Watch => Reply::lines([event("ERROR", status(500, "InternalError"))]),
        _ => quiet(asked),
    })
    .await;
    let (mut engine, pods) = (Engine::new(&server, quick()), cell("pods"));
    engine.start(&pods);
    let report = engine
        .until(&pods.key, |report| report.fault.as_ref().is_some_and(|f| f.attempts >= 4))
        .await;
    assert_eq!(report.fault.unwrap().reason, Reason::ServerError);
}
