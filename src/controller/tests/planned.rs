use super::*;
use crate::forecast::{self, ForecastSampler, Forecaster, REQUEST_PAUSE};
use http::{Request, Response};
use kube::client::Body;
use kubewarm_api::model::Identity;
use kubewarm_client::{ClientProvider, NamespaceBuckets};
use std::{
    convert::Infallible,
    future::ready,
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio_util::sync::CancellationToken;

/// An API server with `namespaces` empty namespaces.
struct Empty {
    namespaces: Arc<AtomicUsize>,
    /// Number of times the namespaces were listed.
    lists: Arc<AtomicUsize>,
}

impl ClientProvider for Empty {
    fn client_for(&self, _: &Identity) -> Arc<kube::Client> {
        let (namespaces, lists) = (Arc::clone(&self.namespaces), Arc::clone(&self.lists));
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let count = if path == "/api/v1/namespaces" {
                lists.fetch_add(1, Ordering::Relaxed);
                namespaces.load(Ordering::Relaxed)
            } else {
                0
            };
            let item = |n| json!({"metadata": {"name": format!("n{n}"), "resourceVersion": "7"}});
            let items: Vec<_> = (0..count).map(item).collect();
            let body = json!({
                "kind": "List", "metadata": {"resourceVersion": "7"}, "items": items,
                "major": "1", "minor": "36",
            });
            ready(Ok::<_, Infallible>(Response::new(Body::from(body.to_string().into_bytes()))))
        });
        Arc::new(kube::Client::new(service, "default"))
    }
}

/// Reconciles once a second with `forecasts`. Returns for each second whether the profile's first
/// target is accepted.
async fn accepted_by_second(
    reconciler: &mut Reconciler,
    forecasts: &Forecaster,
    profiles: &[ClusterProfile],
    seconds: usize,
) -> Vec<bool> {
    let tables = Tables::default();
    let mut accepted = Vec::new();
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let planned_names = Box::new(|key: &InformerKey| forecasts.names(key));
        let cluster = ClusterView { planned_names, ..tables.cluster() };
        let outcome = reconciler.reconcile(profiles, &cluster, None, Duration::ZERO);
        let resolved: Vec<_> =
            outcome.observed.into_iter().map(|observed| observed.resolved).collect();
        forecasts.set_planned(resolved.iter().cloned());
        let target = &resolved[0].targets[0];
        let is_accepted = matches!(target.resolved, Some(Ok(_)));
        let selector = &target.namespaces.as_ref().expect("the selector's informer").key;
        assert!(is_accepted || forecasts.names(selector).is_none(), "target is refused");
        accepted.push(is_accepted);
    }
    accepted
}

#[tokio::test(start_paused = true)]
async fn a_planned_selector_of_too_many_namespaces_is_refused_until_fewer_match() {
    let mut spec = targets(&["pods", "configmaps"]);
    spec["mode"] = json!("Plan");
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    let profiles = [profile("kubewarm-system", "p", 1, spec)];
    let (namespaces, lists) = (Arc::new(AtomicUsize::new(2_049)), Arc::new(AtomicUsize::new(0)));
    let server = Empty { namespaces: Arc::clone(&namespaces), lists: Arc::clone(&lists) };
    let (forecasts, stop) = (Forecaster::default(), CancellationToken::new());
    let sampler =
        ForecastSampler::new(Arc::new(server), REQUEST_PAUSE, NamespaceBuckets::default());
    let forecasting = forecast::run(forecasts.clone(), sampler, || true, |_| false, stop.clone());
    let forecasting = tokio::spawn(forecasting);

    let mut reconciler = reconciler();
    let mut seen = accepted_by_second(&mut reconciler, &forecasts, &profiles, 120).await;
    let from = seen.iter().position(|accepted| !accepted).expect("the target is refused");
    assert!(from < 10 && !seen.split_off(from).contains(&true), "refused from second {from} on");
    let listed = lists.load(Ordering::Relaxed);
    assert!(listed < 10, "namespaces were listed {listed} times in two minutes");
    let forecast = forecasts.get(&profiles[0].profile).expect("the other target has a forecast");
    assert_eq!(
        forecast.targets.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["configmaps"]
    );

    namespaces.store(2, Ordering::Relaxed);
    let seen = accepted_by_second(&mut reconciler, &forecasts, &profiles, 660).await;
    assert_eq!(seen.last(), Some(&true), "accepted again within ten minutes");
    let forecast = forecasts.get(&profiles[0].profile).expect("a forecast");
    assert_eq!((forecast.targets.len(), forecast.total.informers), (2, 3));
    stop.cancel();
    forecasting.await.unwrap();
}
