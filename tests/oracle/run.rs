//! One run: injects the faults of a seed while writers write and readers read, and records what the
//! readers received.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{account, bind, let_read};
use crate::history::EtcdHistory;
use crate::judge::RunTimes;
use crate::observation::{Form, Observation, ReaderId};
use crate::operator::NAMESPACE;
use crate::plan::{CALM, FaultPlan, REPLICAS, UNDISTURBED};
use crate::readers::{OracleRead, ReplicaReader};
use crate::scene::OracleFixture;
use crate::watchers::{OracleWatcher, WatchPositions};
use crate::world::{Failure, Outcome, eventually};
use crate::writers::write;

const WRITERS: usize = 4;
/// The name of the reader that also writes, through its replica. Only the first replica runs with
/// `--forward`.
const OWN_WRITES: &str = "own-writes";
/// The name of the reader that lists in pages.
pub(crate) const PAGES: &str = "pages";
/// Timeout at the end of a run until all watches have brought the last changes.
const IN_STEP: Duration = Duration::from_mins(1);

/// The readers of each replica.
const READERS: [(&str, OracleRead); 7] = [
    ("lists", OracleRead::Lists),
    ("gets", OracleRead::Gets),
    ("strict", OracleRead::Strict),
    ("tables", OracleRead::Tables),
    (PAGES, OracleRead::Pages),
    ("not-older-than", OracleRead::NotOlderThan),
    (OWN_WRITES, OracleRead::OwnWrites),
];

/// The watchers of each replica: name, collection and form.
const WATCHERS: [(&str, usize, Form); 4] = [
    ("watch", 0, Form::Whole),
    ("watch", 1, Form::Whole),
    ("watch", 2, Form::Whole),
    ("watch-tables", 0, Form::Metadata),
];

/// What a run recorded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) faults: Vec<String>,
    pub(crate) times: RunTimes,
    pub(crate) history: EtcdHistory,
    pub(crate) observations: Vec<Observation>,
}

/// Runs a plan. `seed` also seeds writers and readers.
pub(crate) fn run(seed: u64, plan: &FaultPlan) -> Result<RunRecord, Failure> {
    let runtime = Runtime::new()?;
    let _inside = runtime.enter();
    let mut scene = OracleFixture::start(&runtime)?;
    let clock = scene.clock;
    let (stop_writing, stop_reading) = (CancellationToken::new(), CancellationToken::new());
    let (observations, mut received) = unbounded_channel();
    let (writers, readers) = (TaskTracker::new(), TaskTracker::new());
    let positions = WatchPositions::default();
    let observers = observers(&scene, |id, client| ReplicaReader {
        client,
        clock,
        observations: observations.clone(),
        stop: if id.name == OWN_WRITES { stop_writing.clone() } else { stop_reading.clone() },
        id,
    })?;
    let last = Arc::new(AtomicU64::new(0));
    for writer in 0..WRITERS {
        let random = fastrand::Rng::with_seed(seed * 1_000 + writer as u64);
        writers.spawn(write(scene.client.clone(), random, stop_writing.clone()));
    }
    for (number, observer) in observers.into_iter().enumerate() {
        let random = fastrand::Rng::with_seed(seed * 1_000 + 100 + number as u64);
        let name = observer.id.name.clone();
        let kind = READERS.iter().find(|(reader, _)| *reader == name);
        if let Some((_, kind)) = kind {
            let tasks = if *kind == OracleRead::OwnWrites { &writers } else { &readers };
            tasks.spawn(observer.run(*kind, Arc::clone(&last), random));
            continue;
        }
        for (_, collection, form) in WATCHERS.into_iter().filter(|(watcher, ..)| *watcher == name) {
            let (observer, positions) = (observer.clone(), Arc::clone(&positions));
            readers.spawn(OracleWatcher { observer, collection, form, positions }.run());
        }
    }

    let began = Instant::now();
    let mut faults = Vec::new();
    for step in &plan.steps {
        sleep(step.pause);
        let at = clock.now();
        scene.inject(&runtime, *step)?;
        faults.push(format!("{at} ms to {} ms: {step}", clock.now()));
        // Readers must forget the versions that a restore has undone, because these versions may
        // never come again.
        last.store(0, std::sync::atomic::Ordering::Relaxed);
    }
    let undisturbed = UNDISTURBED.max(plan.length.saturating_sub(began.elapsed()));
    sleep(undisturbed.saturating_sub(CALM));
    let calm = clock.now();
    sleep(CALM);
    stop_writing.cancel();
    writers.close();
    runtime.block_on(writers.wait());
    scene.recorder.catch_up(&scene.world.cluster)?;
    let in_step = in_step(&scene, &positions);
    stop_reading.cancel();
    readers.close();
    runtime.block_on(readers.wait());
    if let Err(error) = in_step {
        // This error does not fail the run here: the judge reports each watch that lacks changes.
        eprintln!("oracle: {error}");
    }
    let end = clock.now();
    drop(observations);
    let mut observations = Vec::new();
    while let Ok(observation) = received.try_recv() {
        observations.push(observation);
    }
    let restarts = scene.restarts.clone();
    let history = scene.recorder.finish();
    let undecodable: usize = history.epochs.iter().map(|epoch| epoch.undecodable).sum();
    if undecodable > 0 {
        return Err(format!("{undecodable} objects of etcd cannot be decoded").into());
    }
    Ok(RunRecord { faults, times: RunTimes { calm, restarts, end }, history, observations })
}

/// The observers (readers and watchers) at each replica. `own-writes` exists only at the first. The
/// observers with the same name at both replicas have the same account.
fn observers(
    scene: &OracleFixture,
    observer: impl Fn(ReaderId, Client) -> ReplicaReader,
) -> Result<Vec<ReplicaReader>, Failure> {
    let names = READERS.iter().map(|(name, _)| *name).chain(["watch", "watch-tables"]);
    let mut observers = Vec::new();
    for name in names {
        let token = account(&scene.world, NAMESPACE, name)?;
        let_read(&scene.world, (NAMESPACE, name), None)?;
        let replicas = if name == OWN_WRITES { 1 } else { REPLICAS };
        if name == OWN_WRITES {
            bind(&scene.world, "cluster-admin", (NAMESPACE, name), None)?;
        }
        for (replica, served) in scene.replicas.iter().take(replicas).enumerate() {
            let mut config = served.served.config(&token)?;
            // The client does not retry, so that the judge sees each refusal.
            config.default_retry = false;
            let client = Client::try_from(config)?;
            observers.push(observer(ReaderId { replica, name: name.to_owned() }, client));
        }
    }
    Ok(observers)
}

/// Waits until each watch has brought the last change of its collection.
fn in_step(scene: &OracleFixture, positions: &WatchPositions) -> Outcome {
    eventually(IN_STEP, || {
        let last = scene.recorder.last_changes();
        let positions = positions.lock();
        let watches = REPLICAS * WATCHERS.len();
        let behind: Vec<_> = positions
            .iter()
            .filter(|((_, collection), position)| **position < last[*collection])
            .collect();
        if behind.is_empty() && positions.len() == watches {
            return Ok(());
        }
        Err(format!("{} of {watches} watches are behind {last:?}: {behind:?}", behind.len()).into())
    })
}

impl RunRecord {
    /// The folder of a seed's record.
    pub(crate) fn folder(seed: u64) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle/seed-{seed}"))
    }

    pub(crate) fn save(&self, folder: &Path) -> Outcome {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("record.json"), serde_json::to_vec(self)?)?;
        Ok(())
    }

    pub(crate) fn load(folder: &Path) -> Result<Self, Failure> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join("record.json"))?)?)
    }
}
