//! Profiles in, cells and declarations out, against a cluster of tables.

mod access_lost;
mod accounts;
mod edits;
mod limits;
mod outgrown;
mod sharing;
mod watched;

use super::{
    fit::MemoryBounds,
    intake::Found,
    reconcile::{Outcome, Reconciler},
    resolve::Cluster,
};
use crate::{
    api::CacheProfile,
    informer::{CellFault, CellReport, Loss, Phase, Verb},
    model::{
        AuthorCheck, CellKey, Declared, Gauge, GroupResource, Home, Mode, NamespaceCheck,
        ProfileRef, Reason, Refusal, RefusalReason, ResolvedTarget, Resource, Total,
        ValidatedProfile, Watched,
    },
};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Serves configmaps and pods in v1, nodes, and whatever a test adds; cells are synced if listed.
struct Tables {
    kinds: BTreeMap<&'static str, (&'static str, bool)>,
    synced: BTreeSet<CellKey>,
    faults: BTreeMap<CellKey, Reason>,
    lost: BTreeSet<CellKey>,
    names: Vec<&'static str>,
    gauges: Mutex<BTreeMap<CellKey, Arc<Gauge>>>,
    total: Arc<Total>,
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
            names: Vec::new(),
            gauges: Mutex::default(),
            total: Arc::default(),
        }
    }
}

impl Cluster for Tables {
    fn resolve(
        &self,
        of: &GroupResource,
        version: Option<&str>,
    ) -> Option<Result<ResolvedTarget, Refusal>> {
        let Some(&(preferred, namespaced)) = self.kinds.get(of.resource()) else {
            return Some(Err(Refusal::new(RefusalReason::UnknownResource, "resource: unknown")));
        };
        let resource = Resource::new(of.clone(), version.unwrap_or(preferred)).unwrap();
        Some(Ok(ResolvedTarget { resource, kind: "Kind".into(), namespaced, verbs: [].into() }))
    }

    fn report(&self, key: &CellKey) -> Option<CellReport> {
        let now = Timestamp::UNIX_EPOCH;
        let fault = self.faults.get(key).map(|&reason| CellFault {
            reason,
            verb: Verb::List,
            message: "field label not supported".into(),
            at: now,
            since: now,
            attempts: 1,
            next_retry: None,
        });
        Some(CellReport {
            phase: Phase::Watching,
            synced_at: self.synced.contains(key).then_some(now),
            fault,
            lost: self.lost.contains(key).then(|| Loss { at: Instant::now(), time: now }),
            ..CellReport::queued(now)
        })
    }

    fn authors(&self) -> AuthorCheck {
        AuthorCheck::Enforced
    }

    fn gauge(&self, key: &CellKey) -> Arc<Gauge> {
        let new = || Arc::new(Gauge::new(Arc::clone(&self.total)));
        Arc::clone(self.gauges.lock().entry(key.clone()).or_insert_with(new))
    }

    fn names(&self, key: &CellKey) -> Option<Vec<Arc<str>>> {
        self.synced.contains(key).then(|| self.names.iter().map(|&name| name.into()).collect())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "specs are written where they are used")]
fn profile(namespace: &str, name: &str, generation: i64, spec: Value) -> Found {
    let resource: CacheProfile = serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile", "spec": spec,
        "metadata": {
            "namespace": namespace, "name": name, "generation": generation, "uid": "u",
        },
    }))
    .unwrap();
    let parsed = ValidatedProfile::parse(&resource).map(Arc::new);
    Found {
        profile: ProfileRef { namespace: namespace.into(), name: name.into() },
        uid: "u".into(),
        created: None,
        generation,
        parsed: parsed.map_err(|e| Refusal::new(RefusalReason::InvalidSpec, e.to_string())),
        status: None,
    }
}

fn target(resource: &str) -> Value {
    json!({"name": resource, "resource": {"resource": resource}})
}

fn targets(resources: &[&str]) -> Value {
    json!({"targets": resources.iter().map(|resource| target(resource)).collect::<Vec<_>>()})
}

fn home(namespace: &str, watched: Watched) -> Home {
    Home { namespace: namespace.into(), watched }
}

fn reconciler() -> Reconciler {
    reconciler_of(home("kubewarm-system", Watched::Everywhere))
}

/// Without limits of the process.
fn reconciler_of(home: Home) -> Reconciler {
    Reconciler::new(home, MemoryBounds::default(), Arc::default())
}

fn run(reconciler: &mut Reconciler, profiles: &[Found], cluster: &Tables) -> Outcome {
    reconciler.reconcile(profiles, cluster, None, Duration::ZERO)
}

fn desired(outcome: &Outcome) -> Vec<String> {
    outcome.desired.keys().map(ToString::to_string).collect()
}

fn first(outcome: &Outcome) -> &Declared {
    &outcome.observed[0].declared
}

fn refused(outcome: &Outcome) -> &Refusal {
    first(outcome).targets[0].resolved.as_ref().unwrap().as_ref().unwrap_err()
}

/// Marks every desired cell as synced.
fn sync(cluster: &mut Tables, outcome: &Outcome) {
    cluster.synced.extend(outcome.desired.keys().cloned());
}

