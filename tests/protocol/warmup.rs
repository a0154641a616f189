//! Tests of many informers at once: the order of their lists, and that a slow list delays no other.

use crate::{
    engine::{Engine, informer, informer_in, quick, run},
    reply::{Reply, end_bookmark, event, list, object, quiet},
    server::{Kind, ScriptedServer},
};
use kubewarm_api::model::{
    Delta, DeltaOutcome, DeltaSink, FaultReason, ListStrategy, MetricOutcome, NamespaceCheckPolicy,
};
use kubewarm_cache::{
    informer::{InformerPhase, InformerTiming, RegistryLimits},
    store::StoreWriter,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn failed_lists(engine: &Engine) -> u64 {
    let failed = [MetricOutcome::Error];
    engine.count(|metrics| {
        metrics.upstream_list_duration.with_label_values(&failed).get_sample_count()
    })
}

#[tokio::test]
async fn concurrent_lists_are_limited_and_high_priorities_come_first() {
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])).after(Duration::from_millis(20)),
        _ => quiet(asked),
    })
    .await;
    let bounds = RegistryLimits {
        lists: 5,
        namespace_quota: 100,
        buckets: kubewarm_client::NamespaceBuckets::default(),
    };
    let mut engine = Engine::with(&server, quick(), bounds);
    let mut informers: Vec<_> = (0..60).map(|n| informer_in("pods", &format!("ns{n}"))).collect();
    for urgent in &mut informers[40..] {
        urgent.settings.list_slot_owner.priority = 900;
    }
    for informer in &informers {
        engine.start(informer);
    }
    for informer in &informers {
        engine.until_watching(&informer.key).await;
    }
    assert!((2..=5).contains(&server.most_lists()), "{}", server.most_lists());
    let number = |path: &str| -> usize { path.split('/').nth(4).unwrap()[2..].parse().unwrap() };
    let lists: Vec<_> = server.of(Kind::List).iter().map(|asked| number(&asked.path)).collect();
    assert_eq!(lists.len(), 60);
    // The first lists found a free slot and no queue, so the priority did not decide about them.
    let last_urgent = lists.iter().rposition(|&n| n >= 40).unwrap();
    assert!(last_urgent < 20 + 5 * 2, "{lists:?}");
}

