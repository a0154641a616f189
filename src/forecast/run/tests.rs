use super::*;
use crate::forecast::samples::{declared, spec, target};
use http::{Request, Response};
use kube::client::Body;
use kubewarm_api::model::{
    DeclaredTarget, FieldRequirement, FieldSelector, Identity, Refusal, RefusalReason,
};
use kubewarm_client::{Buckets, Clients};
use std::{convert::Infallible, future::ready};
use tokio::time::timeout;
use tower::service_fn;

fn order(generation: i64) -> Arc<Declared> {
    Arc::new(Declared { generation, ..declared("a", "p", Vec::new()) })
}

fn nothing(_: &CellKey) -> bool {
    false
}

fn due(
    forecasts: &Forecasts,
    may_read: impl Fn(&CellKey) -> bool,
    now: Instant,
) -> Vec<Arc<Declared>> {
    let taken = forecasts.due(&may_read, |_| Some(()), now);
    taken.into_iter().map(|(order, ())| order).collect()
}

fn get(forecasts: &Forecasts) -> Option<Arc<Forecast>> {
    forecasts.get(&order(1).profile)
}

#[test]
fn an_order_is_looked_at_once_in_ten_minutes_and_at_once_when_it_changes() {
    let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
    forecasts.order([order(1)]);
    let taken = due(&forecasts, nothing, now);
    assert_eq!(taken.len(), 1);
    forecasts.order([order(1)]);
    assert!(due(&forecasts, nothing, now).is_empty(), "it is under way");
    forecasts.done(&taken[0], Some(Forecast::default()), now);
    assert!(get(&forecasts).is_some());
    assert!(due(&forecasts, nothing, now + HOLDS / 2).is_empty());
    assert_eq!(due(&forecasts, nothing, now + HOLDS).len(), 1);
    forecasts.order([order(2)]);
    assert!(due(&forecasts, nothing, now).is_empty(), "its former is under way");
    forecasts.done(&taken[0], Some(Forecast::default()), now);
    assert_eq!(due(&forecasts, nothing, now).len(), 1);
    assert!(get(&forecasts).is_none(), "what was found for another generation");
}

/// An API server that holds nothing, and notes when it is asked and about which namespace.
#[derive(Default)]
struct Noting(Arc<Mutex<Vec<(Instant, String)>>>);

impl Clients for Noting {
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

/// The most of these that came within a second.
fn in_a_second(times: &[Instant]) -> usize {
    let second = Duration::from_secs(1);
    let within =
        |at: &Instant| times.iter().filter(|other| (*at..*at + second).contains(*other)).count();
    times.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_asked_for_five_times_a_second_and_all_of_them_twenty_times() {
    let server = Noting::default();
    let noted = Arc::clone(&server.0);
    let forecasts = Forecasts::default();
    let orders = (0..18).map(|n| {
        let (namespace, name) = (format!("n{}", n % 6), format!("p{n}"));
        let cells = (0..12).map(|cell| {
            let mut spec = spec("pods", &namespace);
            let value = format!("x{n}-{cell}");
            let field = FieldRequirement::new("spec.nodeName", true, &value).unwrap();
            spec.key.fields = FieldSelector::new([field]);
            spec
        });
        Arc::new(declared(&namespace, &name, vec![target("pods", cells.collect())]))
    });
    forecasts.order(orders);
    let surveyor = Surveyor::new(Arc::new(server), REST, Buckets::default());
    let running = run(forecasts, surveyor, || true, nothing, CancellationToken::new());
    let _elapsed = timeout(Duration::from_mins(1), running).await;
    let noted = noted.lock();
    let all: Vec<_> = noted.iter().map(|(at, _)| *at).collect();
    assert!((16..=20).contains(&in_a_second(&all)), "{} of all", in_a_second(&all));
    for n in 0..6 {
        let name = format!("n{n}");
        let own = noted.iter().filter(|(_, of)| *of == name).map(|(at, _)| *at);
        let most = in_a_second(&own.collect::<Vec<_>>());
        assert!((4..=5).contains(&most), "{most} of {name}");
    }
}

#[test]
fn what_comes_too_late_for_an_order_is_dropped() {
    let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
    forecasts.order([order(1)]);
    let old = due(&forecasts, nothing, now);
    forecasts.order([order(2)]);
    forecasts.done(&old[0], Some(Forecast::default()), now);
    assert!(get(&forecasts).is_none());
    forecasts.order([]);
    assert!(due(&forecasts, nothing, now + HOLDS).is_empty());
}

#[test]
fn what_a_forecast_does_not_depend_on_begins_none() {
    let refused = |message: &str| {
        let refusal = Refusal::new(RefusalReason::TooManyInformers, message);
        DeclaredTarget { resolved: Some(Err(refusal)), ..target("refused", Vec::new()) }
    };
    let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
    let pods = target("pods", vec![spec("pods", "a")]);
    let targets = vec![pods, refused("the profiles of the namespace have 998 cells")];
    let first = Arc::new(declared("a", "p", targets));
    forecasts.order([Arc::clone(&first)]);
    let taken = due(&forecasts, nothing, now);
    forecasts.done(&taken[0], Some(Forecast::default()), now);
    let mut other = Declared::clone(&first);
    other.targets[1] = refused("the profiles of the namespace have 999 cells");
    other.accepted_at = HOLDS;
    forecasts.order([Arc::new(other)]);
    assert!(due(&forecasts, nothing, now + HOLDS / 2).is_empty(), "its cells are the same");
    let mut other = Declared::clone(&first);
    other.targets[0].cells = [spec("pods", "a"), spec("pods", "b")].into();
    forecasts.order([Arc::new(other)]);
    assert_eq!(due(&forecasts, nothing, now + HOLDS / 2).len(), 1);
}

#[test]
fn the_selector_of_a_refused_target_is_looked_at_as_it_is_now() {
    let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
    let refusal = Refusal::new(RefusalReason::TooManyInformers, "2,050 cells");
    let refused = DeclaredTarget { resolved: Some(Err(refusal)), ..target("p", Vec::new()) };
    let first = Arc::new(declared("a", "p", vec![refused]));
    forecasts.order([Arc::clone(&first)]);
    let taken = due(&forecasts, nothing, now);
    forecasts.done(&taken[0], Some(Forecast::default()), now);
    let mut other = Declared::clone(&first);
    other.targets[0].namespaces = Some(spec("namespaces", "a"));
    forecasts.order([Arc::new(other)]);
    let taken = due(&forecasts, nothing, now);
    assert!(taken[0].targets[0].namespaces.is_some());
}

#[test]
fn what_was_refused_and_may_be_read_now_is_looked_at_again_soon() {
    let (forecasts, now) = (Forecasts::default(), Instant::now() + LOOK);
    forecasts.order([order(1)]);
    let taken = due(&forecasts, nothing, now);
    let refused = vec![spec("pods", "a").key];
    forecasts.done(&taken[0], Some(Forecast { refused, ..Forecast::default() }), now);
    let all = |_: &CellKey| true;
    assert!(due(&forecasts, all, now + REGRANTED / 2).is_empty());
    assert!(due(&forecasts, nothing, now + REGRANTED).is_empty());
    assert_eq!(due(&forecasts, all, now + REGRANTED).len(), 1);
}
