//! The age of objects that a response states is never less than the real age, whatever delays the
//! API server's events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::{HttpReply, Served, Server, account, let_read, let_write};
use crate::cutter::slowed;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};

const SPEC: &str = "{freshness: {maxStalenessSeconds: 10}, reads: {coldReadTimeoutSeconds: 0},
    targets: [{name: clock, resource: configmaps}]}";
const MAX_STALENESS: Duration = Duration::from_secs(10);
/// Time between two writes. With [`PADDING`], the events of these writes need more than the slow
/// connection's 4,000 bytes a second, so they arrive later and later.
const TICK: Duration = Duration::from_millis(200);
const PADDING: usize = 1_500;
/// How long the connection is slow. At the end, events arrive later than the staleness limit.
const SLOW: Duration = Duration::from_secs(40);
/// How long the kubewarm process is stopped.
const STOP: Duration = Duration::from_secs(8);
/// The maximum by which a stated age may be below the real age: the error of this test's clocks.
const TOLERANCE: Duration = Duration::from_secs(1);

/// A namespace with an object `clock`, which a writer counts up.
struct ClockFixture {
    world: World,
    served: Served,
    api: Server,
    reads: Server,
    token: String,
    path: String,
    is_slow: Arc<AtomicBool>,
}

/// The history of the object `clock`: the times at which the writes ended. The write `n + 1`, which
/// ended at `ended[n + 1]`, replaced state `n`.
struct ClockHistory {
    ended: Vec<Instant>,
}

impl ClockFixture {
    fn start() -> Result<Self, Failure> {
        let world = World::alone()?;
        Operator::grant_rights(&world)?;
        let is_slow = Arc::default();
        let kubeconfig = slowed(&world, &is_slow)?;
        let served = Served::start_through(&world, &kubeconfig, &[])?;
        let namespace = world.namespace("clock")?;
        let token = account(&world, NAMESPACE, "reader")?;
        let_read(&world, (NAMESPACE, "reader"), None)?;
        let_write(&world, (NAMESPACE, "reader"), None)?;
        let profile = Profile::apply(&world, &namespace, "p", SPEC)?;
        profile.await_manifests()?;
        profile.grant()?;
        profile.await_condition("Ready", "True", None, SOON)?;
        let (api, reads) = (Server::api(&world)?, served.server()?);
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = json!({"metadata": {"name": "clock"}, "data": {"n": "0"}});
        assert_eq!(api.write(&token, ("POST", &all), &body)?.code, 201);
        let path = format!("{all}/clock");
        Ok(Self { world, served, api, reads, token, path, is_slow })
    }

    fn read(&self) -> Result<HttpReply, Failure> {
        self.reads.get(&self.token, &self.path)
    }

    /// Waits until a read is answered.
    fn until_served(&self) -> Outcome {
        eventually(SOON, || {
            let reply = self.read()?;
            if reply.code == 200 { Ok(()) } else { Err(format!("{reply:?}").into()) }
        })
    }

    /// Counts the clock up until `is_over`.
    fn count(&self, is_over: &AtomicBool) -> Result<ClockHistory, Failure> {
        let mut ended = vec![Instant::now()];
        while !is_over.load(Ordering::SeqCst) {
            let n = ended.len().to_string();
            let body = json!({"data": {"n": n, "padding": "x".repeat(PADDING)}});
            let written = self.api.write(&self.token, ("PATCH", &self.path), &body)?;
            assert_eq!(written.code, 200, "{written:?}");
            ended.push(Instant::now());
            thread::sleep(TICK);
        }
        Ok(ClockHistory { ended })
    }
}

impl ClockHistory {
    /// How old state `n` was at `now`: the time since a write replaced it.
    fn age(&self, n: usize, now: Instant) -> Duration {
        self.ended.get(n + 1).map_or(Duration::ZERO, |&ended| now.saturating_duration_since(ended))
    }
}

