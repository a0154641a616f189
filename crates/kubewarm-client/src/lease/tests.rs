//! Tests the leader election in paused time, against a fake API server whose connections can fail.

use super::*;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tower::service_fn;

const SECOND: Duration = Duration::from_secs(1);

/// The state of the connection between one candidate and the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Works,
    /// Requests do not reach the server.
    Cut,
    /// The server executes requests, but the responses are lost.
    Deaf,
    Refused,
    /// No connection is possible.
    Down,
}

/// A fake API server with one lease, which rejects conflicting writes as Kubernetes does.
#[derive(Clone, Default)]
struct FakeLeaseServer(Arc<Mutex<FakeLeaseState>>);

#[derive(Default)]
struct FakeLeaseState {
    lease: Option<Value>,
    version: u64,
    requests: u64,
}

struct Candidate {
    state: watch::Receiver<LeaseState>,
    link: Arc<Mutex<Link>>,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl FakeLeaseServer {
    fn handle(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut state = self.0.lock();
        state.requests += 1;
        if *method == Method::GET {
            return state.lease.clone().map_or_else(|| (404, json!({})), |lease| (200, lease));
        }
        let mut sent: Value = serde_json::from_slice(body).unwrap();
        let version = sent["metadata"].get("resourceVersion");
        let conflict = match (&state.lease, version) {
            // The lease was deleted, so no object has the UID in the request.
            (None, Some(_)) => Some(409),
            (Some(_), None) => Some(422),
            (Some(now), Some(version)) => {
                (now["metadata"]["resourceVersion"] != *version).then_some(409)
            }
            (None, None) => None,
        };
        if let Some(code) = conflict {
            return (code, json!({"kind": "Status"}));
        }
        state.version += 1;
        sent["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.lease = Some(sent.clone());
        (200, sent)
    }

    fn client(&self, link: &Arc<Mutex<Link>>) -> Client {
        let (fake, link) = (self.clone(), Arc::clone(link));
        let service = service_fn(move |request: Request<Body>| {
            let (fake, link) = (fake.clone(), Arc::clone(&link));
            async move {
                let (head, body) = request.into_parts();
                let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
                // A request and its response take up to 150 ms each. The candidate's connection can
                // break or recover in the meantime.
                sleep(Duration::from_millis(fastrand::u64(1..150))).await;
                let (code, value) = match *link.lock() {
                    Link::Down => return Err("connection refused"),
                    Link::Cut => (0, Value::Null),
                    Link::Refused => (403, json!({"message": "leases is forbidden"})),
                    Link::Works | Link::Deaf => {
                        assert!(head.uri.path().ends_with("/leases/kubewarm"), "{}", head.uri);
                        assert!(
                            [Method::GET, Method::PUT].contains(&head.method),
                            "{}",
                            head.method
                        );
                        fake.handle(&head.method, &body)
                    }
                };
                sleep(Duration::from_millis(fastrand::u64(1..150))).await;
                if code == 0 || matches!(*link.lock(), Link::Cut | Link::Deaf) {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                Ok(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn start(&self, identity: &str) -> Candidate {
        let link = Arc::new(Mutex::new(Link::Works));
        let elector =
            LeaderElector::new(&self.client(&link), "kubewarm-system", "kubewarm", identity);
        let (state, stop) = (elector.state(), CancellationToken::new());
        let running = tokio::spawn(elector.run(stop.clone()));
        Candidate { state, link, stop, running }
    }

    fn spec(&self, field: &str) -> Value {
        self.0.lock().lease.as_ref().unwrap()["spec"][field].clone()
    }
}

impl Candidate {
    fn is_leader(&self) -> bool {
        self.state.borrow().is_leader()
    }

    fn lease_state(&self) -> LeaseState {
        self.state.borrow().clone()
    }

    fn set(&self, link: Link) {
        *self.link.lock() = link;
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_one_of_three_candidates_leads_while_links_break() {
    for seed in 0..4 {
        fastrand::seed(seed);
        let fake = FakeLeaseServer::default();
        let candidates = ["a", "b", "c"].map(|identity| fake.start(identity));
        let mut leaders = BTreeSet::new();
        let (mut samples, mut without) = (0, 0);
        for _ in 0..60 {
            for candidate in &candidates {
                let breaks = if candidate.is_leader() { 0.6 } else { 0.2 };
                let link = match fastrand::f64() {
                    chance if chance > breaks => Link::Works,
                    _ if fastrand::bool() => Link::Cut,
                    _ => Link::Deaf,
                };
                candidate.set(link);
            }
            for _ in 0..fastrand::u32(10..300) {
                sleep(Duration::from_millis(100)).await;
                let leading: Vec<_> =
                    (0..3).filter(|&index| candidates[index].is_leader()).collect();
                assert!(leading.len() <= 1, "{leading:?} lead at once, seed {seed}");
                samples += 1;
                without += u32::from(leading.is_empty());
                leaders.extend(leading);
            }
        }
        assert_eq!(leaders.len(), 3, "seed {seed}");
        assert!(
            without < samples * 3 / 4,
            "{without} of {samples} samples have no leader, seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_leads_and_keeps_leading() {
    let fake = FakeLeaseServer::default();
    let first = fake.start("a");
    sleep(SECOND).await;
    let second = fake.start("b");
    for _ in 0..600 {
        sleep(SECOND).await;
        assert!(first.is_leader() && !second.is_leader());
    }
    assert!(matches!(first.lease_state(), LeaseState::Leader { .. }));
    assert_eq!(second.lease_state(), LeaseState::Follower { holder: Some("a".into()) });
    assert_eq!(fake.spec("leaseTransitions"), 0);
    let requests = fake.0.lock().requests;
    assert!(requests < 700, "the two candidates sent {requests} requests in 10 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_at_the_next_attempt() {
    for seed in 0..40 {
        fastrand::seed(seed);
        let fake = FakeLeaseServer::default();
        let first = fake.start("a");
        sleep(SECOND).await;
        let second = fake.start("b");
        sleep(SECOND * 10).await;
        first.stop.cancel();
        let begun = Instant::now();
        first.running.await.unwrap();
        assert!(begun.elapsed() < SECOND, "seed {seed}: {:?}", begun.elapsed());
        assert!(!first.state.borrow().is_leader(), "seed {seed}");
        assert_eq!(fake.spec("holderIdentity"), "", "seed {seed}");
        sleep(SECOND * 4).await;
        assert!(second.is_leader(), "seed {seed}");
        assert_eq!(fake.spec("holderIdentity"), "b", "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_within_20_s_and_not_before_its_deadline() {
    let mut followed_by = [0, 0];
    for seed in 0..300 {
        fastrand::seed(seed);
        let fake = FakeLeaseServer::default();
        let first = fake.start("pod-a_1");
        sleep(SECOND).await;
        let other = fake.start("pod-b_2");
        sleep(SECOND * 5 + Duration::from_millis(fastrand::u64(..4_000))).await;
        assert!(first.is_leader());
        first.running.abort();
        let killed = Instant::now();
        // For every second `seed`, the kubelet restarts the container of the killed leader after 1
        // s.
        sleep(SECOND).await;
        let successor = (seed % 2 == 0).then(|| fake.start("pod-a_3"));
        let leaders = || [other.is_leader(), successor.as_ref().is_some_and(Candidate::is_leader)];
        while leaders() == [false; 2] {
            sleep(Duration::from_millis(50)).await;
            assert!(killed.elapsed() < SECOND * 20, "seed {seed}");
        }
        // The task of `first` was aborted, so its state is still `Leader`. The time `until` in this
        // state must have passed, so `is_leader` must return `false`.
        assert!(!first.is_leader(), "seed {seed}");
        let by = leaders();
        for _ in 0..30 {
            sleep(SECOND).await;
            assert_eq!(leaders(), by, "seed {seed}");
        }
        other.running.abort();
        if let Some(successor) = successor {
            successor.running.abort();
        }
        for (count, led) in followed_by.iter_mut().zip(by) {
            *count += u32::from(led);
        }
    }
    let [other, successor] = followed_by;
    assert!(other > 150 && successor > 0, "both candidates must win at times: {followed_by:?}");
    assert_eq!(other + successor, 300);
}

#[tokio::test(start_paused = true)]
async fn a_follower_does_not_release_the_lease() {
    let fake = FakeLeaseServer::default();
    let first = fake.start("a");
    sleep(SECOND).await;
    let second = fake.start("b");
    sleep(SECOND * 5).await;
    second.stop.cancel();
    second.running.await.unwrap();
    assert!(first.is_leader());
    assert_eq!(fake.spec("holderIdentity"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_request_still_releases_the_lease() {
    let fake = FakeLeaseServer::default();
    let first = fake.start("a");
    // The server creates the lease within 450 ms. The candidate might not have received the
    // response when `stop` is cancelled.
    while fake.0.lock().lease.is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    first.stop.cancel();
    first.running.await.unwrap();
    assert_eq!(fake.spec("holderIdentity"), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_responses_steps_down_at_its_deadline() {
    for link in [Link::Cut, Link::Deaf, Link::Refused] {
        let fake = FakeLeaseServer::default();
        let only = fake.start("a");
        sleep(SECOND * 3).await;
        assert!(only.is_leader());
        only.set(link);
        sleep(SECOND * 7).await;
        assert!(only.is_leader(), "{link:?}: stepped down before the deadline");
        sleep(SECOND * 3 + SECOND / 2).await;
        assert!(!only.is_leader());
        let LeaseState::Unknown { fault: Some(_) } = only.lease_state() else {
            panic!("{:?}", only.lease_state())
        };
        only.set(Link::Works);
        sleep(SECOND * 20).await;
        assert!(only.is_leader(), "{link:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_requested_within_a_second_after_an_outage() {
    let fake = FakeLeaseServer::default();
    let only = fake.start("a");
    sleep(SECOND * 3).await;
    only.set(Link::Down);
    sleep(SECOND * 300).await;
    assert!(!only.is_leader());
    let before = fake.0.lock().requests;
    only.set(Link::Works);
    sleep(SECOND).await;
    assert!(fake.0.lock().requests > before);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_process_does_not_lead_when_it_resumes() {
    let fake = FakeLeaseServer::default();
    let only = fake.start("a");
    sleep(SECOND * 3).await;
    assert!(only.is_leader());
    // `advance` moves the clock while the elector's task does not run, as in a suspended process.
    tokio::time::advance(SECOND * 60).await;
    assert!(!only.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_reported_and_retried() {
    let fake = FakeLeaseServer::default();
    let only = fake.start("a");
    only.set(Link::Refused);
    sleep(SECOND * 120).await;
    let LeaseState::Unknown { fault: Some(fault) } = only.lease_state() else {
        panic!("{:?}", only.lease_state())
    };
    assert_eq!(fault.reason(), FaultReason::Forbidden);
    assert!(!only.is_leader() && !only.running.is_finished());
    only.set(Link::Works);
    sleep(SECOND * 20).await;
    assert!(only.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_written_again_and_an_edited_holder_is_accepted() {
    let fake = FakeLeaseServer::default();
    let only = fake.start("a");
    sleep(SECOND * 3).await;
    fake.0.lock().lease = None;
    sleep(SECOND * 3).await;
    assert!(only.is_leader() && fake.spec("holderIdentity") == "a");
    {
        let mut state = fake.0.lock();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = version.into();
        lease["spec"]["holderIdentity"] = "another".into();
    }
    sleep(SECOND * 3).await;
    assert_eq!(only.lease_state(), LeaseState::Follower { holder: Some("another".into()) });
    assert!(!only.is_leader());
}