#[tokio::test]
async fn a_list_that_trickles_delays_no_other_and_is_aborted() {
    let (mut slow, other) = (informer("pods"), informer("services"));
    slow.settings.lists.strategy = ListStrategy::PagedList;
    let timing = InformerTiming { list_window: Duration::from_millis(600), ..quick() };
    let (_server, engine) = run(timing, &[&slow, &other], |asked| match (asked.kind, asked.nth) {
        (Kind::First, 0) => {
            Reply::trickle(&list(7, &[object("a", 1, 3)]), Duration::from_millis(50))
        }
        (Kind::First | Kind::List, _) => Reply::json(list(7, &[object("b", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    engine.until_watching(&other.key).await;
    let report = engine.until(&slow.key, |report| report.fault.is_some()).await;
    assert_eq!(report.fault.unwrap().reason, FaultReason::TimedOut);
    engine.until_shown(&slow.key, &["b@3"]).await;
}

#[tokio::test]
async fn a_list_that_stalls_is_aborted_and_retried() {
    let pods = informer("pods");
    let timing = InformerTiming { list_window: Duration::from_millis(600), ..quick() };
    let (_server, engine) = run(timing, &[&pods], |asked| match (asked.kind, asked.nth) {
        (Kind::List, 0) => {
            let whole = list(7, &[object("a", 1, 3), object("b", 2, 4)]);
            Reply::held(&whole[..whole.len() * 3 / 4])
        }
        // The retry can use another list method, so the script answers all of them.
        (Kind::Stream, _) => {
            let all = [event("ADDED", object("b", 2, 4)), end_bookmark(8)];
            Reply::held(all.join("\n") + "\n")
        }
        (Kind::List | Kind::First, _) => Reply::json(list(8, &[object("b", 2, 4)])),
        _ => quiet(asked),
    })
    .await;
    engine.until_watching(&pods.key).await;
    assert_eq!(engine.shown(&pods.key), ["b@4"], "objects of the failed list are removed");
    assert_eq!(failed_lists(&engine), 1);
}

#[tokio::test]
async fn after_a_streaming_list_without_an_end_lists_use_pages() {
    for refused in [false, true] {
        let (mut one, mut two) = (informer_in("pods", "one"), informer_in("pods", "two"));
        for informer in [&mut one, &mut two] {
            informer.settings.lists.strategy = ListStrategy::WatchList;
            informer.settings.lists.watch_list_timeout = Duration::from_millis(300);
        }
        let (server, mut engine) = run(quick(), &[&one], move |asked| match asked.kind {
            Kind::Stream if refused => Reply::refused(422, "Invalid"),
            Kind::Stream => {
                let unfinished = event("ADDED", object("ghost", 1, 3));
                Reply::held(unfinished + "\n")
            }
            Kind::First => Reply::json(list(7, &[object("a", 1, 3)])),
            _ => quiet(asked),
        })
        .await;
        engine.until_watching(&one.key).await;
        assert_eq!(engine.shown(&one.key), ["a@3"], "objects of the failed list are removed");
        engine.start(&two);
        engine.until_watching(&two.key).await;
        assert_eq!((server.count(Kind::Stream), server.count(Kind::First)), (1, 2));
        assert_eq!(failed_lists(&engine), 1, "a failed list is counted for each method");
    }
}

/// A sink that panics at the first object while the flag is true.
struct Trap(StoreWriter, Arc<AtomicBool>);

impl DeltaSink for Trap {
    fn apply(&mut self, delta: Delta<'_>) -> DeltaOutcome {
        let is_item = matches!(delta, Delta::Upsert(_));
        assert!(!(is_item && self.1.load(Ordering::Relaxed)), "scripted panic");
        self.0.apply(delta)
    }
}

#[tokio::test]
async fn a_task_that_panics_is_reported_and_restarted() {
    let server = ScriptedServer::start(|asked| match asked.kind {
        Kind::List => Reply::json(list(7, &[object("a", 1, 3)])),
        _ => quiet(asked),
    })
    .await;
    let armed = Arc::new(AtomicBool::new(true));
    let trap = Arc::clone(&armed);
    let bounds = RegistryLimits {
        lists: 1,
        namespace_quota: 100,
        buckets: kubewarm_client::NamespaceBuckets::default(),
    };
    let mut engine = Engine::with(&server, quick(), bounds)
        .with_sinks(move |_, writer| Box::new(Trap(writer, Arc::clone(&trap))));
    let pods = informer("pods");
    engine.start(&pods);
    let report = engine
        .until(&pods.key, |report| report.fault.as_ref().is_some_and(|fault| fault.attempts >= 3));
    let report = report.await;
    assert_eq!((report.fault.unwrap().reason, report.warmed), (FaultReason::Internal, None));
    armed.store(false, Ordering::Relaxed);
    engine.until_shown(&pods.key, &["a@3"]).await;
    engine.until(&pods.key, |report| report.phase == InformerPhase::Watching).await;
}

#[tokio::test]
async fn a_first_list_that_a_pause_interrupts_before_it_counts_is_sent_again() {
    let mut pods = informer("pods");
    pods.settings.namespace_check = NamespaceCheckPolicy::Require;
    let (server, mut engine) = run(quick(), &[&pods], |asked| match (asked.kind, asked.nth) {
        // The list is empty, so the informer waits for the answer whether the namespace exists.
        // Until then, the list does not count.
        (Kind::Namespace, 0) => Reply::silent(),
        _ => quiet(asked),
    })
    .await;
    engine.until(&pods.key, |_| server.count(Kind::Namespace) == 1).await;
    engine.pause(&pods);
    engine.start(&pods);
    let report = engine.until_watching(&pods.key).await;
    assert!(report.warmed.is_some());
    assert_eq!(server.count(Kind::List), 2);
}

#[tokio::test]
async fn informers_of_one_namespace_share_one_namespace_lookup() {
    let pause = Duration::from_millis(500);
    let timing = InformerTiming { namespace_check: pause, ..quick() };
    let mut informers: Vec<_> = (0..20).map(|n| informer(&format!("kind{n}"))).collect();
    for informer in &mut informers {
        informer.settings.namespace_check = NamespaceCheckPolicy::Require;
    }
    let (server, engine) = run(timing, &informers.iter().collect::<Vec<_>>(), quiet).await;
    for informer in &informers {
        engine.until_watching(&informer.key).await;
    }
    let before = server.count(Kind::Namespace);
    assert!(before > 0, "an empty list does not show that the namespace exists");
    while server.count(Kind::Namespace) < before + 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let lookups: Vec<_> = server.of(Kind::Namespace).iter().map(|asked| asked.at).collect();
    for two in lookups[before..].windows(2) {
        // The informers send lookups `pause` apart, and the machine's load decides when they
        // arrive.
        assert!(two[1].duration_since(two[0]) > pause / 4, "{lookups:?}");
    }
}
