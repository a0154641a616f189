use super::*;
use crate::{
    controller::{
        operator_limits::OperatorLimits, profile_parser::InvalidProfile, quota::ProfileQuota,
    },
    forecast::Forecaster,
    metrics::{BuildInfo, MetricsRegistry},
    status::StoredStatus,
};
use http::{Request, Response, Uri};
use kube::{Client, Config, client::Body};
use kubewarm_api::{
    model::{
        AccountPolicyEnforcement, DecodedObject, Delta, DeltaSink as _, Identity, ListPolicy,
        ProfileRef, Refusal, RefusalReason, Uid, ValidatedProfile, WatchedNamespaces,
    },
    v1alpha1::CacheProfile,
};
use kubewarm_cache::{
    informer::{InformerTiming, RegistryLimits},
    store::StoreCatalog,
};
use kubewarm_client::{AccountClients, Discovery, NamespaceBuckets};
use serde_json::json;
use std::{
    convert::Infallible,
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A controller whose API server never answers.
fn controller(watched: WatchedNamespaces) -> Controller {
    let answer = |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>();
    controller_of(watched, Client::new(tower::service_fn(answer), "default"))
}

fn controller_of(watched: WatchedNamespaces, client: Client) -> Controller {
    let metrics = MetricsRegistry::new(&BuildInfo::current()).unwrap();
    let catalog = StoreCatalog::new();
    let nowhere = Config::new(Uri::from_static("http://127.0.0.1:1"));
    let registry = InformerRegistry::new(
        Arc::new(AccountClients::of(&nowhere, client.clone(), NamespaceBuckets::default())),
        catalog.clone(),
        metrics.informers(),
        RegistryLimits { lists: 8, namespace_quota: 100, buckets: NamespaceBuckets::default() },
        InformerTiming::default(),
    );
    let sources = ControllerDependencies {
        catalog,
        discovery: Discovery::new(client),
        forecasts: Forecaster::default(),
        subject: watch::channel(None).1,
        authors: watch::channel(AccountPolicyEnforcement::Unknown).1,
        limits: OperatorLimits::default(),
        lists: ListPolicy::default(),
        quota: ProfileQuota::new("kubewarm-system".into(), OperatorLimits::default()),
    };
    let (operator_scope, metrics) = (
        OperatorScope { namespace: "kubewarm-system".into(), watched },
        metrics.operator().clone(),
    );
    Controller::new(sources, registry, operator_scope, metrics, Instant::now()).unwrap()
}

/// An API server without profiles. It counts complete lists in `lists`, does not answer watches,
/// and rejects all requests for namespace `closed`.
fn empty_server(lists: &Arc<AtomicUsize>) -> Client {
    let lists = Arc::clone(lists);
    let answer = move |request: Request<Body>| {
        let lists = Arc::clone(&lists);
        async move {
            if request.uri().path().contains("/closed/") {
                return Ok(Response::builder().status(403).body(Body::empty()).unwrap());
            }
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=1") {
                return pending().await;
            }
            let is_list = request.uri().path().ends_with("/cacheprofiles");
            lists.fetch_add((is_list && !query.contains("limit=")).into(), Ordering::Relaxed);
            // kubewarm also sends `GET /version` to this server. The field `minor` makes the same
            // response valid for this request.
            let metadata = json!({"resourceVersion": "5"});
            let answer = json!({"metadata": metadata, "items": [], "minor": "36"});
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

fn profile() -> ClusterProfile {
    let resource: CacheProfile = serde_json::from_value(json!({
        "metadata": {"namespace": "a", "name": "p", "uid": "u", "generation": 1},
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
        "spec": {"targets": [{"name": "pods", "resource": "pods"}]},
    }))
    .unwrap();
    ClusterProfile {
        profile: ProfileRef { namespace: "a".into(), name: "p".into() },
        uid: "u".into(),
        created: None,
        generation: 1,
        memory: 100,
        parsed: Ok(Arc::new(ValidatedProfile::parse(&resource).unwrap())),
        status: StoredStatus::default(),
        status_bytes: 0,
    }
}

#[tokio::test]
async fn a_relist_of_the_profiles_forgets_no_profile() {
    let mut controller = controller(WatchedNamespaces::Everywhere);
    controller.reconcile();
    assert_eq!(
        controller.informers.running_informers().len(),
        1,
        "only the informer of profiles runs"
    );
    let mut profile = profile();
    let seen = |controller: &mut Controller, profile: &ClusterProfile| {
        let cluster = controller.sources.snapshot(&controller.informers.reports(), None);
        let profiles = std::slice::from_ref(profile);
        let outcome = controller.reconciler.reconcile(profiles, &cluster, None, Duration::ZERO);
        outcome.observed[0].resolved.targets.len()
    };
    assert_eq!(seen(&mut controller, &profile), 1);
    let declarations = Arc::new(Declarations::new(Vec::new()));
    controller.declarations.send_replace(Some(Arc::clone(&declarations)));

    // The store of profiles is incomplete, as after a purge, so the controller does not replace the
    // profiles that it has sent.
    controller.reconcile();
    assert!(Arc::ptr_eq(controller.declarations.borrow().as_ref().unwrap(), &declarations));
    profile.generation = 2;
    let refusal = Refusal::new(RefusalReason::InvalidSpec, "no");
    profile.parsed = Err(InvalidProfile { refusal, identity: Some(Identity::Operator) });
    assert_eq!(seen(&mut controller, &profile), 1, "generation 1 keeps running");
}

#[tokio::test]
async fn each_watched_namespace_has_an_informer_of_profiles() {
    let names = ["a", "b"].map(Arc::from);
    let mut controller = controller(WatchedNamespaces::Namespaces(names.into()));
    controller.reconcile();
    let running: Vec<_> = controller.informers.running_informers().into_keys().collect();
    assert_eq!(running[..], controller.profile_informers()[..]);
    assert_eq!(running.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_profiles_cannot_be_listed_delays_no_other() {
    let names = ["closed", "open"].map(Arc::from);
    let server = empty_server(&Arc::default());
    let mut controller = controller_of(WatchedNamespaces::Namespaces(names.into()), server);
    controller.reconcile();
    assert!(controller.read_profiles().is_none(), "no list has a response yet");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(controller.read_profiles().map(|all| all.len()), Some(0));
}

#[tokio::test(start_paused = true)]
async fn profiles_are_relisted_for_left_out_ones_at_most_every_two_minutes() {
    let lists = Arc::new(AtomicUsize::new(0));
    let mut controller = controller_of(WatchedNamespaces::Everywhere, empty_server(&lists));
    let key = controller.profile_informers()[0].clone();
    let store = StoreCatalog::new().open(&key, &BTreeSet::new());
    let mut sink = controller.sources.quota.guard(store, &key);
    let mut put = |name: usize, size: usize| {
        sink.apply(Delta::Upsert(DecodedObject {
            namespace: "a".into(),
            name: name.to_string().into(),
            uid: Uid::parse("u"),
            version: None,
            body: json!({"spec": "x".repeat(size)}).to_string().as_bytes(),
        }));
    };
    let listed = async |controller: &mut Controller| {
        controller.reconcile();
        tokio::time::sleep(Duration::from_millis(1)).await;
        lists.swap(0, Ordering::Relaxed)
    };
    assert_eq!(listed(&mut controller).await, 1);
    (0..=100).for_each(|name| put(name, 10));
    assert_eq!(listed(&mut controller).await, 0, "no spec has been freed");
    put(7, 5);
    assert_eq!(listed(&mut controller).await, 1);
    put(100, 10);
    put(7, 3);
    tokio::time::advance(Duration::from_secs(119)).await;
    assert_eq!(listed(&mut controller).await, 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(listed(&mut controller).await, 1);
    tokio::time::advance(READMIT).await;
    assert_eq!(listed(&mut controller).await, 0);
}

#[tokio::test]
async fn receivers_are_notified_only_if_the_controller_decides_something_else() {
    let declarations = watch::Sender::new(None);
    let mut receiver = declarations.subscribe();
    let mut controller = controller(WatchedNamespaces::Everywhere);
    controller.declarations = declarations;
    let mut send = |controller: &mut Controller, profiles: &[ClusterProfile], now| {
        let cluster = controller.sources.snapshot(&controller.informers.reports(), None);
        let outcome = controller.reconciler.reconcile(profiles, &cluster, None, now);
        controller.send(outcome.observed);
        receiver.has_changed().unwrap() && receiver.borrow_and_update().is_some()
    };
    let valid = profile();
    let refusal = Refusal::new(RefusalReason::InvalidSpec, "no");
    let parsed = Err(InvalidProfile { refusal, identity: None });
    let other = ProfileRef { namespace: "b".into(), name: "p".into() };
    let invalid = ClusterProfile { profile: other, parsed, ..profile() };
    let profiles = [valid, invalid];
    assert!(send(&mut controller, &[], Duration::ZERO), "the first list, which is empty");
    assert!(send(&mut controller, &profiles, Duration::ZERO));
    assert!(!send(&mut controller, &profiles, Duration::from_secs(1)), "time alone is no change");
    assert!(send(&mut controller, &profiles[..1], Duration::from_secs(2)));
}
