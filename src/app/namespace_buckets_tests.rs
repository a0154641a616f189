//! Tests that kubewarm's API requests for one namespace stay within the namespace's rate limits and
//! do not delay requests for other namespaces.

use crate::{
    access::{AccessChecker, CheckSettings, CheckerDependencies, MAX_ACCESS_AGE},
    forecast::{
        self, ForecastSampler, Forecaster,
        fixtures::{declared, spec, target},
    },
    status::{EventRecorder, ProfileEvent},
};
use futures::future::join_all;
use http::{Request, Response, Uri};
use jiff::Timestamp;
use kube::{Config, client::Body};
use kubewarm_api::model::{Identity, NamespaceCheckPolicy, ProfileRef};
use kubewarm_cache::informer::InformerHandles;
use kubewarm_client::{AccountClients, ClientProvider, NamespaceBuckets};
use parking_lot::Mutex;
use serde_json::json;
use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The time and path of each request to the fake API server, except requests for roles and for the
/// server's version.
type RequestLog = Arc<Mutex<Vec<(Instant, String)>>>;

/// A fake API server that answers immediately. It permits everything in access reviews and rules
/// reviews. It has no ServiceAccounts, so each request for a token fails.
fn server(noted: &RequestLog) -> kube::Client {
    let noted = Arc::clone(noted);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let (code, body) = match &*path {
            "/version" => (200, json!({"major": "1", "minor": "36"})),
            path if path.starts_with("/apis/rbac.") => (403, json!({})),
            path if path.ends_with("/token") => (404, json!({})),
            path if path.contains("reviews") => {
                let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
                let status = json!({"resourceRules": [rule], "nonResourceRules": []});
                (201, json!({"status": status}))
            }
            _ => (200, json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []})),
        };
        if path != "/version" && !path.starts_with("/apis/rbac.") {
            noted.lock().push((Instant::now(), path));
        }
        let answer =
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    kube::Client::new(service, "default")
}

fn profile(name: &str) -> ProfileRef {
    ProfileRef { namespace: "noisy".into(), name: name.into() }
}

fn checker(clients: Arc<dyn ClientProvider>, buckets: NamespaceBuckets) -> AccessChecker {
    let wanted = (0..700).map(|n| {
        let (namespace_check, payer) = (NamespaceCheckPolicy::Skip, "noisy".into());
        (spec("pods", &format!("checked-{n}")).key, CheckSettings { namespace_check, payer })
    });
    let wanted = Arc::new(wanted.collect());
    let reports = InformerHandles::default();
    AccessChecker::new(CheckerDependencies {
        buckets,
        clients,
        informers: Box::new(move || Some(Arc::clone(&wanted))),
        profile_informers: Arc::default(),
        reports,
        max_access_age: MAX_ACCESS_AGE,
        count_check: Box::new(|_, _| {}),
    })
}

/// Runs the cost forecast of a profile with 150 informers.
async fn run_forecast(
    clients: Arc<dyn ClientProvider>,
    buckets: NamespaceBuckets,
    stop: CancellationToken,
) {
    let forecasts = Forecaster::default();
    let informers = (0..150).map(|n| spec("pods", &format!("planned-{n}"))).collect();
    forecasts.set_planned([Arc::new(declared("noisy", "p", vec![target("pods", informers)]))]);
    let sampler = ForecastSampler::new(clients, forecast::REQUEST_PAUSE, buckets);
    forecast::run(forecasts, sampler, || true, |_| false, stop).await;
}

/// Sends a request as the ServiceAccount `name`, for which the client first requests a token.
async fn request_a_token(clients: &dyn ClientProvider, namespace: &str, name: &str) {
    let account = Identity::ServiceAccount { namespace: namespace.into(), name: name.into() };
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let _no_such_account = clients.client_for(&account).send(request).await;
}

/// Sends 20 Events per second without end, each about a different profile in namespace `noisy`.
async fn send_events(recorder: EventRecorder) {
    let mut ticks = interval(Duration::from_millis(50));
    for n in 0_u64.. {
        ticks.tick().await;
        let notice = ProfileEvent {
            profile: profile(&format!("p{n}")),
            uid: "u".into(),
            target: String::new(),
            type_: "Normal",
            reason: "Ready",
            note: String::new(),
        };
        recorder.send(&notice, Timestamp::UNIX_EPOCH).await;
    }
}

/// Returns the maximum number of requests in any period of `seconds`.
fn most_in(seconds: u64, sent: &[&(Instant, String)]) -> usize {
    let until = |at: Instant| at + Duration::from_secs(seconds);
    let count =
        |at: Instant| sent.iter().filter(|(time, _)| (at..until(at)).contains(time)).count();
    sent.iter().map(|(at, _)| count(*at)).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_namespace_stay_within_its_limits_and_delay_no_checks_and_no_others() {
    let (noted, buckets) = (RequestLog::default(), NamespaceBuckets::default());
    let client = server(&noted);
    let nowhere = Config::new(Uri::from_static("http://127.0.0.1:1"));
    let accounts = AccountClients::of(&nowhere, client.clone(), buckets.clone());
    let clients: Arc<dyn ClientProvider> = Arc::new(accounts);
    let recorder = EventRecorder::new(&client, "me", buckets.clone());
    let tokens = async {
        // A namespace can have at most 100 profiles. In this test each profile reads as its own
        // ServiceAccount.
        let names: Vec<_> = (0..100).map(|n| format!("reader-{n}")).collect();
        for _ in 0..6 {
            join_all(names.iter().map(|name| request_a_token(&*clients, "noisy", name))).await;
        }
    };
    let quiet = async {
        for n in 0..10 {
            sleep(Duration::from_secs(5)).await;
            let sent = Instant::now();
            request_a_token(&*clients, "quiet", &format!("reader-{n}")).await;
            assert!(sent.elapsed() < Duration::from_millis(500), "{:?}", sent.elapsed());
        }
    };
    let stop = CancellationToken::new();
    let all = async {
        tokio::join!(
            checker(Arc::clone(&clients), NamespaceBuckets::default()).run(stop.clone()),
            run_forecast(Arc::clone(&clients), buckets.clone(), stop.clone()),
            send_events(recorder),
            tokens,
            quiet,
        )
    };
    let _elapsed = timeout(Duration::from_mins(1), all).await;

    let noted = noted.lock();
    let requests = |part: &str| -> Vec<_> {
        let is_noisy = |path: &String| path.contains(part) && !path.contains("/quiet/");
        noted.iter().filter(|(_, path)| is_noisy(path)).collect()
    };
    let is_check = |path: &String| path.contains("reviews") || path.contains("/checked-");
    let (checks, others): (Vec<_>, Vec<_>) =
        requests("").into_iter().partition(|(_, path)| is_check(path));
    let counts = ["/planned-", "/token", "/events"].map(|part| requests(part).len());
    assert!(counts.iter().all(|count| *count > 50), "each kind of request is served: {counts:?}");
    // Each rate limit permits 20 requests per second after a burst of 40. The assertion permits 5
    // requests more: the limit counts all requests of an access check before kubewarm sends them.
    for sent in [&checks, &others] {
        let most = most_in(10, sent);
        assert!(most <= 10 * 20 + 45, "{most} in ten seconds");
        assert!((1_100..=60 * 20 + 45).contains(&sent.len()), "{} in a minute", sent.len());
    }
    assert_eq!(noted.iter().filter(|(_, path)| path.contains("/quiet/")).count(), 10);
}