#[test]
fn equal_cells_of_two_profiles_are_one_with_the_strictest_wishes() {
    let a = profile("a", "one", 1, targets(&["pods"]));
    let mut spec = targets(&["pods"]);
    spec["freshness"] = json!({"maxStalenessSeconds": 30});
    spec["targets"][0]["priority"] = json!(900);
    let b = profile("a", "two", 1, spec);
    let outcome = run(&mut reconciler(), &[a, b], &Tables::default());
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    let (cell, mode) = outcome.desired.values().next().unwrap();
    assert_eq!(*mode, Mode::Active);
    assert_eq!(cell.tuning.max_staleness, Duration::from_secs(30));
    assert_eq!(&*cell.tuning.member_of.profile.name, "two", "the higher priority counts");
}

#[test]
fn a_deleted_profile_takes_what_no_other_needs() {
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
fn a_profile_looks_beyond_its_namespace_only_from_the_operators() {
    let scopes = [
        json!({"type": "Namespaces", "namespaces": ["a", "b"]}),
        json!({"type": "AllNamespaces"}),
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}}),
    ];
    for scope in scopes {
        let mut spec = targets(&["pods"]);
        spec["targets"][0]["scope"] = scope.clone();
        let outcome =
            run(&mut reconciler(), &[profile("a", "p", 1, spec.clone())], &Tables::default());
        assert_eq!(refused(&outcome).reason, RefusalReason::CrossNamespaceNotAllowed, "{scope}");
        assert!(refused(&outcome).message.contains("kubewarm-system"), "{scope}");
        assert!(desired(&outcome).is_empty());
        let home = run(
            &mut reconciler(),
            &[profile("kubewarm-system", "p", 1, spec.clone())],
            &Tables::default(),
        );
        assert!(!desired(&home).is_empty(), "{scope}");

        spec["serviceAccountName"] = json!("reader");
        let found = profile("a", "p", 1, spec);
        let outcome = run(&mut reconciler(), &[found], &Tables::default());
        let cells = desired(&outcome);
        assert!(!cells.is_empty(), "that account's RBAC decides: {scope}");
        assert!(
            cells.iter().all(|cell| cell.ends_with(", as ServiceAccount a/reader")),
            "{cells:?}"
        );
    }
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    let own = run(&mut reconciler(), &[profile("a", "p", 1, spec)], &Tables::default());
    assert_eq!(desired(&own), ["pods.v1 in namespace a"]);
}

#[test]
fn only_namespaces_that_are_named_from_elsewhere_are_asked_for() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "Namespaces", "namespaces": ["kubewarm-system", "b"]});
    let outcome =
        run(&mut reconciler(), &[profile("kubewarm-system", "p", 1, spec)], &Tables::default());
    let checks: Vec<_> =
        outcome.desired.values().map(|(cell, _)| cell.tuning.namespace_check).collect();
    assert_eq!(checks, [NamespaceCheck::Ask, NamespaceCheck::Known]);
}

#[test]
fn a_scope_must_fit_its_kind() {
    let outcome = run(
        &mut reconciler(),
        &[profile("kubewarm-system", "p", 1, targets(&["nodes"]))],
        &Tables::default(),
    );
    assert_eq!(refused(&outcome).reason, RefusalReason::ScopeMismatch);
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] = json!({"type": "Cluster"});
    let outcome =
        run(&mut reconciler(), &[profile("kubewarm-system", "p", 1, spec)], &Tables::default());
    assert_eq!(refused(&outcome).reason, RefusalReason::ScopeMismatch);
}

#[test]
fn a_selector_follows_the_namespaces_and_may_match_none() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    let found = [profile("kubewarm-system", "p", 1, spec)];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome), ["namespaces.v1 in the cluster, labels x in (y), metadata only"]);
    assert_eq!(first(&outcome).targets[0].serving, None, "its cells are not known yet");

    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &found, &cluster);
    let serving = first(&outcome).targets[0].serving.as_ref().unwrap();
    assert!(serving.cells.is_empty(), "no namespace matches: warm with zero cells");

    cluster.names = vec!["a", "b"];
    assert_eq!(desired(&run(&mut reconciler, &found, &cluster)).len(), 3);
    cluster.names = vec!["b"];
    assert_eq!(desired(&run(&mut reconciler, &found, &cluster)).len(), 2);
}

#[test]
fn a_cell_watches_while_one_active_profile_declares_it() {
    let mut spec = targets(&["pods"]);
    spec["mode"] = json!("Paused");
    let paused = profile("a", "one", 1, spec);
    let outcome = run(&mut reconciler(), std::slice::from_ref(&paused), &Tables::default());
    assert_eq!(outcome.desired.values().next().unwrap().1, Mode::Paused);
    let active = profile("a", "two", 1, targets(&["pods"]));
    for order in [[paused.clone(), active.clone()], [active, paused]] {
        let outcome = run(&mut reconciler(), &order, &Tables::default());
        assert_eq!(outcome.desired.values().next().unwrap().1, Mode::Active);
    }
}