/// A response and the time of its arrival.
struct TimedReply {
    reply: HttpReply,
    arrived: Instant,
}

/// Reads the object `clock` while `disturb` runs and a writer counts it up. Then compares the age
/// that each response states with the real age. Returns the greatest real age.
fn judge(scene: &ClockFixture, disturb: impl FnOnce() -> Outcome) -> Result<Duration, Failure> {
    let (is_over, mut replies) = (AtomicBool::new(false), Vec::new());
    let history = thread::scope(|scope| {
        let writing = scope.spawn(|| scene.count(&is_over).map_err(|error| error.to_string()));
        let reading = scope.spawn(|| {
            let mut replies = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let reply = scene.read().map_err(|error| error.to_string())?;
                replies.push(TimedReply { reply, arrived: Instant::now() });
                thread::sleep(Duration::from_millis(20));
            }
            Ok::<_, String>(replies)
        });
        let disturbed = disturb();
        is_over.store(true, Ordering::SeqCst);
        replies = reading.join().map_err(|_| "the reader panicked")??;
        let history = writing.join().map_err(|_| "the writer panicked")??;
        disturbed.map(|()| history)
    })?;
    let mut oldest = Duration::ZERO;
    let mut answered = 0;
    for TimedReply { reply, arrived } in &replies {
        if reply.code != 200 {
            // The slow connection also delays access reviews, so a read may also end with an error.
            assert!(reply.code >= 429, "{reply:?}");
            continue;
        }
        answered += 1;
        let n = reply.json()["data"]["n"].as_str().ok_or("no count")?.parse()?;
        let stated: u64 = reply.header("kubewarm-freshness-milliseconds").parse()?;
        let (stated, real) = (Duration::from_millis(stated), history.age(n, *arrived));
        assert!(real <= stated + TOLERANCE, "{real:?} old, and states {stated:?}");
        let is_declared = !reply.header("warning").is_empty();
        assert!(real <= MAX_STALENESS + TOLERANCE || is_declared, "{real:?} old: {reply:?}");
        oldest = oldest.max(real);
    }
    assert!(answered > 0, "no read was answered");
    Ok(oldest)
}

#[test]
fn no_response_is_older_than_it_states() -> Outcome {
    let scene = ClockFixture::start()?;
    scene.until_served()?;
    let oldest = judge(&scene, || {
        scene.is_slow.store(true, Ordering::SeqCst);
        thread::sleep(SLOW);
        Ok(())
    })?;
    assert!(oldest > TOLERANCE, "the connection was not slow: {oldest:?}");
    scene.is_slow.store(false, Ordering::SeqCst);
    scene.until_served()?;
    judge(&scene, || {
        let process = &scene.served.operator.process;
        process.freeze()?;
        thread::sleep(STOP);
        process.thaw()?;
        thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    scene.until_served()?;
    bookmarks_of_a_server_without_etcd_keep_no_store_fresh(&scene)
}

/// Bookmarks must not keep a store fresh while the API server has no connection to etcd. Such a
/// server continues to send bookmarks at its last version.
fn bookmarks_of_a_server_without_etcd_keep_no_store_fresh(scene: &ClockFixture) -> Outcome {
    let etcd = scene.world.cluster.etcd();
    etcd.freeze()?;
    let cut = Instant::now();
    let refused = eventually(SOON, || {
        let reply = scene.read()?;
        if reply.code == 200 {
            let stated: u64 = reply.header("kubewarm-freshness-milliseconds").parse()?;
            let (stated, real) = (Duration::from_millis(stated), cut.elapsed());
            assert!(
                real <= stated + TOLERANCE,
                "{real:?} since etcd's last answer, and states {stated:?}"
            );
            return Err("still served".into());
        }
        assert_eq!(reply.code, 504, "{reply:?}");
        Ok(())
    });
    etcd.thaw()?;
    refused?;
    scene.until_served()
}
