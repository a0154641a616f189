//! Keeps a snapshot of what the API server serves: polls discovery, publishes what changed.

use super::{
    answer::{Answer, Bounds, ask},
    document::{Document, GroupVersion, Raw, RawResourceList},
    served::{Freshness, Group, Groups, Served, Version},
};
use crate::model::{Fault, Reason};
use http::{HeaderValue, Request, StatusCode, header};
use kube::{Client, client::Body};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Everything in one document; a server from before 1.30 answers with the older one.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
/// While nothing is missing. An unchanged document costs a 304.
const PERIOD: Duration = Duration::from_secs(30);
/// While a declared kind is missing: a new CRD is noticed within so much.
const HURRIED_PERIOD: Duration = Duration::from_secs(5);
/// Between two polls, whatever is asked for.
const MIN_PERIOD: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);
/// A cluster with 2,000 CRDs answers about 2 MiB.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), body_bytes: 32 << 20 };
/// Of one group version, where the server knows only the older documents.
const LEGACY_BOUNDS: Bounds = Bounds { time: Duration::from_secs(5), body_bytes: 4 << 20 };

/// How urgently changes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every 30 s.
    Calm,
    /// Every 5 s: something declared is missing.
    Hurried,
}

/// Discovery fails; the last snapshot stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The last failure.
    pub fault: Fault,
    /// When the first of them was noticed.
    pub since: Instant,
    /// How many in a row, at least 1.
    pub attempts: u32,
}

/// Discovery of one API server. Clones share it; one of them must [`run`](Self::run).
#[derive(Clone)]
pub struct Discovery(Arc<Shared>);

struct Shared {
    client: Client,
    served: watch::Sender<Option<Arc<Served>>>,
    trouble: watch::Sender<Option<Trouble>>,
    is_hurried: AtomicBool,
    is_asked: AtomicBool,
    wake: Notify,
}

/// The two documents as last read.
#[derive(Default)]
struct Reader {
    core: Page,
    named: Page,
}

#[derive(Default)]
struct Page {
    /// What the server called `groups`; none for those that were read piece by piece.
    tag: Option<HeaderValue>,
    groups: Groups,
}

impl Discovery {
    /// Prepares discovery through `client`; nothing is sent before [`run`](Self::run).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Shared {
            client,
            served: watch::Sender::new(None),
            trouble: watch::Sender::new(None),
            is_hurried: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            wake: Notify::new(),
        }))
    }

    /// The latest snapshot; `None` before the first. Changes only when what is served changes.
    #[must_use]
    pub fn served(&self) -> watch::Receiver<Option<Arc<Served>>> {
        self.0.served.subscribe()
    }

    /// Whether discovery fails now; `None` if the last poll succeeded, or before the first.
    #[must_use]
    pub fn trouble(&self) -> watch::Receiver<Option<Trouble>> {
        self.0.trouble.subscribe()
    }

    /// Sets how often to poll.
    pub fn set_pace(&self, pace: Pace) {
        let is_hurried = pace == Pace::Hurried;
        if self.0.is_hurried.swap(is_hurried, Ordering::Relaxed) != is_hurried {
            self.0.wake.notify_one();
        }
    }

    /// Polls as soon as the last poll is 1 s old: after a sign that something changed, such as a
    /// 404 on a list or an event of a `CustomResourceDefinition`.
    pub fn refresh(&self) {
        self.0.is_asked.store(true, Ordering::Relaxed);
        self.0.wake.notify_one();
    }

    /// Polls until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.poll_for_ever()).await;
    }

    async fn poll_for_ever(&self) {
        let mut reader = Reader::default();
        loop {
            let started = Instant::now();
            self.0.is_asked.store(false, Ordering::Relaxed);
            let known = self.0.served.borrow().clone();
            match reader.poll(&self.0.client, known.as_deref()).await {
                Ok(served) => self.publish(served),
                Err(fault) => self.report(fault),
            }
            self.rest(started).await;
        }
    }

    fn publish(&self, served: Served) {
        self.0.served.send_if_modified(|current| {
            if current.as_deref() == Some(&served) {
                return false;
            }
            tracing::debug!("discovery changed");
            *current = Some(Arc::new(served));
            true
        });
        self.0.trouble.send_if_modified(|trouble| {
            let ended = trouble.take();
            if let Some(Trouble { attempts, .. }) = ended {
                tracing::info!(attempts, "discovery works again");
            }
            ended.is_some()
        });
    }

    fn report(&self, fault: Fault) {
        self.0.trouble.send_modify(|trouble| {
            let (since, attempts) = match trouble {
                Some(last) => (last.since, last.attempts.saturating_add(1)),
                None => (Instant::now(), 1),
            };
            if trouble.as_ref().is_none_or(|last| last.fault.reason() != fault.reason()) {
                tracing::warn!(reason = %fault.reason(), error = %fault, "discovery failed");
            }
            *trouble = Some(Trouble { fault, since, attempts });
        });
    }

    /// Waits until the next poll is due, or asked for.
    async fn rest(&self, started: Instant) {
        // Replicas that were started together should not poll together.
        let spread = 0.9 + fastrand::f64() * 0.2;
        sleep_until(started + MIN_PERIOD.mul_f64(spread)).await;
        while !self.0.is_asked.load(Ordering::Relaxed) {
            let due = started + self.period().mul_f64(spread);
            tokio::select! {
                () = sleep_until(due) => return,
                () = self.0.wake.notified() => {}
            }
        }
    }

    fn period(&self) -> Duration {
        let pace = if self.0.is_hurried.load(Ordering::Relaxed) { HURRIED_PERIOD } else { PERIOD };
        match &*self.0.trouble.borrow() {
            None => pace,
            Some(trouble) => {
                let backoff = MIN_PERIOD.saturating_mul(1 << trouble.attempts.min(5));
                let told = trouble.fault.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
                backoff.min(PERIOD).max(told)
            }
        }
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("trouble", &*self.0.trouble.borrow())
            .finish_non_exhaustive()
    }
}