#[test]
fn a_kind_that_goes_takes_its_cells_with_it_and_comes_back_by_itself() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.kinds.insert("widgets", ("v1", true));
    let found = [profile("a", "p", 1, targets(&["widgets", "pods"]))];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &found, &cluster);

    cluster.kinds.remove("widgets");
    let widgets = outcome.desired.keys().find(|key| key.resource.resource() == "widgets");
    cluster.faults.insert(widgets.unwrap().clone(), Reason::NotServed);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a"]);
    assert_eq!(refused(&outcome).reason, RefusalReason::UnknownResource);
    assert_eq!(first(&outcome).targets[0].serving, None);
    assert!(outcome.is_kind_missing);

    cluster.faults.clear();
    cluster.kinds.insert("widgets", ("v1", true));
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome).len(), 2);
    assert!(!outcome.is_kind_missing);
}

#[test]
fn one_incomplete_answer_of_discovery_takes_no_table() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.kinds.insert("widgets", ("v1", true));
    let found = [profile("a", "p", 1, targets(&["widgets"]))];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &found, &cluster);

    for returns in [true, false] {
        cluster.kinds.remove("widgets");
        for second in [20, 29] {
            let now = Duration::from_secs(second);
            let outcome = reconciler.reconcile(&found, &cluster, None, now);
            assert_eq!(desired(&outcome), ["widgets.v1 in namespace a"]);
            assert!(first(&outcome).targets[0].serving.is_some());
            assert!(outcome.is_kind_missing, "discovery should hurry");
        }
        if returns {
            cluster.kinds.insert("widgets", ("v1", true));
            assert!(!run(&mut reconciler, &found, &cluster).is_kind_missing);
        }
    }
    let outcome = reconciler.reconcile(&found, &cluster, None, Duration::from_secs(30));
    assert!(desired(&outcome).is_empty());
    assert_eq!(refused(&outcome).reason, RefusalReason::UnknownResource);
    let stranger = run(&mut self::reconciler(), &found, &cluster);
    assert!(desired(&stranger).is_empty(), "it was never served");
}

#[test]
fn another_preferred_version_is_warmed_beside_the_old() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let found = [profile("a", "p", 1, targets(&["pods"]))];
    let outcome = run(&mut reconciler, &found, &cluster);
    sync(&mut cluster, &outcome);
    run(&mut reconciler, &found, &cluster);
    cluster.kinds.insert("pods", ("v2", true));
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(desired(&outcome), ["pods.v1 in namespace a", "pods.v2 in namespace a"]);
    let cells = |outcome: &Outcome| first(outcome).targets[0].cells[0].to_string();
    assert_eq!(cells(&outcome), "pods.v1 in namespace a", "nobody asked for a cold target");

    let old = cluster.synced.clone();
    cluster.synced.clear();
    let gone = run(&mut reconciler, &found, &cluster);
    assert_eq!(cells(&gone), "pods.v2 in namespace a", "the old version is not served any more");

    cluster.synced = old;
    sync(&mut cluster, &outcome);
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(cells(&outcome), "pods.v2 in namespace a");
    assert_eq!(desired(&outcome), ["pods.v2 in namespace a"]);
}

#[test]
fn a_field_that_the_server_does_not_select_by_is_the_authors_to_change() {
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["fieldSelectors"] = json!([{"field": "spec.x", "value": "y"}]);
    let found = [profile("a", "p", 1, spec)];
    let outcome = run(&mut reconciler, &found, &cluster);
    for key in outcome.desired.keys() {
        cluster.faults.insert(key.clone(), Reason::Unsupported);
    }
    let outcome = run(&mut reconciler, &found, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::UnsupportedField);
    assert!(refused(&outcome).message.contains("spec.x=y"), "{}", refused(&outcome));
    assert_eq!(desired(&outcome).len(), 1, "the cell runs on: the server may change its mind");
}

#[test]
fn a_profile_that_is_planned_orders_a_forecast_and_wants_no_cell() {
    let mut reconciler = reconciler();
    let mut spec = targets(&["pods", "gone"]);
    spec["mode"] = json!("Plan");
    let outcome = run(&mut reconciler, &[profile("a", "p", 1, spec)], &Tables::default());
    assert_eq!(desired(&outcome), Vec::<String>::new());
    assert_eq!(first(&outcome).targets[0].cells.len(), 1, "declared all the same");
    let [order] = outcome.orders.as_slice() else { panic!("{:?}", outcome.orders) };
    let names: Vec<_> = order.targets.iter().map(|target| &*target.name).collect();
    assert_eq!((names, order.targets[0].cells.len()), (vec!["pods"], 1));

    let outcome =
        run(&mut reconciler, &[profile("a", "p", 2, targets(&["pods"]))], &Tables::default());
    assert_eq!((desired(&outcome).len(), outcome.orders.len()), (1, 0));

    let mut spec = targets(&["pods"]);
    spec["mode"] = json!("Plan");
    let outcome = run(&mut reconciler, &[profile("a", "p", 3, spec)], &Tables::default());
    assert_eq!((desired(&outcome).len(), outcome.orders.len()), (0, 1), "what ran ends");
}
