//! The controller's loop: when it reconciles, and how it applies the result.

use super::{
    cluster_view::ControllerSources,
    profile_parser::{ClusterProfile, ProfileParser, own_informers},
    profile_receiver::ProfileReceiver,
    reconcile::{ReconcileResult, Reconciler},
};
use crate::{metrics::OperatorMetrics, status::ObservedProfile};
use kubewarm_api::model::{
    BudgetCharge, InformerKey, InformerSpec, OperatorScope, ProfileMode, ValidationError,
};
use kubewarm_cache::informer::{InformerRegistry, RelistReason, plan};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Minimum delay between reconciliations, so that one covers many changes, for instance at the end
/// of the first sync.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Pause after a reconciliation, as a multiple of its duration. It limits the loop to about 10% of
/// a core.
const REST: u32 = 10;
/// Maximum delay between reconciliations. Some changes send no notification, for instance a fault
/// of an informer that becomes a refusal of its target.
const RESYNC: Duration = Duration::from_secs(10);
/// Minimum interval between relists that only re-admit left-out profiles. A tenant can trigger them
/// by creating and deleting profiles, and each one transfers all profiles.
const READMIT: Duration = Duration::from_mins(2);

pub struct Controller {
    sources: ControllerSources,
    informers: InformerRegistry,
    /// The profiles as they run; see [`ProfileReceiver`].
    declarations: watch::Sender<Option<Arc<Vec<ObservedProfile>>>>,
    reconciler: Reconciler,
    metrics: OperatorMetrics,
    started: Instant,
    /// The informers of the profiles themselves.
    own: Vec<InformerSpec>,
    /// Their charges to the process's budget, which last as long as the controller. No limit pauses
    /// their lists.
    _own_charges: Vec<BudgetCharge>,
    /// The ones of `own` that have been listed at least once.
    listed: BTreeSet<InformerKey>,
    /// When they were last relisted to re-admit left-out profiles.
    readmitted: Option<Instant>,
    intake: ProfileParser,
}

impl Controller {
    /// Creates the controller. It starts no informer before the first reconciliation.
    ///
    /// # Errors
    ///
    /// Never fails in practice, because the names of its own informers are constants.
    pub fn new(
        sources: ControllerSources,
        informers: InformerRegistry,
        home: OperatorScope,
        metrics: OperatorMetrics,
        started: Instant,
    ) -> Result<Self, ValidationError> {
        let own = own_informers(&home.watched)?;
        let reconciler =
            Reconciler::new(home, sources.limits, sources.lists, sources.admission.clone());
        let charge = |informer: &InformerSpec| {
            BudgetCharge::new(
                sources.catalog.gauge(&informer.key),
                Arc::clone(reconciler.process()),
            )
        };
        Ok(Self {
            informers,
            declarations: watch::Sender::default(),
            _own_charges: own.iter().map(charge).collect(),
            own,
            listed: BTreeSet::new(),
            readmitted: None,
            reconciler,
            metrics,
            started,
            intake: ProfileParser::default(),
            sources,
        })
    }

    /// Returns a receiver that remains valid after the controller stops.
    #[must_use]
    pub fn declarations(&self) -> ProfileReceiver {
        self.declarations.subscribe()
    }

    /// Returns the keys of the informers of the profiles themselves.
    #[must_use]
    pub fn own(&self) -> Arc<[InformerKey]> {
        self.own.iter().map(|informer| informer.key.clone()).collect()
    }

