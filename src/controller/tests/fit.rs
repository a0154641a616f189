use super::*;
use crate::controller::{
    budget_enforcer::{BudgetEnforcer, RunningTarget},
    budget_tree::BudgetTree,
    known_target::KnownTarget,
    target_charges::TargetCharges,
};
use kubewarm_api::model::{
    Budget, INFORMER_BYTES, InformerScope, InformerSpec, LimitOverrun, LimitScope,
    ManagedFieldsPolicy, ProfileLimits, Projection,
};

const MIB: u64 = 1 << 20;

/// A target and its profile. A longer profile name means an earlier time of creation.
struct BudgetedTarget {
    profile: ProfileRef,
    name: Arc<str>,
    budget: Arc<Budget>,
    state: KnownTarget,
}

/// Targets that run informers. Each object in the informers' stores has 1 KiB.
struct BudgetFixture {
    cluster: Tables,
    budgets: BudgetTree,
    max_objects: Option<u64>,
    targets: Vec<BudgetedTarget>,
}

fn key(name: &str) -> InformerKey {
    let resource = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
    let projection = Projection::Metadata(ManagedFieldsPolicy::Drop);
    InformerKey::all(resource, InformerScope::Namespace(name.into()), projection)
}

impl BudgetFixture {
    fn new(process: Option<u64>, namespace: Option<u64>, max_objects: Option<u64>) -> Self {
        let limits = memory_limits(process, namespace);
        let budgets = BudgetTree::new("kubewarm-system".into(), limits);
        Self { cluster: Tables::default(), budgets, max_objects, targets: Vec::new() }
    }

    fn of_profile(max_objects: u64) -> Self {
        Self::new(None, None, Some(max_objects))
    }

    /// Adds a synced target named `namespace/profile/target`. `informers` contains its informers
    /// with their object counts, and `old` contains the informers of the earlier profile
    /// generation.
    fn add(&mut self, name: &str, priority: u16, informers: &[(&str, u64)], old: &[(&str, u64)]) {
        let [namespace, profile, target] = name.split('/').collect::<Vec<_>>()[..] else {
            panic!()
        };
        let profile = ProfileRef { namespace: namespace.into(), name: profile.into() };
        let known = self.targets.iter().find(|known| known.profile == profile);
        let budget = match known {
            Some(known) => Arc::clone(&known.budget),
            None => self.budgets.profile(&profile.namespace),
        };
        budget.set_limits(ProfileLimits { max_objects: self.max_objects, max_bytes: None });
        let specs = |informers: &[(&str, u64)]| -> Vec<_> {
            let key = |&(informer, objects): &(&str, u64)| {
                let key = key(&format!("{namespace}-{informer}"));
                let mut spec = InformerSpec::new(key, profile.clone());
                spec.settings.meter = self.cluster.meter(&spec.key);
                spec.settings.meter.set(objects, objects << 10);
                spec
            };
            informers.iter().map(key).collect()
        };
        let (informers, old): (Arc<[InformerSpec]>, _) = (specs(informers).into(), specs(old));
        self.cluster.synced.extend(informers.iter().map(|informer| informer.key.clone()));
        let charges = TargetCharges::new(&budget, priority, &informers, &old, None);
        let mut state = KnownTarget::default();
        state.charges = Some(charges);
        self.targets.push(BudgetedTarget { profile, name: target.into(), budget, state });
        self.targets.sort_by(|a, b| a.profile.cmp(&b.profile));
    }

    fn target(&mut self, name: &str, objects: u64) {
        self.add(name, 500, &[(name, objects)], &[]);
    }

    /// Marks the target's informer as not synced.
    fn list(&mut self, namespace: &str, name: &str) {
        self.cluster.synced.remove(&key(&format!("{namespace}-{name}")));
    }

    fn enforce(&mut self) -> Vec<String> {
        let running =
            self.targets.iter_mut().map(|BudgetedTarget { profile, name, budget, state }| {
                let age = i64::try_from(profile.name.len()).unwrap();
                let created = Timestamp::from_second(-age).ok();
                RunningTarget { profile, created, target: name, budget, state }
            });
        let (operator_namespace, now) = ("kubewarm-system", Duration::ZERO);
        let cluster = &self.cluster.cluster();
        let mut limiter = BudgetEnforcer { operator_namespace, cluster, now, exceeded: Vec::new() };
        limiter.enforce_all(running.collect());
        let stopped = self.targets.iter().filter(|target| target.state.is_stopped());
        stopped.map(|target| format!("{}/{}", target.profile, target.name)).collect()
    }

    fn overrun(&self, name: &str) -> LimitOverrun {
        let target = self
            .targets
            .iter()
            .find(|target| format!("{}/{}", target.profile, target.name) == name);
        target.unwrap().state.limited.unwrap().overrun
    }
}