impl Reader {
    async fn poll(&mut self, client: &Client, known: Option<&Served>) -> Result<Served, Fault> {
        let (core, named) =
            tokio::join!(self.core.read(client, "/api"), self.named.read(client, "/apis"));
        core.and(named)?;
        Ok(Served::new(&self.core.groups, &self.named.groups, known))
    }
}

impl Page {
    async fn read(&mut self, client: &Client, path: &'static str) -> Result<(), Fault> {
        let tag = self.tag.as_ref();
        let mut answer = get(client, path, AGGREGATED, tag, BOUNDS).await?;
        if answer.status == StatusCode::NOT_MODIFIED && self.tag.is_some() {
            return Ok(());
        }
        if answer.status == StatusCode::NOT_ACCEPTABLE {
            answer = get(client, path, "application/json", None, BOUNDS).await?;
        }
        let document = answer.json::<Raw>()?.read().ok_or_else(|| {
            Fault::new(Reason::Malformed, format!("{path} is not a discovery document"))
        })?;
        (self.groups, self.tag) = match document {
            Document::Aggregated(groups) => (groups, answer.headers.get(header::ETAG).cloned()),
            Document::Index(list) => (read_each(client, list).await?, None),
        };
        Ok(())
    }
}

/// The older way: one request for each group version.
async fn read_each(client: &Client, list: Vec<GroupVersion>) -> Result<Groups, Fault> {
    let mut groups = Groups::new();
    for GroupVersion { group, version } in list {
        let path = match &*group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let answer = get(client, &path, "application/json", None, LEGACY_BOUNDS).await?;
        // A group whose API service is down answers 503, or 404; the others count all the same.
        let (freshness, resources) = match answer.json::<RawResourceList>() {
            Ok(list) => (Freshness::Current, list.read()),
            Err(_) => (Freshness::Stale, std::collections::BTreeMap::new()),
        };
        let read = Version { name: version, freshness, resources };
        Arc::make_mut(groups.entry(group).or_insert_with(|| Arc::new(Group::default())))
            .0
            .push(read);
    }
    Ok(groups)
}

