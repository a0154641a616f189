//! Replicas in paused time, against a fake API server that knows leases.

use super::*;
use crate::cluster::lease::{Elector, LeaseConfig};
use http::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible};
use tower::service_fn;

const SECOND: Duration = Duration::from_secs(1);

/// All leases, with the API server's rules for writing them.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    leases: BTreeMap<String, Value>,
    version: u64,
    /// Method and name of what was asked for, but the election's.
    asked: Vec<String>,
    /// What is refused of the leases of replicas.
    refused: Vec<Method>,
}

struct Replica {
    known: Arc<watch::Sender<Replicas>>,
    leadership: Leadership,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

fn checkout() -> ProfileRef {
    ProfileRef { namespace: "shop".into(), name: "checkout".into() }
}

impl State {
    fn handle(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let (_, name) = path.rsplit_once("/leases").unwrap();
        let name = name.trim_start_matches('/').to_owned();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let target = if name.is_empty() {
            sent["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        } else {
            name
        };
        if target != "kubewarm" {
            self.asked.push(format!("{method} {target}"));
            if self.refused.contains(method) {
                return (403, json!({"kind": "Status", "message": "leases is forbidden"}));
            }
        }
        let now = self.leases.get(&target);
        match method.as_str() {
            "GET" if target.is_empty() => {
                let labelled = |lease: &&Value| lease["metadata"]["labels"][LABEL] == "true";
                let items: Vec<_> = self.leases.values().filter(labelled).collect();
                (200, json!({"metadata": {}, "items": items}))
            }
            "GET" => now.map_or_else(|| (404, json!({})), |lease| (200, lease.clone())),
            "DELETE" => {
                let wanted = &sent["preconditions"]["resourceVersion"];
                let Some(lease) = now else { return (404, json!({})) };
                if !wanted.is_null() && *wanted != lease["metadata"]["resourceVersion"] {
                    return (409, json!({}));
                }
                self.leases.remove(&target);
                (200, json!({}))
            }
            "POST" if now.is_some() => (409, json!({})),
            "PUT" if now.is_none() => (404, json!({})),
            "PUT"
                if now.unwrap()["metadata"]["resourceVersion"]
                    != sent["metadata"]["resourceVersion"] =>
            {
                (409, json!({}))
            }
            _ => {
                self.version += 1;
                let mut sent = sent;
                sent["metadata"]["resourceVersion"] = self.version.to_string().into();
                self.leases.insert(target, sent.clone());
                (200, sent)
            }
        }
    }
}

impl Fake {
    fn client(&self) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
                let (code, value) = fake.0.lock().handle(&head.method, head.uri.path(), &body);
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn start(&self, identity: &str, warm: &'static str) -> Replica {
        let config = LeaseConfig::new("kubewarm-system", "kubewarm", identity);
        let elector = Elector::new(self.client(), config);
        let leadership = elector.leadership();
        let known = Arc::new(watch::Sender::new(Replicas::alone(identity)));
        let announcer = Announcer::new(
            self.client(),
            ("kubewarm-system".into(), identity.into()),
            leadership.clone(),
            Arc::clone(&known),
            Box::new(move || vec![(checkout(), WarmTargets::parse(warm).unwrap())]),
        );
        let stop = CancellationToken::new();
        let until = stop.clone();
        let running = tokio::spawn(async move {
            tokio::join!(elector.run(until.clone()), announcer.run(until));
        });
        Replica { known, leadership, stop, running }
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().leases.keys().filter(|name| *name != "kubewarm").cloned().collect()
    }

    /// What was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().asked)
    }
}

impl Replica {
    /// The others as `name=2/3`; `None` if it does not know.
    fn others(&self) -> Option<Vec<String>> {
        let others = self.known.borrow().others.clone()?;
        let shown = |peer: &Peer| {
            let warm = peer.warm_targets(&checkout()).map(|warm| warm.to_string());
            format!("{}={}", peer.name, warm.unwrap_or_default())
        };
        Some(others.iter().map(shown).collect())
    }

