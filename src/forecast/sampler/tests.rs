use super::*;
use crate::forecast::fixtures::{declared, spec, target};
use http::{
    Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::client::Body;
use kubewarm_api::model::InformerScope;
use std::{convert::Infallible, sync::atomic::AtomicU32, sync::atomic::Ordering};
use tower::service_fn;

/// A fake API server whose lists contain the items in the first field. The second field counts its
/// requests.
struct Holding(&'static str, Arc<AtomicU32>);

impl ClientProvider for Holding {
    fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
        let (items, requests) = (self.0, Arc::clone(&self.1));
        let service = service_fn(move |_: Request<Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let frame = r#""kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"}"#;
            let list = format!(r#"{{{frame},"items":[{items}]}}"#);
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(list.into_bytes()))))
        });
        Arc::new(kube::Client::new(service, "default"))
    }
}

async fn forecast_of(informers: usize, request_pause: Duration) -> (ProfileForecast, u32) {
    let requests = Arc::new(AtomicU32::new(0));
    let clients = Arc::new(Holding("", Arc::clone(&requests)));
    let sampler = ForecastSampler::new(clients, request_pause, NamespaceBuckets::default());
    let informers = (0..informers).map(|at| spec("pods", &format!("n{at}"))).collect();
    let forecast = sampler.forecast(&order(informers)).await;
    (forecast, requests.load(Ordering::Relaxed))
}

fn order(informers: Vec<InformerSpec>) -> ResolvedProfile {
    declared("a", "p", vec![target("pods", informers)])
}

/// A fake API server with the pods `a` and `b` in each namespace. Except in the namespace `n0`, `b`
/// has a protobuf field that no release has. The lists of the namespace `cut` lack their last byte.
/// The field counts the requests.
struct NewerApiServer(Arc<AtomicU32>);

impl ClientProvider for NewerApiServer {
    fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
        let requests = Arc::clone(&self.0);
        let service = service_fn(move |request: Request<Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let accept = request.headers()[ACCEPT].to_str().unwrap();
            let response = if accept.contains("protobuf") {
                let head = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x15\x0a\x03\x12\x017";
                let is_known = request.uri().path().contains("/n0/");
                let field = if is_known { b"\x1a\x00" } else { b"\x78\x01" };
                let pods = b"\x12\x05\x0a\x03\x0a\x01a\x12\x07\x0a\x03\x0a\x01b";
                let mut list = [&head[..], &pods[..], &field[..]].concat();
                if request.uri().path().contains("/cut/") {
                    list.pop();
                }
                Response::builder()
                    .header(CONTENT_TYPE, "application/vnd.kubernetes.protobuf")
                    .body(Body::from(list))
            } else {
                let frame =
                    r#""kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"}"#;
                let items = r#"{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}"#;
                Response::builder()
                    .body(Body::from(format!(r#"{{{frame},"items":[{items}]}}"#).into_bytes()))
            };
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        Arc::new(kube::Client::new(service, "default"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_unreadable_in_protobuf_costs_one_more_request_per_resource() {
    let requests = Arc::new(AtomicU32::new(0));
    let clients = Arc::new(NewerApiServer(Arc::clone(&requests)));
    let sampler = ForecastSampler::new(clients, Duration::ZERO, NamespaceBuckets::default());
    let mut sample = ProfileSample::of(&order(Vec::new()));
    // kubewarm removes the first namespace's sample, because it is in protobuf, and kubewarm reads
    // pods as JSON from the second namespace on.
    for (namespace, sent, sampled) in [("n0", 1, 2), ("n1", 3, 2), ("n2", 4, 4)] {
        let spec = spec("pods", namespace);
        let projection = SampleProjection::AsDeclared;
        let page = sampler.page(&spec, projection, FIRST, "", &mut sample).await.unwrap();
        assert_eq!((page.objects, requests.load(Ordering::Relaxed)), (2, sent));
        assert_eq!(sample.requests, REQUESTS - sent, "all requests count");
        assert_eq!(sample.sampled[&dictionary_key(&spec.key)].0, sampled);
    }
    let weights = sample.objects.measure();
    assert_eq!(weights.values().map(|usage| usage.objects).collect::<Vec<_>>(), [4]);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_page_is_an_error_and_keeps_the_sample_in_protobuf() {
    let requests = Arc::new(AtomicU32::new(0));
    let clients = Arc::new(NewerApiServer(Arc::clone(&requests)));
    let sampler = ForecastSampler::new(clients, Duration::ZERO, NamespaceBuckets::default());
    let mut sample = ProfileSample::of(&order(Vec::new()));
    let projection = SampleProjection::AsDeclared;
    let known = spec("pods", "n0");
    sampler.page(&known, projection, FIRST, "", &mut sample).await.unwrap();
    let cut = sampler.page(&spec("pods", "cut"), projection, FIRST, "", &mut sample).await;
    assert_eq!(cut.unwrap_err().reason(), FaultReason::Malformed);
    assert_eq!(requests.load(Ordering::Relaxed), 2, "the page is not requested in JSON");
    assert!(sample.json_resources.is_empty());
    assert!(sample.sampled[&dictionary_key(&known.key)].0 >= 2, "the sample is kept");
}

#[tokio::test]
async fn a_selector_ignores_namespaces_that_are_being_deleted() {
    let items = r#"{"metadata":{"name":"a"}},
        {"metadata":{"name":"b","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
    let clients = Arc::new(Holding(items, Arc::default()));
    let sampler = ForecastSampler::new(clients, Duration::ZERO, NamespaceBuckets::default());
    let key = InformerKey { scope: InformerScope::Cluster, ..spec("namespaces", "").key };
    let mut sample = ProfileSample::of(&order(Vec::new()));
    let names = sampler.names(&key, &mut sample).await.unwrap();
    assert_eq!(names, ["a".into()]);
}

#[tokio::test(start_paused = true)]
async fn a_forecast_takes_three_requests_per_informer() {
    let (forecast, requests) = forecast_of(10, Duration::ZERO).await;
    // Each of the 10 informers needs three requests. One more request reads the API server's
    // version.
    assert_eq!((requests, forecast.total.certainty), (31, PlanCertainty::Estimate));
}

#[tokio::test(start_paused = true)]
async fn a_forecast_stops_at_512_requests_and_reports_it() {
    let (forecast, requests) = forecast_of(600, Duration::ZERO).await;
    assert!(requests <= REQUESTS + 1, "{requests}");
    assert_eq!(
        (forecast.total.informers, forecast.total.certainty),
        (600, PlanCertainty::LowerBound)
    );
    assert!(forecast.caveats[0].contains("512 requests"), "{:?}", forecast.caveats);
    let began = Instant::now();
    let (_, requests) = forecast_of(600, Duration::from_secs(1)).await;
    assert!(began.elapsed() <= TIME + Duration::from_secs(4) && requests < 200, "{requests}");
}