#[test]
fn a_target_in_its_first_list_stops_before_complete_ones() {
    let mut scene = BudgetFixture::of_profile(10_000);
    scene.add("a/p/runaway", 900, &[("x", 9_600)], &[]);
    scene.target("a/p/small", 500);
    scene.list("a", "x");
    assert_eq!(scene.enforce(), ["a/p/runaway"]);
}

#[test]
fn the_lowest_priority_and_then_the_largest_target_stops() {
    for (limit, stopped) in [(10_001, &["a/p/low"][..]), (6_000, &["a/p/low", "a/p/y"])] {
        let mut scene = BudgetFixture::of_profile(limit);
        scene.target("a/p/x", 5_000);
        scene.add("a/p/low", 1, &[("low", 400)], &[]);
        scene.target("a/p/y", 5_001);
        assert_eq!(scene.enforce(), stopped);
    }
}

#[test]
fn a_target_that_exceeds_the_limit_alone_stops_first() {
    let mut scene = BudgetFixture::of_profile(10_000);
    scene.add("a/p/low", 1, &[("low", 400)], &[]);
    scene.target("a/p/x", 11_000);
    assert_eq!(scene.enforce(), ["a/p/x"]);
    let mut scene = BudgetFixture::new(Some(12 * MIB), None, None);
    scene.target("a/p/x", 5_000);
    scene.target("kubewarm-system/p/own", 13 << 10);
    assert_eq!(
        scene.enforce(),
        ["kubewarm-system/p/own"],
        "the target alone exceeds the limit, so stopping tenants would not help"
    );
}

#[test]
fn usage_equal_to_the_limit_fits_and_other_profiles_do_not_count() {
    let mut scene = BudgetFixture::of_profile(10_000);
    scene.target("a/p/x", 10_000);
    scene.target("a/q/x", 10_000);
    assert!(scene.enforce().is_empty());
}

#[test]
fn an_informer_of_two_targets_counts_once_and_stops_with_both() {
    for (limit, stopped) in [(10_000, 0), (5_000, 2)] {
        let mut scene = BudgetFixture::of_profile(limit);
        scene.add("a/p/x", 500, &[("shared", 6_000)], &[]);
        scene.add("a/p/y", 500, &[("shared", 6_000)], &[]);
        assert_eq!(scene.enforce().len(), stopped);
    }
}

#[test]
fn old_informers_stop_before_any_target_stops() {
    let mut scene = BudgetFixture::of_profile(10_000);
    scene.add("a/p/x", 500, &[("new", 6_000)], &[("old", 5_000)]);
    assert!(scene.enforce().is_empty());
    scene.cluster.meter(&key("a-new")).set(10_001, 0);
    assert_eq!(scene.enforce(), ["a/p/x"]);
    assert_eq!(scene.overrun("a/p/x").others, 0, "the target alone exceeds the limit");
}

#[test]
fn a_namespace_limit_stops_targets_except_in_the_operator_namespace() {
    let mut scene = BudgetFixture::new(None, Some(5 * MIB), None);
    scene.target("a/p/x", 3_000);
    scene.target("a/q/y", 2_100);
    scene.target("b/p/z", 4_000);
    scene.target("kubewarm-system/p/all", 90_000);
    assert_eq!(scene.enforce(), ["a/p/x"]);
    let LimitOverrun { reached, others, bound, .. } = scene.overrun("a/p/x");
    assert_eq!((reached, bound), ((3_000 << 10) + INFORMER_BYTES, LimitScope::Namespace));
    assert_eq!(others, (2_100 << 10) + INFORMER_BYTES);
}

#[test]
fn the_process_limit_stops_tenants_before_the_operator_namespace() {
    let mut scene = BudgetFixture::new(Some(12 * MIB), Some(4 * MIB), None);
    for name in ["a/old/x", "b/old/x", "c/p/x", "d/old/x"] {
        scene.target(name, 2_900);
    }
    assert!(scene.enforce().is_empty(), "the targets of four namespaces fit");
    scene.target("kubewarm-system/p/own", 2_000);
    scene.list("kubewarm-system", "kubewarm-system/p/own");
    // A tenant's target stops, although the operator namespace's target was added last. Of several
    // targets of the same size, the target of the newest profile stops.
    assert_eq!(scene.enforce(), ["c/p/x"]);
}

#[test]
fn a_target_that_crosses_the_process_limit_stops_whatever_its_priority() {
    let mut scene = BudgetFixture::new(Some(10 * MIB), None, None);
    scene.add("a/p/x", 0, &[("x", 8_000)], &[]);
    scene.add("b/p/y", 1_000, &[("y", 2_200)], &[]);
    scene.list("b", "y");
    assert_eq!(scene.enforce(), ["b/p/y"]);
}
