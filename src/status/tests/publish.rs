//! Tests of the loop that writes statuses, with an API server that answers late or never.

use super::{
    fixtures::{StatusWorld, live},
    round::{named, observed, warm},
};
use crate::status::{ClockReading, EventRecorder, ProfileEvent, StatusReporter, StatusWriter, run};
use futures::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use kubewarm_api::model::InformerKey;
use kubewarm_client::NamespaceBuckets;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep},
};
use tokio_util::sync::CancellationToken;

/// Profiles whose only informer is warm.
struct WarmProfiles {
    world: StatusWorld,
    profiles: usize,
    /// How long one computation of all statuses takes.
    cost: Duration,
}

fn one_profile() -> WarmProfiles {
    WarmProfiles { world: warm(), profiles: 1, cost: Duration::ZERO }
}

impl WarmProfiles {
    fn into_round(
        self,
    ) -> impl FnMut(&mut StatusReporter, bool, ClockReading) -> Vec<ProfileEvent> {
        let Self { world, profiles, cost } = self;
        let names = (0..profiles).map(|number| format!("p{number}"));
        let all: Vec<_> = names.map(|name| observed(named(&name, "u"), None)).collect();
        move |reporter, is_leader, clock| {
            // The first poll of `advance` already moves Tokio's clock. The closure is not async, so
            // it polls the future once instead of awaiting it.
            let _rest = advance(cost).now_or_never();
            let informers =
                |key: &InformerKey| world.informers.get(key).cloned().unwrap_or_default();
            let notices = reporter.update(&all, live(&informers), is_leader, clock);
            assert_eq!(reporter.statuses().len(), profiles, "one status per profile");
            notices
        }
    }
}

/// A fake API server that records status writes and Events, and never answers the first write.
#[derive(Clone, Default)]
struct Hanging {
    begun: Arc<Mutex<Vec<Instant>>>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Hanging {
    fn clients(&self) -> (StatusWriter, EventRecorder) {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                server.answer(request).await;
                let body = Body::from(br#"{"metadata":{"uid":"u"}}"#.to_vec());
                Ok::<_, std::convert::Infallible>(Response::new(body))
            }
        });
        let client = Client::new(service, "default");
        let recorder = EventRecorder::new(&client, "me", NamespaceBuckets::default());
        (StatusWriter::new(&client), recorder)
    }

    /// Starts the loop that writes the statuses of `world` to this server.
    fn spawn(
        &self,
        world: WarmProfiles,
        is_leader: impl Fn() -> bool + Send + Sync + 'static,
        start: Instant,
        stop: &CancellationToken,
    ) -> JoinHandle<()> {
        let (writer, recorder) = self.clients();
        let round = world.into_round();
        tokio::spawn(run(round, |_| {}, writer, recorder, is_leader, start, stop.clone()))
    }

    async fn answer(&self, request: Request<Body>) {
        if request.method() == Method::PATCH {
            let first = {
                let mut begun = self.begun.lock();
                begun.push(Instant::now());
                begun.len() == 1
            };
            if first {
                sleep(Duration::from_hours(1)).await;
            }
            return;
        }
        let event = request.into_body().collect().await.unwrap().to_bytes();
        let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
        self.sent.lock().push(event["reason"].as_str().unwrap().to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_write_times_out_and_is_repeated_and_only_a_leader_writes() {
    let start = Instant::now();
    let (server, leads) = (Hanging::default(), Arc::new(AtomicBool::new(false)));
    let stop = CancellationToken::new();
    let is_leader = {
        let leads = Arc::clone(&leads);
        move || leads.load(Ordering::Relaxed)
    };
    let world = one_profile();
    let task = server.spawn(world, is_leader, start, &stop);
    sleep(Duration::from_secs(5)).await;
    assert!(server.begun.lock().is_empty());
    leads.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    let seconds: Vec<_> =
        server.begun.lock().iter().map(|at| at.duration_since(start).as_secs()).collect();
    assert_eq!(seconds.len(), 2, "{seconds:?}");
    assert!(seconds[1] - seconds[0] >= 10, "{seconds:?}");
    assert_eq!(*server.sent.lock(), ["Ready"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_suspended_before_its_writes_sends_none_of_them() {
    let (server, asked) = (Hanging::default(), AtomicUsize::new(0));
    // `is_leader` returns true only for its first call, as if the replica lost the lease after the
    // first computation of statuses.
    let is_leader = move || asked.fetch_add(1, Ordering::Relaxed) == 0;
    let (world, stop) = (one_profile(), CancellationToken::new());
    let task = server.spawn(world, is_leader, Instant::now(), &stop);
    sleep(Duration::from_secs(30)).await;
    assert!(server.begun.lock().is_empty());
    assert!(server.sent.lock().is_empty());
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_computation_does_not_delay_writes() {
    let (server, stop) = (Hanging::default(), CancellationToken::new());
    let world = WarmProfiles { profiles: 41, cost: Duration::from_millis(200), ..one_profile() };
    let start = Instant::now();
    let task = server.spawn(world, || true, start, &stop);
    // The next computation of statuses would start ten seconds after the first computation, so it
    // does not run within these five seconds.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(server.begun.lock().len(), 41);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_aborted_by_a_lost_lease_is_repeated_when_the_lease_is_back() {
    let (server, leads) = (Hanging::default(), Arc::new(AtomicBool::new(true)));
    let is_leader = {
        let leads = Arc::clone(&leads);
        move || leads.load(Ordering::Relaxed)
    };
    let stop = CancellationToken::new();
    // Without the change of leadership, the next computation of statuses would start only after 51
    // s.
    let world = WarmProfiles { cost: Duration::from_secs(1), ..one_profile() };
    let start = Instant::now();
    let task = server.spawn(world, is_leader, start, &stop);
    sleep(Duration::from_secs(2)).await;
    leads.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.begun.lock().len(), 1);
    leads.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(server.begun.lock().len(), 2);
    stop.cancel();
    task.await.unwrap();
}
