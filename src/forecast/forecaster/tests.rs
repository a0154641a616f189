use super::*;
use crate::forecast::fixtures::{declared, spec, target};
use http::{Request, Response};
use kube::client::Body;
use kubewarm_api::model::{
    FieldRequirement, FieldSelector, Identity, Refusal, RefusalReason, ResolvedTarget,
};
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use std::{convert::Infallible, future::ready};
use tokio::time::timeout;
use tower::service_fn;

fn order(generation: i64) -> Arc<ResolvedProfile> {
    Arc::new(ResolvedProfile { generation, ..declared("a", "p", Vec::new()) })
}

fn nothing(_: &InformerKey) -> bool {
    false
}

fn due(
    forecasts: &Forecaster,
    can_read: impl Fn(&InformerKey) -> bool,
    now: Instant,
) -> Vec<Arc<ResolvedProfile>> {
    let taken = forecasts.due(&can_read, |_| Some(()), now);
    taken.into_iter().map(|(order, ())| order).collect()
}

fn get(forecasts: &Forecaster) -> Option<Arc<ProfileForecast>> {
    forecasts.get(&order(1).profile)
}

#[test]
fn a_profile_is_forecast_every_ten_minutes_and_after_a_change() {
    let (forecasts, now) = (Forecaster::default(), Instant::now() + TICK);
    forecasts.set_planned([order(1)]);
    let taken = due(&forecasts, nothing, now);
    assert_eq!(taken.len(), 1);
    forecasts.set_planned([order(1)]);
    assert!(due(&forecasts, nothing, now).is_empty(), "the forecast is running");
    forecasts.finish(&taken[0], Some(ProfileForecast::default()), now);
    assert!(get(&forecasts).is_some());
    assert!(due(&forecasts, nothing, now + HOLDS / 2).is_empty());
    assert_eq!(due(&forecasts, nothing, now + HOLDS).len(), 1);
    forecasts.set_planned([order(2)]);
    assert!(due(&forecasts, nothing, now).is_empty(), "the previous forecast is running");
    forecasts.finish(&taken[0], Some(ProfileForecast::default()), now);
    assert_eq!(due(&forecasts, nothing, now).len(), 1);
    assert!(get(&forecasts).is_none(), "the forecast of another generation is not returned");
}

/// An API server without objects. This server records the time and the namespace of each request.
#[derive(Default)]
struct Noting(Arc<Mutex<Vec<(Instant, String)>>>);

impl ClientProvider for Noting {
    fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
        let noted = Arc::clone(&self.0);
        let service = service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let namespace = path.split('/').nth(4).unwrap_or_default().to_owned();
            noted.lock().push((Instant::now(), namespace));
            let body = match path {
                "/version" => r#"{"major":"1","minor":"36"}"#,
                _ => r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#,
            };
            ready(Ok::<_, Infallible>(Response::new(Body::from(body.as_bytes().to_vec()))))
        });
        Arc::new(kube::Client::new(service, "default"))
    }
}

