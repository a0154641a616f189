//! Tests of the reconciliation, which computes informers from profiles, with a simulated cluster.

mod access_lost;
mod accounts;
mod edits;
mod fit;
mod kept;
mod kinds;
mod limits;
mod outgrown;
mod planned;
mod scopes;
mod sharing;
mod watched;

use super::{
    cluster_view::ClusterView,
    operator_limits::OperatorLimits,
    profile_parser::{ClusterProfile, validate},
    quota::ProfileQuota,
    reconcile::{ReconcileResult, Reconciler},
};
use crate::{forecast::accepted, status::StoredStatus};
use jiff::Timestamp;
use kubewarm_api::{
    model::{
        AccountPolicyEnforcement, FaultReason, GroupResource, InformerKey, ListPolicy,
        OperatorScope, ProfileMode, ProfileRef, Refusal, RefusalReason, ResolvedProfile, Resource,
        ResourceInfo, UsageMeter, WatchedNamespaces,
    },
    v1alpha1::CacheProfile,
};
use kubewarm_cache::informer::{InformerFault, InformerPhase, InformerReport, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// A simulated cluster that serves configmaps, pods and nodes in v1, and the kinds that a test
/// adds. The informers in `synced` have completed their first lists.
struct Tables {
    kinds: BTreeMap<&'static str, (&'static str, bool)>,
    synced: BTreeSet<InformerKey>,
    faults: BTreeMap<InformerKey, FaultReason>,
    /// The consecutive failures of each informer with a fault.
    attempts: u32,
    lost: BTreeSet<InformerKey>,
    /// Informers that are requesting their number of objects.
    counting: BTreeSet<InformerKey>,
    names: Vec<&'static str>,
    /// If true, the stores of Namespaces are empty, as if kubewarm had purged them after the
    /// creation of the reports.
    is_emptied: bool,
    meters: Mutex<BTreeMap<InformerKey, Arc<UsageMeter>>>,
}

impl Default for Tables {
    fn default() -> Self {
        let kinds =
            [("configmaps", ("v1", true)), ("pods", ("v1", true)), ("nodes", ("v1", false))];
        Self {
            kinds: kinds.into(),
            synced: BTreeSet::new(),
            faults: BTreeMap::new(),
            lost: BTreeSet::new(),
            counting: BTreeSet::new(),
            attempts: 1,
            names: Vec::new(),
            is_emptied: false,
            meters: Mutex::default(),
        }
    }
}

impl Tables {
    fn cluster(&self) -> ClusterView<'_> {
        let known = self.synced.iter().chain(self.faults.keys()).chain(&self.lost);
        let known = known.chain(&self.counting);
        ClusterView {
            reports: known.map(|key| (key.clone(), self.report(key))).collect(),
            authors: AccountPolicyEnforcement::Enforced,
            kind: Box::new(|target| {
                Some(self.resolve(&target.resource, target.version.as_deref()))
            }),
            meter: Box::new(|key| self.meter(key)),
            names: Box::new(|_| {
                let names = self.names.iter().map(|&name| name.into());
                (!self.is_emptied).then(|| names.collect())
            }),
            planned_names: Box::new(|_| None),
        }
    }

    fn resolve(
        &self,
        resource: &GroupResource,
        version: Option<&str>,
    ) -> Result<ResourceInfo, Refusal> {
        let Some(&(preferred, is_namespaced)) = self.kinds.get(resource.resource()) else {
            return Err(Refusal::new(RefusalReason::UnknownResource, "resource: unknown"));
        };
        let resource = Resource::new(resource.clone(), version.unwrap_or(preferred)).unwrap();
        Ok(ResourceInfo { is_namespaced, ..ResourceInfo::new(resource, "Kind") })
    }

    fn report(&self, key: &InformerKey) -> InformerReport {
        let now = Timestamp::UNIX_EPOCH;
        let fault = self.faults.get(key).map(|&reason| InformerFault {
            reason,
            verb: Verb::List,
            message: "field label not supported".into(),
            at: now,
            since: now,
            attempts: self.attempts,
            next_retry: None,
        });
        InformerReport {
            phase: InformerPhase::Watching,
            synced_at: self.synced.contains(key).then_some(now),
            fault,
            lost_at: self.lost.contains(key).then_some(now),
            is_counting: self.counting.contains(key),
            ..InformerReport::queued(now)
        }
    }

    fn meter(&self, key: &InformerKey) -> Arc<UsageMeter> {
        let new = || Arc::new(UsageMeter::of_informer());
        Arc::clone(self.meters.lock().entry(key.clone()).or_insert_with(new))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "specs are written where they are used")]
fn profile(namespace: &str, name: &str, generation: i64, spec: Value) -> ClusterProfile {
    let resource: CacheProfile = serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile", "spec": spec,
        "metadata": {
            "namespace": namespace, "name": name, "generation": generation, "uid": "u",
        },
    }))
    .unwrap();
    let profile = ProfileRef { namespace: namespace.into(), name: name.into() };
    ClusterProfile {
        uid: "u".into(),
        created: None,
        generation,
        memory: 0,
        parsed: validate(&profile, &resource),
        profile,
        status: StoredStatus::default(),
        status_bytes: 0,
    }
}

fn target(resource: &str) -> Value {
    json!({"name": resource, "resource": resource})
}

fn targets(resources: &[&str]) -> Value {
    json!({"targets": resources.iter().map(|resource| target(resource)).collect::<Vec<_>>()})
}