    fn trouble(&self) -> Option<Reason> {
        self.known.borrow().trouble.as_ref().map(Fault::reason)
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_learns_of_its_followers_and_they_do_not_ask() {
    let fake = Fake::default();
    let first = fake.start("pod-a_1", "3/3");
    sleep(SECOND).await;
    let second = fake.start("pod-b_2", "2/3");
    sleep(SECOND * 40).await;
    assert!(first.leadership.is_leader());
    assert_eq!(first.others().unwrap(), ["pod-b=2/3"]);
    assert_eq!(second.others(), None);
    assert_eq!(fake.names(), ["kubewarm-replica-pod-a", "kubewarm-replica-pod-b"]);
    fake.asked();
    sleep(PERIOD * 10).await;
    let asked = fake.asked();
    let count = |what: &str| asked.iter().filter(|asked| asked.starts_with(what)).count();
    for what in ["GET ", "PUT kubewarm-replica-pod-a", "PUT kubewarm-replica-pod-b"] {
        assert!((9..=11).contains(&count(what)), "{what}: {asked:?}");
    }
    assert!(asked.len() <= 33, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_looks_at_once_and_finds_no_lease_of_one_that_was_stopped() {
    let fake = Fake::default();
    let first = fake.start("pod-a_1", "3/3");
    sleep(SECOND).await;
    let [second, third] =
        [("pod-b_2", "3/3"), ("pod-c_3", "0/3")].map(|(name, warm)| fake.start(name, warm));
    sleep(SECOND * 10).await;
    first.stop.cancel();
    first.running.await.unwrap();
    sleep(SECOND * 5).await;
    let (leader, other) =
        if second.leadership.is_leader() { (&second, "pod-c=0/3") } else { (&third, "pod-b=3/3") };
    assert_eq!(leader.others().unwrap(), [other]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_killed_is_gone_after_three_periods_and_its_lease_after_an_hour() {
    let fake = Fake::default();
    let first = fake.start("pod-a_1", "3/3");
    sleep(SECOND).await;
    let second = fake.start("pod-b_2", "3/3");
    sleep(PERIOD * 2).await;
    second.running.abort();
    sleep(PERIOD).await;
    assert_eq!(first.others().unwrap(), ["pod-b=3/3"]);
    sleep(PERIOD * 4).await;
    assert_eq!(first.others().unwrap(), [""; 0]);
    assert_eq!(fake.names().len(), 2);
    sleep(SECOND * 3_600).await;
    assert_eq!(fake.names(), ["kubewarm-replica-pod-a"]);
    assert_eq!(first.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_predecessor_or_one_that_was_edited_or_deleted_is_made_anew() {
    let fake = Fake::default();
    let name = "kubewarm-replica-pod-a";
    let old = json!({"metadata": {"name": name, "resourceVersion": "old"}});
    fake.0.lock().leases.insert(name.to_owned(), old.clone());
    let only = fake.start("pod-a_2", "3/3");
    let is_ours = |fake: &Fake| fake.0.lock().leases[name]["spec"]["holderIdentity"] == "pod-a_2";
    sleep(SECOND).await;
    assert!(is_ours(&fake));
    fake.0.lock().leases.insert(name.to_owned(), old);
    sleep(PERIOD * 2).await;
    assert!(is_ours(&fake));
    fake.0.lock().leases.remove(name);
    sleep(PERIOD * 2).await;
    assert!(is_ours(&fake));
    assert_eq!(only.trouble(), None);
    only.stop.cancel();
    only.running.await.unwrap();
    assert_eq!(fake.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_leaves_the_leader_alone_and_is_told() {
    for refused in [Method::GET, Method::POST] {
        let fake = Fake::default();
        fake.0.lock().refused.push(refused.clone());
        let only = fake.start("pod-a_1", "3/3");
        sleep(PERIOD * 2).await;
        assert!(only.leadership.is_leader());
        assert_eq!(only.others().unwrap(), [""; 0], "{refused}");
        assert_eq!(only.trouble(), Some(Reason::Forbidden), "{refused}");
        fake.0.lock().refused.clear();
        sleep(PERIOD * 2).await;
        assert_eq!(only.trouble(), None);
        assert!(!only.running.is_finished());
    }
}

#[test]
fn a_replica_is_called_after_its_pod() {
    for (identity, name) in [
        ("kubewarm-7f9c-x2_00ff", "kubewarm-7f9c-x2"),
        ("My_Host.Example_00ff", "my-host.example"),
        ("a.-b-_00ff", "a.b"),
        ("..._00ff", "kubewarm"),
    ] {
        assert_eq!(&*Replicas::alone(identity).own, name);
    }
    let long = Replicas::alone(&format!("{}_1", "x".repeat(400)));
    assert_eq!(PREFIX.len() + long.own.len(), MAX_NAME);
}