async fn get(
    client: &Client,
    path: &str,
    accept: &'static str,
    tag: Option<&HeaderValue>,
    bounds: Bounds,
) -> Result<Answer, Fault> {
    let mut request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| Fault::new(Reason::Malformed, error.to_string()))?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    if let Some(tag) = tag {
        request.headers_mut().insert(header::IF_NONE_MATCH, tag.clone());
    }
    ask(client, request, bounds).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GroupResource;
    use http::Response;
    use parking_lot::Mutex;
    use std::{collections::BTreeMap, convert::Infallible};
    use tokio::time::sleep;
    use tower::service_fn;

    /// Answers by path; knows what it was asked.
    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        bodies: BTreeMap<String, (u16, String)>,
        asked: Vec<String>,
        not_modified: usize,
    }

    impl Fake {
        fn set(&self, path: &str, code: u16, body: &str) {
            self.0.lock().bodies.insert(path.to_owned(), (code, body.to_owned()));
        }

        fn set_group(&self, group: &str, plural: &str) {
            let resources = format!(
                r#"{{"resource":"{plural}","responseKind":{{"kind":"K"}},"scope":"Cluster",
                "verbs":["list","watch"]}}"#
            );
            let versions = format!(r#"{{"version":"v1","resources":[{resources}]}}"#);
            let item = format!(r#"{{"metadata":{{"name":"{group}"}},"versions":[{versions}]}}"#);
            let list = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{item}]}}"#);
            self.set(if group.is_empty() { "/api" } else { "/apis" }, 200, &list);
        }

        fn asked(&self, path: &str) -> usize {
            self.0.lock().asked.iter().filter(|asked| *asked == path).count()
        }

        fn client(&self) -> Client {
            let fake = self.clone();
            let service = service_fn(move |request: Request<Body>| {
                let mut state = fake.0.lock();
                let path = request.uri().path().to_owned();
                state.asked.push(path.clone());
                let (code, body) = state.bodies.get(&path).cloned().unwrap_or((404, String::new()));
                let tag = format!("\"{body}\"").replace(|c: char| !c.is_ascii_alphanumeric(), "");
                let same = request.headers().get(header::IF_NONE_MATCH).is_some_and(|t| *t == *tag);
                state.not_modified += usize::from(same);
                let answer = Response::builder().header(header::ETAG, tag);
                let answer = if same {
                    answer.status(304).body(Body::empty())
                } else {
                    answer.status(code).body(Body::from(body.into_bytes()))
                };
                async move { Ok::<_, Infallible>(answer.unwrap()) }
            });
            Client::new(service, "default")
        }
    }

    fn serves(discovery: &Discovery, group: &str, plural: &str) -> bool {
        let of = GroupResource::new(group, plural).unwrap();
        let served = discovery.served().borrow().clone();
        served.is_some_and(|served| served.resolve(&of, None).is_ok())
    }

    /// Lets it run for some seconds of paused time.
    async fn started(fake: &Fake) -> Discovery {
        let discovery = Discovery::new(fake.client());
        let running = discovery.clone();
        tokio::spawn(async move { running.run(CancellationToken::new()).await });
        sleep(Duration::from_millis(500)).await;
        discovery
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_published_and_sameness_is_not() {
        let fake = Fake::default();
        fake.set_group("", "pods");
        fake.set_group("a.example", "ones");
        let discovery = started(&fake).await;
        let mut served = discovery.served();
        assert!(serves(&discovery, "", "pods") && serves(&discovery, "a.example", "ones"));
        served.mark_unchanged();
        sleep(Duration::from_secs(100)).await;
        assert!(!served.has_changed().unwrap());
        assert_eq!(fake.0.lock().not_modified, 6, "3 more polls of 2 documents");
        fake.set_group("b.example", "twos");
        sleep(Duration::from_secs(35)).await;
        assert!(served.has_changed().unwrap());
        assert!(
            serves(&discovery, "b.example", "twos") && !serves(&discovery, "a.example", "ones")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_looked_for_more_often_and_asking_is_limited() {
        let fake = Fake::default();
        fake.set_group("", "pods");
        fake.set_group("a.example", "ones");
        let discovery = started(&fake).await;
        discovery.set_pace(Pace::Hurried);
        sleep(Duration::from_mins(1)).await;
        let hurried = fake.asked("/api");
        assert!((11..=14).contains(&hurried), "{hurried}");
        discovery.set_pace(Pace::Calm);
        for _ in 0..1_000 {
            discovery.refresh();
            sleep(Duration::from_millis(10)).await;
        }
        let asked = fake.asked("/api") - hurried;
        assert!((8..=13).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_keeps_the_snapshot_and_is_visible() {
        let fake = Fake::default();
        fake.set_group("", "pods");
        fake.set_group("a.example", "ones");
        let discovery = started(&fake).await;
        fake.set("/apis", 503, r#"{"kind":"Status","message":"starting"}"#);
        discovery.refresh();
        sleep(Duration::from_secs(10)).await;
        let trouble = discovery.trouble().borrow().clone().unwrap();
        assert_eq!(trouble.fault.message(), "starting");
        assert!(trouble.attempts > 1);
        assert!(serves(&discovery, "a.example", "ones"));
        fake.set("/apis", 200, "<html>");
        sleep(Duration::from_secs(35)).await;
        let trouble = discovery.trouble().borrow().clone().unwrap();
        assert_eq!(trouble.fault.reason(), Reason::Malformed);
        fake.set_group("a.example", "ones");
        sleep(Duration::from_secs(35)).await;
        assert_eq!(*discovery.trouble().borrow(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_server_is_read_group_by_group() {
        let fake = Fake::default();
        fake.set("/api", 406, "");
        fake.set("/api", 200, r#"{"kind":"APIVersions","versions":["v1"]}"#);
        fake.set(
            "/api/v1",
            200,
            r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true,
            "verbs":["list","watch"]}]}"#,
        );
        fake.set(
            "/apis",
            200,
            r#"{"kind":"APIGroupList","groups":[
            {"name":"a.example","versions":[{"version":"v1"}]},
            {"name":"dead.example","versions":[{"version":"v1"}]}]}"#,
        );
        fake.set(
            "/apis/a.example/v1",
            200,
            r#"{"resources":[{"name":"ones","kind":"One","verbs":["list","watch"]}]}"#,
        );
        fake.set("/apis/dead.example/v1", 503, "");
        let discovery = started(&fake).await;
        assert!(serves(&discovery, "", "pods") && serves(&discovery, "a.example", "ones"));
        let served = discovery.served().borrow().clone().unwrap();
        assert_eq!(served.freshness("dead.example"), Some(Freshness::Stale));
        // Once its API service has died, what it served stays known.
        fake.set("/apis/a.example/v1", 503, "");
        discovery.refresh();
        sleep(Duration::from_secs(3)).await;
        assert!(serves(&discovery, "a.example", "ones"));
    }
}
