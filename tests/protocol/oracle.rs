//! Tests the store against random histories with random faults. In the end it must equal the
//! server's objects, and in between it must never go back.

use crate::{
    engine::{Engine, count, informer, quick, run},
    history::SimulatedCluster,
};
use futures::{StreamExt as _, stream};
use kubewarm_api::model::{InformerKey, InformerSpec, ListStrategy, ResourceVersion};
use kubewarm_cache::{informer::InformerTiming, store::ObjectQuery};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The number of histories. `KUBEWARM_SEED` runs one history with that seed.
const HISTORIES: u64 = 40;
/// The number of changes in each history.
const STEPS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_converges_to_the_api_server_and_never_goes_back() {
    let seeds = match std::env::var("KUBEWARM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..HISTORIES).collect(),
    };
    stream::iter(seeds).for_each_concurrent(10, replay).await;
}

async fn replay(seed: u64) {
    let world = SimulatedCluster::new(seed);
    let timing = InformerTiming {
        immediate_end: Duration::from_millis(20),
        backoff: Duration::from_millis(2),
        reconnect_jitter: Duration::from_millis(5),
        ..quick()
    };
    let mut spec = informer(if seed.is_multiple_of(2) { "pods" } else { "widgets.example.com" });
    spec.settings.lists.strategy = match seed % 3 {
        0 => ListStrategy::List,
        1 => ListStrategy::WatchList,
        _ => ListStrategy::PagedList,
    };
    spec.settings.lists.page_size = 10;
    spec.settings.max_staleness = Duration::from_millis(600);
    let server = Arc::clone(&world);
    let (_server, mut engine) = run(timing, &[&spec], move |asked| server.answer(asked)).await;
    let mut reader = OracleReader { world: Arc::clone(&world), seed, ..OracleReader::default() };

    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..STEPS {
        world.step();
        reader.look(&engine, &spec.key);
        if dice.u8(..40) == 0 {
            engine.pause(&spec);
            engine.start(&spec);
        }
        sleep(Duration::from_micros(dice.u64(..8_000))).await;
    }
    world.calm();
    settle(&mut reader, &engine, &spec, seed).await;
    let metrics = Arc::clone(&engine.metrics);
    engine.shut_down().await;
    let started = count(&metrics, |metrics| metrics.upstream_watch_starts.get());
    let ended = count(&metrics, |metrics| metrics.upstream_watch_duration.get_sample_count());
    assert_eq!(started, ended, "seed {seed}: every watch that began has ended");
    assert_eq!(
        count(&metrics, |metrics| metrics.resource_version_rollbacks.get()),
        0,
        "seed {seed}"
    );
}

/// Waits until the store equals the server's objects and is fresh, and checks that it stays equal.
async fn settle(reader: &mut OracleReader, engine: &Engine, spec: &InformerSpec, seed: u64) {
    let until = Instant::now() + Duration::from_mins(5);
    let mut equal_since = None;
    loop {
        let bodies = reader.look(engine, &spec.key);
        let report = engine.reports.get_summary_for_read(&spec.key).unwrap();
        let (wanted, now) = (reader.world.truth(), Instant::now());
        match equal_since {
            _ if bodies.as_ref() != Some(&wanted) => {
                assert_eq!(equal_since, None, "seed {seed}: the store became wrong");
                assert!(now < until, "seed {seed}: {bodies:#?} is not {wanted:#?}; {report:#?}");
            }
            None => equal_since = Some(now),
            Some(since) if report.current_at > Some(since) => return,
            Some(_) => assert!(now < until, "seed {seed}: never confirmed as fresh; {report:#?}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A reader that reads the store repeatedly and remembers what it read.
struct OracleReader {
    world: Arc<SimulatedCluster>,
    seed: u64,
    /// The newest version of each object that was read, and whether the object exists now.
    seen: BTreeMap<String, (ResourceVersion, bool)>,
    version: Option<ResourceVersion>,
    known: BTreeSet<String>,
}

impl Default for OracleReader {
    fn default() -> Self {
        let world = SimulatedCluster::new(0);
        Self { world, seed: 0, seen: BTreeMap::new(), version: None, known: BTreeSet::new() }
    }
}

impl OracleReader {
    /// Reads all objects if the informer is warm. Returns the bodies by name.
    fn look(&mut self, engine: &Engine, key: &InformerKey) -> Option<BTreeMap<String, String>> {
        let seed = self.seed;
        engine.reports.get(key)?.warmed?;
        let wanted = ObjectQuery::default();
        let mut selected = engine.catalog.reader(key)?.select(&wanted, None, None);
        if let (Some(before), Some(now)) = (&self.version, selected.version()) {
            assert!(!now.is_older_than(before), "seed {seed}: the store went back to {now}");
        }
        self.version = selected.version().cloned();
        while selected.filter_next() {}
        let mut objects = Vec::new();
        selected.visit_next(|object| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            objects.push((text(object.name), text(object.body.bytes)));
            ControlFlow::Continue(())
        });
        let mut bodies = BTreeMap::new();
        for (name, body) in objects {
            let object: Value = serde_json::from_str(&body).unwrap();
            let version = object["metadata"]["resourceVersion"].as_str();
            let version = ResourceVersion::parse(version.unwrap()).unwrap();
            if !self.known.contains(&body) {
                self.known = self.world.bodies();
            }
            assert!(self.known.contains(&body), "seed {seed}: never existed: {body}");
            if let Some((last, is_there)) = self.seen.get(&name) {
                assert!(!version.is_older_than(last), "seed {seed}: {name} went back to {version}");
                assert!(*is_there || version != *last, "seed {seed}: {name}@{version} came back");
            }
            self.seen.insert(name.clone(), (version, true));
            bodies.insert(name, body);
        }
        for (name, (_, is_there)) in &mut self.seen {
            *is_there = bodies.contains_key(name);
        }
        Some(bodies)
    }
}
