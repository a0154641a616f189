//! Tests of lists that exceed the limits of their profiles.

use crate::{
    engine::{Engine, informer, quick},
    reply::{BodyStep, Reply, event, list, list_with, object, quiet},
    server::{Kind, ScriptedServer},
};
use futures::{StreamExt as _, stream};
use kubewarm_api::model::{
    Budget, BudgetCharge, InformerSpec, LimitScope, ListStrategy, ProfileLimits,
};
use kubewarm_cache::informer::InformerPhase;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

const LIMIT: u64 = 1_000;
/// The number of objects after which the engine checks the limit again.
const STRIDE: u64 = 64;

/// A response that never ends: a list, or a watch whose initial events have no end.
fn endless(is_list: bool) -> Reply {
    let head = if is_list { list(7, &[]).trim_end_matches("]}").to_owned() } else { String::new() };
    let items = stream::iter(0_u32..).map(move |n| {
        let object = object(&format!("x{n:08}"), n % 200 + 1, 3);
        let item = match is_list {
            true if n == 0 => object,
            true => format!(",{object}"),
            false => event("ADDED", object) + "\n",
        };
        BodyStep::Bytes(item.into())
    });
    Reply::steps(stream::iter([BodyStep::Bytes(head.into())]).chain(items))
}

async fn server() -> ScriptedServer {
    ScriptedServer::start(|asked| match asked.kind {
        _ if asked.path.contains("/services") => quiet(asked),
        Kind::List => endless(true),
        Kind::Stream => endless(false),
        Kind::Newest => {
            let more = r#","continue":"token","remainingItemCount":999999"#;
            Reply::json(list_with(7, more, &[object("x00000000", 1, 3)]))
        }
        _ => quiet(asked),
    })
    .await
}

fn budget(max_objects: Option<u64>, max_bytes: Option<u64>) -> Arc<Budget> {
    Arc::new(Budget::new(LimitScope::Profile, ProfileLimits { max_objects, max_bytes }, None))
}

/// Returns an informer of pods whose store `budget` limits until the returned charge is dropped.
fn limited(
    engine: &Engine,
    strategy: ListStrategy,
    budget: Arc<Budget>,
) -> (InformerSpec, BudgetCharge) {
    let mut pods = informer("pods");
    pods.settings.lists.strategy = strategy;
    pods.settings.meter = engine.catalog.meter(&pods.key);
    let charge = BudgetCharge::new(Arc::clone(&pods.settings.meter), budget);
    (pods, charge)
}

fn runaway(engine: &Engine, strategy: ListStrategy) -> (InformerSpec, BudgetCharge) {
    limited(engine, strategy, budget(Some(LIMIT), None))
}

