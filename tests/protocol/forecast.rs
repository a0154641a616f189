//! Compares forecasts with the duration of real lists. The scripted API server has known delays,
//! and the clock is paused, so that the machine's load does not matter.

use crate::{
    engine::informer_in,
    reply::{end_bookmark, event, object},
};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use kubewarm::forecast::ForecastSampler;
use kubewarm_api::model::{
    Identity, InformerSpec, LabelRequirement, LabelSelector, LabelSelectorOperator, ListStrategy,
    ResolvedProfile, ResolvedTarget, ResourceInfo, TargetRequirement, ValidatedProfile,
};
use kubewarm_cache::{
    informer::{InformerMetrics, InformerRegistry, InformerTiming, RegistryLimits},
    store::StoreCatalog,
};
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use serde_json::json;
use std::{collections::BTreeMap, convert::Infallible, ops::Range, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Objects per chunk of a response.
const CHUNK: usize = 50;

/// An API server with a fixed delay before each response and for each object of a list. Metadata of
/// an object takes a quarter of the delay. A namespace `n-7-x` has 7 objects.
#[derive(Clone, Copy, Debug)]
struct Slow {
    answer: Duration,
    object: Duration,
}

impl ClientProvider for Slow {
    fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
        let server = *self;
        let service = tower::service_fn(move |request: Request<Body>| async move {
            sleep(server.answer).await;
            let steps = server.body(&request).then(|(pause, text)| async move {
                sleep(pause).await;
                Full::new(Bytes::from(text)).frame().await.unwrap()
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(steps.boxed())))
        });
        Arc::new(kube::Client::new(service, "default"))
    }
}

impl Slow {
    /// The chunks of a response, with the delay of each.
    fn body(self, request: &Request<Body>) -> BoxStream<'static, (Duration, String)> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
        let at_once = |text: String| stream::iter([(Duration::ZERO, text)]);
        if path == "/version" {
            return at_once(r#"{"major":"1","minor":"36"}"#.to_owned()).boxed();
        }
        let namespace = path.split('/').nth(4).unwrap();
        let all: usize = namespace.split('-').nth(1).unwrap().parse().unwrap();
        let accept = request.headers().get(http::header::ACCEPT).unwrap();
        let is_metadata = accept.to_str().unwrap().contains("PartialObjectMetadata");
        let each = if is_metadata { self.object / 4 } else { self.object };
        if query.contains_key("sendInitialEvents") {
            let line = |at| event("ADDED", item(at)) + "\n";
            let end = at_once(end_bookmark(7) + "\n").chain(stream::pending());
            return pieces(0..all, each, line).chain(end).boxed();
        }
        if query.contains_key("watch") {
            return stream::pending().boxed();
        }
        let from: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
        let limit: usize = query.get("limit").map_or(all, |limit| limit.parse().unwrap());
        let to = all.min(from + limit);
        let left = match all - to {
            // As a real API server, this one does not return the number of remaining items for a
            // list with a selector.
            left if query.contains_key("labelSelector") || left == 0 => String::new(),
            left => format!(r#","remainingItemCount":{left}"#),
        };
        let more = if to < all { format!(r#","continue":"{to}"{left}"#) } else { String::new() };
        let head = format!(
            r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"7"{more}}},"items":["#
        );
        let line = move |at| if at == from { item(at) } else { format!(",{}", item(at)) };
        let items = pieces(from..to, each, line);
        at_once(head).chain(items).chain(at_once("]}".to_owned())).boxed()
    }
}

fn item(at: usize) -> String {
    object(&format!("o{at:06}"), u32::try_from(at).unwrap(), 7)
}

/// The objects in chunks, each with the delay of its objects.
fn pieces(
    numbers: Range<usize>,
    each: Duration,
    text: impl Fn(usize) -> String + Send + 'static,
) -> impl futures::Stream<Item = (Duration, String)> + Send {
    let numbers: Vec<_> = numbers.collect();
    let piece = move |some: &[usize]| {
        let pause = each * u32::try_from(some.len()).unwrap();
        (pause, some.iter().map(|&at| text(at)).collect())
    };
    stream::iter(numbers.chunks(CHUNK).map(piece).collect::<Vec<_>>())
}

/// A profile with one target, which needs these informers.
fn declared(informers: &[InformerSpec]) -> ResolvedProfile {
    let profile = serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
        "metadata": {"namespace": "a", "name": "p", "uid": "u", "generation": 1},
        "spec": {"mode": "Plan", "targets": [{"name": "x", "resource": "pods"}]},
    }))
    .unwrap();
    let target = ResolvedTarget {
        name: "pods".into(),
        requirement: TargetRequirement::Required,
        declared_as: "pods".into(),
        resolved: Some(Ok(ResourceInfo::new(informers[0].key.resource.clone(), "Pod"))),
        informers: informers.into(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    };
    ResolvedProfile::of(&ValidatedProfile::parse(&profile).unwrap(), vec![target])
}

