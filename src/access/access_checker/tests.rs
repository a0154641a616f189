use super::*;
use crate::access::{CheckSettings, MAX_ACCESS_AGE};
use kubewarm_api::model::{
    GroupResource, InformerScope, InformerSpec, ManagedFieldsPolicy, NamespaceCheckPolicy,
    ProfileRef, Projection, Resource,
};
use kubewarm_cache::{
    informer::{InformerMetrics, InformerPhase, InformerRegistry, InformerTiming, RegistryLimits},
    store::StoreCatalog,
};
use kubewarm_client::AccountClients;
use parking_lot::Mutex;
use std::{convert::Infallible, future::pending, sync::Weak};

fn informer() -> InformerSpec {
    let key = InformerKey::all(
        Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap(),
        InformerScope::Namespace("shop".into()),
        Projection::Metadata(ManagedFieldsPolicy::Drop),
    );
    InformerSpec::new(key, ProfileRef { namespace: "shop".into(), name: "p".into() })
}

/// If the API server permits `list` and rejects `watch`, the informer's own requests detect the
/// rejection late. The access check detects the rejection at once.
#[tokio::test]
async fn an_informer_that_starts_after_its_refusal_is_blocked() {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        pending::<Result<http::Response<kube::client::Body>, Infallible>>()
    });
    let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
    let silent = Client::new(silent, "default");
    let clients: Arc<dyn ClientProvider> =
        Arc::new(AccountClients::of(&nowhere, silent, NamespaceBuckets::default()));
    let bounds =
        RegistryLimits { lists: 1, namespace_quota: 100, buckets: NamespaceBuckets::default() };
    let (catalog, metrics) = (StoreCatalog::new(), Arc::new(InformerMetrics::new().unwrap()));
    let mut registry = InformerRegistry::new(
        Arc::clone(&clients),
        catalog,
        metrics,
        bounds,
        InformerTiming::default(),
    );
    let (spec, reports) = (informer(), registry.reports());
    let wanted =
        CheckSettings { namespace_check: NamespaceCheckPolicy::Skip, payer: "shop".into() };
    let wanted = Arc::new(BTreeMap::from([(spec.key.clone(), wanted)]));
    let mut checker = AccessChecker::new(CheckerDependencies {
        buckets: NamespaceBuckets::default(),
        clients,
        informers: Box::new(move || Some(Arc::clone(&wanted))),
        profile_informers: Arc::default(),
        reports: reports.clone(),
        max_access_age: MAX_ACCESS_AGE,
        count_check: Box::new(|_, _| {}),
    });
    checker.update_informers();
    let (sent, verbs) = (Instant::now(), vec![Verb::Watch]);
    let fault = RequestFault::new(FaultReason::Forbidden, "no watch");
    let refused = Ok(CheckResult::Access(AccessSignal::Refused { sent, verbs, fault }));
    checker.record_result(&CheckJob::AccessCheck(spec.key.clone()), sent, refused);

    let phase = || reports.get(&spec.key).unwrap().phase;
    for _ in 0..2 {
        registry.start(&spec);
        assert_eq!(phase(), InformerPhase::Queued);
        checker.visit_changed();
        assert_eq!(phase(), InformerPhase::Blocked);
        let changes = registry.changes().subscribe();
        checker.visit(&spec.key);
        assert!(!changes.has_changed().unwrap(), "no change is reported twice");
        registry.stop(&spec.key);
    }
}

#[derive(Default)]
struct ClientRecorder(Mutex<Vec<(Identity, Weak<Client>)>>);

impl ClientProvider for ClientRecorder {
    fn client_for(&self, identity: &Identity) -> Arc<Client> {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let client = Arc::new(Client::new(silent, "default"));
        self.0.lock().push((identity.clone(), Arc::downgrade(&client)));
        client
    }
}

#[tokio::test]
async fn an_identity_has_one_client_while_any_profile_uses_it() {
    let account =
        |name: &str| Identity::ServiceAccount { namespace: "shop".into(), name: name.into() };
    let (a, b) = (account("a"), account("b"));
    let made = Arc::new(ClientRecorder::default());
    let wanted = Arc::new(Mutex::new(None));
    let next = Arc::clone(&wanted);
    let mut checker = AccessChecker::new(CheckerDependencies {
        buckets: NamespaceBuckets::default(),
        clients: Arc::clone(&made) as Arc<dyn ClientProvider>,
        informers: Box::new(move || next.lock().clone()),
        profile_informers: Arc::default(),
        reports: InformerHandles::default(),
        max_access_age: MAX_ACCESS_AGE,
        count_check: Box::new(|_, _| {}),
    });
    let mut after = |identities: &[&Identity]| {
        let informers = identities.iter().map(|&identity| {
            let key = InformerKey { identity: identity.clone(), ..informer().key };
            (
                key,
                CheckSettings { namespace_check: NamespaceCheckPolicy::Skip, payer: "shop".into() },
            )
        });
        *wanted.lock() = Some(Arc::new(informers.collect()));
        checker.update_informers();
        let made = made.0.lock();
        let living = made.iter().filter(|(_, client)| client.strong_count() > 0);
        let living: Vec<_> = living.map(|(identity, _)| identity.clone()).collect();
        (made.len(), living)
    };
    assert_eq!(after(&[&a, &a]), (1, vec![a.clone()]));
    assert_eq!(after(&[&b, &a]), (2, vec![a.clone(), b.clone()]));
    assert_eq!(after(&[&b]), (2, vec![b.clone()]));
    assert_eq!(after(&[&a, &b]), (3, vec![b.clone(), a.clone()]), "identity a has a new client");
    assert_eq!(after(&[]), (3, vec![]));
}