async fn until(is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is() {
        assert!(Instant::now() < end, "the condition never became true");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_endless_list_is_held_back_at_its_limit_and_its_sibling_lives() {
    for strategy in [ListStrategy::List, ListStrategy::WatchList] {
        let server = server().await;
        let mut engine = Engine::new(&server, quick());
        let (pods, charge) = runaway(&engine, strategy);
        let meter = charge.meter();
        let mut changes = engine.changes().subscribe();
        engine.start(&pods);
        until(|| meter.objects() > LIMIT).await;
        changes.mark_unchanged();
        let services = informer("services");
        engine.start(&services);
        engine.until_watching(&services.key).await;
        sleep(Duration::from_millis(300)).await;
        assert!(meter.objects() <= LIMIT + STRIDE, "{strategy:?}: {}", meter.objects());
        let report = engine.reports.get(&pods.key).unwrap();
        assert_eq!((report.phase, report.expected), (InformerPhase::Listing, Some(1_000_000)));
        assert_eq!(server.count(Kind::Newest), 1, "one request for the number of objects");
        engine.stop(&pods.key);
        assert_eq!((meter.objects(), meter.bytes()), (0, 0));
        engine.shut_down().await;
    }
}

/// An object with one mebibyte of random text, which compression cannot make much smaller.
fn large(n: u32) -> String {
    let mut random = fastrand::Rng::with_seed(n.into());
    let text: String = (0..1 << 20).map(|_| random.alphanumeric()).collect();
    object(&format!("x{n:08}"), n + 1, 3)
        .replace(r#""data":{"#, &format!(r#""data":{{"text":"{text}","#))
}

#[tokio::test]
async fn a_list_of_large_objects_is_paused_after_few_objects() {
    const BYTES: u64 = 8 << 20;
    for strategy in [ListStrategy::List, ListStrategy::WatchList] {
        let server = ScriptedServer::start(|asked| match asked.kind {
            Kind::List => {
                let head = list(7, &[]).trim_end_matches("]}").to_owned();
                let items = stream::iter(0_u32..).map(|n| {
                    BodyStep::Bytes(format!("{}{}", if n == 0 { "" } else { "," }, large(n)).into())
                });
                Reply::steps(stream::iter([BodyStep::Bytes(head.into())]).chain(items))
            }
            Kind::Stream => Reply::steps(
                stream::iter(0_u32..)
                    .map(|n| BodyStep::Bytes((event("ADDED", large(n)) + "\n").into())),
            ),
            _ => quiet(asked),
        })
        .await;
        let mut engine = Engine::new(&server, quick());
        let (pods, charge) = limited(&engine, strategy, budget(None, Some(BYTES)));
        let meter = charge.meter();
        engine.start(&pods);
        until(|| meter.bytes() > BYTES).await;
        sleep(Duration::from_millis(300)).await;
        // The store can exceed the limit by one object, which arrives between two checks of the
        // limit.
        assert!(meter.bytes() < BYTES + (2 << 20), "{strategy:?}: {}", meter.bytes());
        engine.stop(&pods.key);
        engine.shut_down().await;
    }
}

#[tokio::test]
async fn pages_that_are_smaller_than_a_stride_count_together() {
    let more = r#","continue":"token","remainingItemCount":1000000"#;
    let server = ScriptedServer::start(move |asked| match asked.kind {
        Kind::First | Kind::Next => {
            let name = |at| format!("x{:06}-{}-{at:02}", asked.nth, asked.kind == Kind::First);
            let items: Vec<_> = (0..50).map(|at| object(&name(at), at + 1, 3)).collect();
            let more = more.replace("token", &format!("token-{}", asked.nth));
            Reply::json(list_with(7, &more, &items))
        }
        _ => quiet(asked),
    })
    .await;
    let mut engine = Engine::new(&server, quick());
    let (mut pods, charge) = runaway(&engine, ListStrategy::PagedList);
    let meter = charge.meter();
    pods.settings.lists.page_size = 50;
    engine.start(&pods);
    until(|| meter.objects() > LIMIT).await;
    sleep(Duration::from_millis(300)).await;
    assert!(meter.objects() <= LIMIT + STRIDE, "{}", meter.objects());
    engine.stop(&pods.key);
    engine.shut_down().await;
}

#[tokio::test]
async fn a_list_continues_for_a_profile_without_a_limit() {
    let server = server().await;
    let mut engine = Engine::new(&server, quick());
    let (pods, charge) = runaway(&engine, ListStrategy::List);
    let meter = charge.meter();
    let _other = BudgetCharge::new(Arc::clone(&pods.settings.meter), budget(None, None));
    engine.start(&pods);
    until(|| meter.objects() > 3 * LIMIT).await;
    engine.stop(&pods.key);
    engine.shut_down().await;
}

#[tokio::test]
async fn a_paused_list_continues_when_the_budget_allows() {
    let server = server().await;
    let mut engine = Engine::new(&server, quick());
    let limit = budget(Some(LIMIT), None);
    let (pods, charge) = limited(&engine, ListStrategy::List, Arc::clone(&limit));
    let meter = charge.meter();
    engine.start(&pods);
    until(|| meter.objects() > LIMIT).await;
    limit.set_limits(ProfileLimits { max_objects: Some(2 * LIMIT), max_bytes: None });
    until(|| meter.objects() > 2 * LIMIT).await;
    engine.stop(&pods.key);
    engine.shut_down().await;
}