/// The forecast duration and the measured duration of the lists, in seconds.
async fn seconds(server: Slow, informers: &[InformerSpec], lists: usize) -> (f64, f64) {
    let clients: Arc<dyn ClientProvider> = Arc::new(server);
    let mut informers = informers.to_vec();
    for informer in &mut informers {
        informer.settings.list_slot_owner.max_concurrent_lists = lists;
    }
    let sampler =
        ForecastSampler::new(Arc::clone(&clients), Duration::ZERO, NamespaceBuckets::default());
    let plan = sampler.forecast(&declared(&informers)).await.total.status();
    let milliseconds = u64::try_from(plan.time_to_warm_milliseconds.unwrap()).unwrap();
    let forecast = Duration::from_millis(milliseconds).as_secs_f64();

    let (catalog, metrics) = (StoreCatalog::new(), Arc::new(InformerMetrics::new().unwrap()));
    let bounds =
        RegistryLimits { lists: 100, namespace_quota: 100, buckets: NamespaceBuckets::default() };
    let mut engine =
        InformerRegistry::new(clients, catalog, metrics, bounds, InformerTiming::default());
    let (reports, began) = (engine.reports(), Instant::now());
    for informer in &informers {
        engine.start(informer);
    }
    let is_warm = |informer: &InformerSpec| {
        reports.get(&informer.key).is_some_and(|report| report.warmed.is_some())
    };
    while !informers.iter().all(is_warm) {
        sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_mins(5), "{server:?}");
    }
    let took = began.elapsed().as_secs_f64();
    engine.shut_down().await;
    (forecast, took)
}

fn pods(objects: usize, name: &str) -> InformerSpec {
    informer_in("pods", &format!("n-{objects}-{name}"))
}

#[tokio::test(start_paused = true)]
async fn a_forecast_matches_the_measured_seconds() {
    let millis = Duration::from_millis;
    let near = Slow { answer: millis(50), object: Duration::from_micros(500) };
    let busy = Slow { answer: millis(20), object: millis(1) };
    let far = Slow { answer: millis(400), object: Duration::from_micros(100) };
    let one = |strategy| {
        let mut informer = pods(12_000, "a");
        informer.settings.lists.strategy = strategy;
        vec![informer]
    };
    let mut selected = pods(8_000, "a");
    let labels = LabelRequirement::new("a", LabelSelectorOperator::In, ["b"]).unwrap();
    selected.key.labels = LabelSelector::new([labels]);
    let many = (0..40).map(|n| pods(100 + 37 * n, &n.to_string())).collect();
    let small = (0..80).map(|n| pods(5, &n.to_string())).collect();
    let all: [(&str, Slow, Vec<InformerSpec>, usize); 6] = [
        ("one whole list", near, one(ListStrategy::Auto), 4),
        ("one in pages", near, one(ListStrategy::PagedList), 4),
        ("one as a stream", near, one(ListStrategy::WatchList), 4),
        ("many, four at a time", busy, many, 4),
        ("many small ones, slow responses", far, small, 4),
        ("a list with a selector", near, vec![selected], 1),
    ];
    for (what, server, informers, lists) in all {
        let (forecast, took) = seconds(server, &informers, lists).await;
        assert!(took > 3.0, "{what}: {took} s are too short for a comparison");
        // A busy machine can lengthen only the measured time, so the lower bound is loose.
        let ratio = forecast / took;
        assert!((0.1..=2.0).contains(&ratio), "{what}: forecast {forecast} s, measured {took} s");
    }
}