    /// Runs until `stop`. Returns the informers, so that the caller can stop them.
    pub async fn run(mut self, stop: CancellationToken) -> InformerRegistry {
        let mut changes = self.informers.changes().subscribe();
        let mut served = self.sources.discovery.served();
        let mut subject = self.sources.subject.clone();
        let mut forecasts = self.sources.forecasts.changes();
        loop {
            let began = Instant::now();
            self.reconcile();
            let took = began.elapsed();
            self.metrics.observe_reconcile(took);
            let rest = (took * REST).max(DEBOUNCE);
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                () = tokio::time::sleep(rest) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                Ok(()) = changes.changed() => {}
                Ok(()) = served.changed() => {}
                Ok(()) = subject.changed() => {}
                Ok(()) = forecasts.changed() => {}
                () = tokio::time::sleep(RESYNC) => {}
            }
            changes.mark_unchanged();
        }
    }

    /// Starts and stops informers to match the profiles, and publishes the declarations.
    ///
    /// Nothing changes before the profiles have been listed, and while they are relisted after an
    /// etcd restore.
    pub fn reconcile(&mut self) {
        self.readmit();
        let served = self.sources.discovery.served().borrow().clone();
        let running = self.informers.running_informers();
        let profiles = self.profiles();
        if profiles.is_none() && !running.is_empty() {
            // Without the profiles, the controller cannot decide which last valid specs are still
            // needed.
            return;
        }
        let subject = self.sources.subject.borrow().clone();
        let cluster = self.sources.cluster(&self.informers.reports(), served.as_deref());
        let found = profiles.as_deref().unwrap_or_default();
        let outcome =
            self.reconciler.reconcile(found, &cluster, subject.as_ref(), self.started.elapsed());
        let ReconcileResult {
            mut desired,
            mut observed,
            exceeded,
            is_kind_missing,
            is_discovery_behind,
        } = outcome;
        let planned = observed.iter().map(|found| &found.declared);
        let planned = planned.filter(|declared| declared.mode == ProfileMode::Plan).cloned();
        self.sources.forecasts.order(planned);
        for found in &mut observed {
            found.plan = self.sources.forecasts.get(&found.declared.profile);
        }
        for overrun in exceeded {
            self.metrics.count_limit_rejection(overrun.measure);
        }
        for own in &self.own {
            desired.insert(own.key.clone(), (own.clone(), ProfileMode::Active));
        }
        self.informers.apply(plan(&desired, &running));
        self.sources.discovery.set_hurried(is_kind_missing);
        if is_discovery_behind {
            self.sources.discovery.refresh();
        }
        if profiles.is_some() && served.is_some() {
            self.declarations.send_replace(Some(Arc::new(observed)));
        }
    }

    /// Relists the profiles if specs were freed after others had been left out.
    fn readmit(&mut self) {
        let is_early = self.readmitted.is_some_and(|at| at.elapsed() < READMIT);
        if !is_early && self.sources.admission.take_freed() {
            self.readmitted = Some(Instant::now());
            for informer in &self.own {
                self.informers.relist(&informer.key, RelistReason::Readmitted);
            }
        }
    }

    /// Returns every profile, or `None` until the first lists have been answered and one succeeded.
    ///
    /// A namespace whose profiles cannot be listed delays others only until its first list is
    /// answered.
    fn profiles(&mut self) -> Option<Vec<ClusterProfile>> {
        let reports = self.informers.reports();
        let (mut tables, mut kept) = (Vec::new(), BTreeSet::new());
        for InformerSpec { key, .. } in &self.own {
            let report = reports.get(key)?;
            if report.is_warm() {
                tables.push(self.sources.catalog.reader(key)?);
                self.listed.insert(key.clone());
            } else if self.listed.contains(key) {
                // Profiles that cannot be read now may still exist.
                kept.extend(key.extent.namespace().map(Arc::from));
            } else if report.fault.is_none() {
                return None;
            }
        }
        (!tables.is_empty()).then(|| self.intake.read(&tables, &kept))
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("own", &self.own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controller::{
            admission::ProfileAdmission, operator_limits::OperatorLimits,
            profile_parser::InvalidProfile,
        },
        forecast::Forecaster,
        metrics::{BuildInfo, ProcessMetrics},
    };
    use http::{Request, Response, Uri};
    use kube::{Client, Config, client::Body};
    use kubewarm_api::{
        model::{
            AccountPolicyState, DecodedObject, Delta, DeltaSink as _, Identity, ListPolicy,
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
        let metrics = ProcessMetrics::new(&BuildInfo::current()).unwrap();
        let catalog = StoreCatalog::new();
        let nowhere = Config::new(Uri::from_static("http://127.0.0.1:1"));
        let registry = InformerRegistry::new(
            Arc::new(AccountClients::of(&nowhere, client.clone(), NamespaceBuckets::default())),
            catalog.clone(),
            metrics.informers(),
            RegistryLimits { lists: 8, namespace_quota: 100, buckets: NamespaceBuckets::default() },
            InformerTiming::default(),
        );
        let sources = ControllerSources {
            catalog,
            discovery: Discovery::new(client),
            forecasts: Forecaster::default(),
            subject: watch::channel(None).1,
            authors: watch::channel(AccountPolicyState::Unknown).1,
            limits: OperatorLimits::default(),
            lists: ListPolicy::default(),
            admission: ProfileAdmission::new("kubewarm-system".into()),
        };
        let (home, metrics) = (
            OperatorScope { namespace: "kubewarm-system".into(), watched },
            metrics.operator().clone(),
        );
        Controller::new(sources, registry, home, metrics, Instant::now()).unwrap()
    }

    /// An API server without profiles. It counts complete lists, does not answer watches, and
    /// refuses all requests for namespace `closed`.
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
                // The response also serves requests for `/version`.
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
            spec_bytes: 100,
            parsed: Ok(Arc::new(ValidatedProfile::parse(&resource).unwrap())),
            status: None,
            status_bytes: 0,
        }
    }

    #[tokio::test]
    async fn a_relist_of_the_profiles_forgets_no_profile() {
        let mut controller = controller(WatchedNamespaces::Everywhere);
        controller.reconcile();
        assert_eq!(controller.informers.running_informers().len(), 1, "the informer of profiles");
        let mut found = profile();
        let seen = |controller: &mut Controller, found: &ClusterProfile| {
            let cluster = controller.sources.cluster(&controller.informers.reports(), None);
            let found = std::slice::from_ref(found);
            let outcome = controller.reconciler.reconcile(found, &cluster, None, Duration::ZERO);
            outcome.observed[0].declared.targets.len()
        };
        assert_eq!(seen(&mut controller, &found), 1);
        let declared = Arc::new(Vec::new());
        controller.declarations.send_replace(Some(Arc::clone(&declared)));

        // The profile informer's store is not synced, as after a purge.
        controller.reconcile();
        assert!(Arc::ptr_eq(controller.declarations.borrow().as_ref().unwrap(), &declared));
        found.generation = 2;
        let refusal = Refusal::new(RefusalReason::InvalidSpec, "no");
        found.parsed = Err(InvalidProfile { refusal, identity: Some(Identity::Operator) });
        assert_eq!(seen(&mut controller, &found), 1, "generation 1 keeps running");
    }

    #[tokio::test]
    async fn each_watched_namespace_has_an_informer_of_profiles() {
        let names = ["a", "b"].map(Arc::from);
        let mut controller = controller(WatchedNamespaces::Namespaces(names.into()));
        controller.reconcile();
        let running: Vec<_> = controller.informers.running_informers().into_keys().collect();
        assert_eq!(running[..], controller.own()[..]);
        assert_eq!(running.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_profiles_cannot_be_listed_delays_no_other() {
        let names = ["closed", "open"].map(Arc::from);
        let server = empty_server(&Arc::default());
        let mut controller = controller_of(WatchedNamespaces::Namespaces(names.into()), server);
        controller.reconcile();
        assert!(controller.profiles().is_none(), "no list has been answered");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(controller.profiles().map(|all| all.len()), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn profiles_are_relisted_for_left_out_ones_at_most_every_two_minutes() {
        let lists = Arc::new(AtomicUsize::new(0));
        let mut controller = controller_of(WatchedNamespaces::Everywhere, empty_server(&lists));
        let key = controller.own()[0].clone();
        let table = StoreCatalog::new().open(&key, &BTreeSet::new());
        let mut sink = controller.sources.admission.guard(table, &key);
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
            // The paused clock advances only when the informer is idle.
            tokio::time::sleep(Duration::from_millis(1)).await;
            lists.swap(0, Ordering::Relaxed)
        };
        assert_eq!(listed(&mut controller).await, 1);
        (0..=100).for_each(|name| put(name, 10));
        assert_eq!(listed(&mut controller).await, 0, "nothing has been freed");
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
}