fn operator_scope(namespace: &str, watched: WatchedNamespaces) -> OperatorScope {
    OperatorScope { namespace: namespace.into(), watched }
}

fn reconciler() -> Reconciler {
    reconciler_of(operator_scope("kubewarm-system", WatchedNamespaces::Everywhere))
}

fn reconciler_of(scope: OperatorScope) -> Reconciler {
    let limits = OperatorLimits::default();
    let quota = ProfileQuota::new(Arc::clone(&scope.namespace), limits);
    Reconciler::new(scope, limits, ListPolicy::default(), quota)
}

fn reconciler_within(limits: OperatorLimits) -> Reconciler {
    let scope = operator_scope("kubewarm-system", WatchedNamespaces::Everywhere);
    let quota = ProfileQuota::new(Arc::clone(&scope.namespace), limits);
    Reconciler::new(scope, limits, ListPolicy::default(), quota)
}

fn memory_limits(bytes: Option<u64>, namespace_bytes: Option<u64>) -> OperatorLimits {
    OperatorLimits { bytes, namespace_bytes, ..OperatorLimits::default() }
}

fn run(
    reconciler: &mut Reconciler,
    profiles: &[ClusterProfile],
    cluster: &Tables,
) -> ReconcileResult {
    reconciler.reconcile(profiles, &cluster.cluster(), None, Duration::ZERO)
}

fn desired(outcome: &ReconcileResult) -> Vec<String> {
    outcome.desired.keys().map(ToString::to_string).collect()
}

fn first(outcome: &ReconcileResult) -> &ResolvedProfile {
    &outcome.observed[0].resolved
}

fn refused(outcome: &ReconcileResult) -> &Refusal {
    first(outcome).targets[0].resolved.as_ref().unwrap().as_ref().unwrap_err()
}

/// Marks every desired informer as synced.
fn sync(cluster: &mut Tables, outcome: &ReconcileResult) {
    cluster.synced.extend(outcome.desired.keys().cloned());
}

#[test]
fn equal_informers_of_two_profiles_are_one_with_the_strictest_settings() {
    let a = profile("a", "one", 1, targets(&["pods"]));
    let mut spec = targets(&["pods"]);
    spec["freshness"] = json!({"maxStalenessSeconds": 30});
    spec["targets"][0]["priority"] = json!(900);
    let b = profile("a", "two", 1, spec);
    let outcome = run(&mut reconciler(), &[a, b], &Tables::default());
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    let (informer, mode) = outcome.desired.values().next().unwrap();
    assert_eq!(*mode, ProfileMode::Active);
    assert_eq!(informer.settings.max_staleness, Duration::from_secs(30));
    assert_eq!(
        &*informer.settings.list_slot_owner.profile.name, "two",
        "it has the higher priority"
    );
}

#[test]
fn a_deleted_profile_stops_the_informers_that_no_other_needs() {
    let mut reconciler = reconciler();
    let both = [
        profile("a", "one", 1, targets(&["pods", "configmaps"])),
        profile("a", "two", 1, targets(&["pods"])),
    ];
    assert_eq!(desired(&run(&mut reconciler, &both, &Tables::default())).len(), 2);
    let left = run(&mut reconciler, &both[1..], &Tables::default());
    assert_eq!(desired(&left), ["pods.v1 in namespace a"]);
}

#[test]
fn an_informer_watches_while_one_active_profile_declares_it() {
    let mut spec = targets(&["pods"]);
    spec["mode"] = json!("Paused");
    let paused = profile("a", "one", 1, spec);
    let outcome = run(&mut reconciler(), std::slice::from_ref(&paused), &Tables::default());
    assert_eq!(outcome.desired.values().next().unwrap().1, ProfileMode::Paused);
    let active = profile("a", "two", 1, targets(&["pods"]));
    for order in [[paused.clone(), active.clone()], [active, paused]] {
        let outcome = run(&mut reconciler(), &order, &Tables::default());
        assert_eq!(outcome.desired.values().next().unwrap().1, ProfileMode::Active);
    }
}

#[test]
fn a_planned_profile_starts_no_informer_and_is_unchanged_until_edited() {
    let mut reconciler = reconciler();
    let mut spec = targets(&["pods", "gone"]);
    spec["mode"] = json!("Plan");
    let (planned, cluster) = ([profile("a", "p", 1, spec)], Tables::default());
    let outcome = run(&mut reconciler, &planned, &cluster);
    assert_eq!(desired(&outcome), Vec::<String>::new());
    let again = run(&mut reconciler, &planned, &cluster);
    assert_eq!(first(&again), first(&outcome), "a changed profile would restart its forecast");
    assert_eq!(
        first(&outcome).targets[0].informers.len(),
        1,
        "the accepted target's informer is declared"
    );
    let names: Vec<_> = accepted(first(&outcome)).map(|target| &*target.name).collect();
    assert_eq!((names, first(&outcome).mode), (vec!["pods"], ProfileMode::Plan));

    let outcome =
        run(&mut reconciler, &[profile("a", "p", 2, targets(&["pods"]))], &Tables::default());
    assert_eq!((desired(&outcome).len(), first(&outcome).mode), (1, ProfileMode::Active));

    let mut spec = targets(&["pods"]);
    spec["mode"] = json!("Plan");
    let outcome = run(&mut reconciler, &[profile("a", "p", 3, spec)], &Tables::default());
    assert_eq!(desired(&outcome).len(), 0, "running informers stop");
}