/// Returns the maximum number of elements of `times` within any period of one second.
fn in_a_second(times: &[Instant]) -> usize {
    let second = Duration::from_secs(1);
    let within =
        |at: &Instant| times.iter().filter(|other| (*at..*at + second).contains(*other)).count();
    times.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn forecasts_send_five_requests_a_second_per_namespace_and_twenty_in_total() {
    let server = Noting::default();
    let noted = Arc::clone(&server.0);
    let forecasts = Forecaster::default();
    let entries = (0..18).map(|n| {
        let (namespace, name) = (format!("n{}", n % 6), format!("p{n}"));
        let informers = (0..12).map(|informer| {
            let mut spec = spec("pods", &namespace);
            let value = format!("x{n}-{informer}");
            let field = FieldRequirement::equal("spec.nodeName", &value).unwrap();
            spec.key.fields = FieldSelector::new([field]);
            spec
        });
        Arc::new(declared(&namespace, &name, vec![target("pods", informers.collect())]))
    });
    forecasts.set_planned(entries);
    let sampler =
        ForecastSampler::new(Arc::new(server), REQUEST_PAUSE, NamespaceBuckets::default());
    let running = run(forecasts, sampler, || true, nothing, CancellationToken::new());
    let _elapsed = timeout(Duration::from_mins(1), running).await;
    let noted = noted.lock();
    let all: Vec<_> = noted.iter().map(|(at, _)| *at).collect();
    assert!(
        (16..=20).contains(&in_a_second(&all)),
        "{} requests of all namespaces",
        in_a_second(&all)
    );
    for n in 0..6 {
        let name = format!("n{n}");
        let times = noted.iter().filter(|(_, namespace)| *namespace == name).map(|(at, _)| *at);
        let most = in_a_second(&times.collect::<Vec<_>>());
        assert!((4..=5).contains(&most), "{most} requests of {name}");
    }
}

#[test]
fn a_forecast_of_an_old_generation_is_dropped() {
    let (forecasts, now) = (Forecaster::default(), Instant::now() + TICK);
    forecasts.set_planned([order(1)]);
    let old = due(&forecasts, nothing, now);
    forecasts.set_planned([order(2)]);
    forecasts.finish(&old[0], Some(ProfileForecast::default()), now);
    assert!(get(&forecasts).is_none());
    forecasts.set_planned([]);
    assert!(due(&forecasts, nothing, now + HOLDS).is_empty());
}

#[test]
fn only_changed_informers_start_a_new_forecast() {
    let refused = |message: &str| {
        let refusal = Refusal::new(RefusalReason::TooManyInformers, message);
        ResolvedTarget { resolved: Some(Err(refusal)), ..target("refused", Vec::new()) }
    };
    let (forecasts, now) = (Forecaster::default(), Instant::now() + TICK);
    let pods = target("pods", vec![spec("pods", "a")]);
    let targets = vec![pods, refused("the profiles of the namespace have 998 informers")];
    let first = Arc::new(declared("a", "p", targets));
    forecasts.set_planned([Arc::clone(&first)]);
    let taken = due(&forecasts, nothing, now);
    forecasts.finish(&taken[0], Some(ProfileForecast::default()), now);
    let mut other = ResolvedProfile::clone(&first);
    other.targets[1] = refused("the profiles of the namespace have 999 informers");
    other.accepted_at = HOLDS;
    forecasts.set_planned([Arc::new(other)]);
    assert!(
        due(&forecasts, nothing, now + HOLDS / 2).is_empty(),
        "the profile's informers are the same"
    );
    let mut other = ResolvedProfile::clone(&first);
    other.targets[0].informers = [spec("pods", "a"), spec("pods", "b")].into();
    forecasts.set_planned([Arc::new(other)]);
    assert_eq!(due(&forecasts, nothing, now + HOLDS / 2).len(), 1);
}

#[test]
fn a_changed_selector_of_a_refused_target_is_forecast() {
    let (forecasts, now) = (Forecaster::default(), Instant::now() + TICK);
    let refusal = Refusal::new(RefusalReason::TooManyInformers, "2,050 informers");
    let refused = ResolvedTarget { resolved: Some(Err(refusal)), ..target("p", Vec::new()) };
    let first = Arc::new(declared("a", "p", vec![refused]));
    forecasts.set_planned([Arc::clone(&first)]);
    let taken = due(&forecasts, nothing, now);
    forecasts.finish(&taken[0], Some(ProfileForecast::default()), now);
    let mut other = ResolvedProfile::clone(&first);
    other.targets[0].namespaces = Some(spec("namespaces", "a"));
    forecasts.set_planned([Arc::new(other)]);
    let taken = due(&forecasts, nothing, now);
    assert!(taken[0].targets[0].namespaces.is_some());
}

#[test]
fn a_profile_is_forecast_again_15_seconds_after_a_grant() {
    let (forecasts, now) = (Forecaster::default(), Instant::now() + TICK);
    forecasts.set_planned([order(1)]);
    let taken = due(&forecasts, nothing, now);
    let refused = vec![spec("pods", "a").key];
    forecasts.finish(
        &taken[0],
        Some(ProfileForecast { refused, ..ProfileForecast::default() }),
        now,
    );
    let all = |_: &InformerKey| true;
    assert!(due(&forecasts, all, now + REGRANTED / 2).is_empty());
    assert!(due(&forecasts, nothing, now + REGRANTED).is_empty());
    assert_eq!(due(&forecasts, all, now + REGRANTED).len(), 1);
}
