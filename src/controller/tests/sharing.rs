use super::*;
use crate::controller::{
    declarations::Declarations, informer_quotas::PER_PROFILE, profile_parser::profile_informers,
};
use kubewarm_api::model::FieldPath;

/// Default maximum number of informers that the profiles of one namespace declare.
const PER_NAMESPACE: usize = 1_000;

fn indexing(from: usize) -> Value {
    let indexes: Vec<_> = (from..from + 16)
        .map(|n| json!({"name": format!("i{n}"), "fieldPath": format!("spec.f{n}")}))
        .collect();
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["indexes"] = json!(indexes);
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    spec
}

#[test]
fn combined_indexes_are_bounded_and_the_latest_profile_reports_omitted_ones() {
    let mut profiles: Vec<_> = [("a", "first", 7), ("a", "aaa", 9), ("a", "second", 8)]
        .into_iter()
        .enumerate()
        .map(|(n, (namespace, name, created))| ClusterProfile {
            created: Some(Timestamp::from_second(created).unwrap()),
            ..profile(namespace, name, 1, indexing(16 * n))
        })
        .collect();
    let mut reconciler = reconciler();
    let left_out = |outcome: &ReconcileResult| -> Vec<_> {
        let all = outcome.observed.iter().map(|observed| &observed.resolved);
        let hits = all.filter(|resolved| !resolved.targets[0].left_out.is_empty());
        hits.map(|resolved| (resolved.profile.to_string(), resolved.targets[0].left_out.len()))
            .collect()
    };
    let outcome = run(&mut reconciler, &profiles, &Tables::default());
    assert_eq!(outcome.desired.values().next().unwrap().0.indexes.len(), 32);
    assert_eq!(left_out(&outcome), [("a/aaa".to_owned(), 16)]);

    profiles.push(profile("kubewarm-system", "latest", 1, indexing(48)));
    let outcome = run(&mut reconciler, &profiles, &Tables::default());
    assert_eq!(outcome.desired.len(), 2);
    assert_eq!(
        left_out(&outcome),
        [("a/aaa".to_owned(), 16)],
        "indexes of other namespaces' profiles do not count"
    );
}

#[test]
fn declared_indexes_never_displace_the_one_that_finds_namespaces() {
    let labels = json!({"matchLabels": {"x": "y"}});
    let of_namespaces = |from: usize| {
        let mut target = indexing(from)["targets"][0].take();
        for index in target["indexes"].as_array_mut().unwrap() {
            let path = index["fieldPath"].as_str().unwrap().replace("spec.", "metadata.");
            index["fieldPath"] = json!(path);
        }
        target["name"] = json!(format!("namespaces-{from}"));
        target["resource"] = json!("namespaces");
        target["scope"] = json!({"type": "Cluster"});
        target["labelSelector"] = labels.clone();
        // Informers that kubewarm itself starts for a namespace selector have the same projection,
        // so the target can share such an informer.
        target["projection"] = json!({"type": "Metadata", "managedFields": "Drop"});
        target
    };
    let mut pods = target("pods");
    pods["scope"] = json!({"type": "NamespaceSelector", "namespaceSelector": labels});
    let spec = json!({"targets": [of_namespaces(0), of_namespaces(16), pods]});
    let mut cluster = Tables::default();
    cluster.kinds.insert("namespaces", ("v1", false));
    let profiles = [profile("kubewarm-system", "p", 1, spec)];
    let outcome = run(&mut reconciler(), &profiles, &cluster);
    let [(informer, _)] = outcome.desired.values().collect::<Vec<_>>()[..] else {
        panic!("one informer for all: {:?}", desired(&outcome));
    };
    assert_eq!(informer.indexes.len(), 32);
    let finds = |path: &FieldPath| path.to_string() == "metadata.deletionTimestamp";
    assert!(informer.indexes.iter().any(finds), "{:?}", informer.indexes);
    let left_out = first(&outcome).targets.iter().map(|target| target.left_out.len());
    assert_eq!(left_out.collect::<Vec<_>>(), [0, 1, 0]);
}

fn tuned(namespace: &str, name: &str, mode: &str, priority: u16, seconds: u64) -> ClusterProfile {
    let mut spec = targets(&["pods"]);
    spec["mode"] = json!(mode);
    spec["freshness"] = json!({"maxStalenessSeconds": seconds});
    spec["targets"][0]["priority"] = json!(priority);
    spec["targets"][0]["scope"] = json!({"type": "Namespaces", "namespaces": ["a"]});
    profile(namespace, name, 1, spec)
}

/// Returns the profile from which the only informer takes its priority and list settings, and the
/// informer's `max_staleness` in seconds.
fn governed(profiles: &[ClusterProfile]) -> (String, u64) {
    let outcome = run(&mut reconciler(), profiles, &Tables::default());
    let (informer, _) = outcome.desired.values().next().unwrap();
    (
        informer.settings.list_slot_owner.profile.to_string(),
        informer.settings.max_staleness.as_secs(),
    )
}

#[test]
fn profiles_of_different_namespaces_share_no_informer() {
    let of_operator = tuned("kubewarm-system", "p", "Paused", 1, 600);
    let tenant = tuned("a", "p", "Active", 1000, 60);
    let outcome = run(&mut reconciler(), &[of_operator, tenant], &Tables::default());
    let informers: Vec<_> = outcome
        .desired
        .values()
        .map(|(informer, mode)| {
            let settings = &informer.settings;
            assert_eq!(
                informer.key.declared_in.as_ref(),
                Some(&settings.list_slot_owner.profile.namespace)
            );
            (settings.list_slot_owner.profile.to_string(), settings.max_staleness.as_secs(), *mode)
        })
        .collect();
    let expected = [
        ("a/p".to_owned(), 60, ProfileMode::Active),
        ("kubewarm-system/p".to_owned(), 600, ProfileMode::Paused),
    ];
    assert_eq!(informers, expected, "each informer has its own profile's settings");
}

#[test]
fn profiles_never_share_kubewarms_own_informers() {
    let scopes = [
        json!({"type": "Namespaces", "namespaces": ["a", "b"]}),
        json!({"type": "AllNamespaces"}),
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}}),
    ];
    let (group, resource) = ("kubewarm.io", "cacheprofiles");
    let mut all = vec![
        target("pods"),
        json!({"name": "own", "group": group, "resource": resource}),
        json!({"name": "nodes", "resource": "nodes", "scope": {"type": "Cluster"}}),
    ];
    for (n, scope) in scopes.into_iter().enumerate() {
        all.push(
            json!({"name": format!("t{n}"), "group": group, "resource": resource, "scope": scope}),
        );
    }
    let profiles: Vec<_> = [("a", None), ("a", Some("reader")), ("kubewarm-system", None)]
        .into_iter()
        .map(|(namespace, account)| {
            let spec = json!({"targets": all, "serviceAccountName": account});
            profile(namespace, account.unwrap_or("p"), 1, spec)
        })
        .collect();
    let mut cluster = Tables { names: vec!["a", "b"], ..Tables::default() };
    cluster.kinds.insert("cacheprofiles", ("v1alpha1", true));
    let operator_informers =
        [WatchedNamespaces::Everywhere, WatchedNamespaces::Namespaces(["a".into()].into())].map(
            |watched| {
                let informers = profile_informers(&watched).unwrap();
                assert!(informers.iter().all(|informer| informer.key.declared_in.is_none()));
                informers
            },
        );
    let mut reconciler = reconciler();
    for _ in 0..2 {
        let outcome = run(&mut reconciler, &profiles, &cluster);
        let targets = outcome.observed.iter().flat_map(|observed| &observed.resolved.targets);
        let informers: BTreeSet<_> = targets
            .flat_map(|target| {
                let serving = target.serving.iter().flat_map(|serving| serving.informers.iter());
                target.informers.iter().chain(serving)
            })
            .map(|informer| &informer.key)
            .chain(outcome.desired.keys())
            .collect();
        assert!(informers.len() > 12, "{informers:?}");
        for key in informers {
            assert!(key.declared_in.is_some(), "{key:?}");
            assert!(
                operator_informers.iter().flatten().all(|informer| informer.key != *key),
                "{key:?}"
            );
        }
        sync(&mut cluster, &outcome);
    }
}

#[test]
fn the_highest_priority_determines_the_settings_and_the_strictest_limit_counts() {
    let first = tuned("a", "p", "Active", 1000, 60);
    let second = tuned("a", "q", "Active", 999, 300);
    let strict = tuned("a", "r", "Active", 1, 30);
    assert_eq!(governed(&[second, first, strict]), ("a/p".to_owned(), 30));
}

#[test]
fn settings_of_a_paused_profile_are_ignored_while_another_is_active() {
    let paused = tuned("a", "q", "Paused", 1000, 10);
    let active = tuned("a", "p", "Active", 1, 600);
    assert_eq!(governed(&[active, paused.clone()]), ("a/p".to_owned(), 600));
    assert_eq!(governed(&[paused]), ("a/q".to_owned(), 10));
}

fn names(count: usize) -> Vec<&'static str> {
    (0..count).map(|n| &*format!("n{n}").leak()).collect()
}

#[test]
fn a_profile_beyond_its_informer_limit_is_refused_and_serves_its_old_generation() {
    let mut spec = targets(&["pods"]);
    spec["targets"][0]["scope"] =
        json!({"type": "NamespaceSelector", "namespaceSelector": {"matchLabels": {"x": "y"}}});
    let profiles = [profile("kubewarm-system", "p", 1, spec)];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    cluster.names = names(PER_PROFILE - 1);
    for _ in 0..3 {
        let outcome = run(&mut reconciler, &profiles, &cluster);
        sync(&mut cluster, &outcome);
    }
    cluster.names = names(PER_PROFILE);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::TooManyInformers);
    let message = &refused(&outcome).message;
    assert!(message.starts_with("targets[pods].scope: 2049 informers"), "{message}");
    assert_eq!(outcome.desired.len(), PER_PROFILE, "the old informers keep serving");
    let fresh = run(&mut self::reconciler(), &profiles, &cluster);
    assert_eq!(fresh.desired.len(), 1, "the selector's informer still runs");

    cluster.names.truncate(5);
    let outcome = run(&mut reconciler, &profiles, &cluster);
    assert_eq!(first(&outcome).targets[0].informers.len(), 5);
}

#[test]
fn a_namespace_selector_has_an_informer_even_if_it_matches_too_many() {
    let profiles: Vec<_> = (0..=PER_NAMESPACE / 32)
        .map(|n| {
            let mut spec = targets(&["pods"]);
            spec["serviceAccountName"] = json!("reader");
            spec["targets"] = (0..32)
                .map(|target| {
                    let labels = json!({"matchLabels": {"n": format!("{n}-{target}")}});
                    let scope = json!({"type": "NamespaceSelector", "namespaceSelector": labels});
                    let name = format!("t{target}");
                    json!({"name": name, "resource": "pods", "scope": scope})
                })
                .collect();
            profile("a", &format!("p{n:04}"), 1, spec)
        })
        .collect();
    let cluster = Tables { names: names(PER_PROFILE), ..Tables::default() };
    let outcome = run(&mut reconciler(), &profiles, &cluster);
    assert_eq!(outcome.desired.len(), PER_NAMESPACE);
    let cluster = Tables { synced: outcome.desired.keys().cloned().collect(), ..cluster };
    let outcome = run(&mut reconciler(), &profiles, &cluster);
    assert_eq!(refused(&outcome).reason, RefusalReason::TooManyInformers);
    assert_eq!(outcome.desired.len(), PER_NAMESPACE);
}

#[test]
fn the_profiles_of_a_namespace_share_a_limit_except_in_the_operator_namespace() {
    let mut spec = targets(&["pods"]);
    let each = 25;
    spec["targets"] = (0..each)
        .map(|n| {
            let labels = json!({"matchLabels": {"n": n.to_string()}});
            json!({"name": format!("t{n}"), "resource": "pods", "labelSelector": labels})
        })
        .collect();
    let resource = profile("a", "x", 1, spec);
    let count = PER_NAMESPACE / each;
    let mut profiles: Vec<_> = (0..=count)
        .map(|n| {
            let (namespace, name) = ("a".into(), format!("p{n:04}").into());
            let mut profile = ClusterProfile { created: Some(Timestamp::MIN), ..resource.clone() };
            profile.profile = ProfileRef { namespace, name };
            profile
        })
        .collect();
    // `found[0]` becomes the newest profile, although its name sorts first.
    profiles[0].created = Some(Timestamp::MAX);
    let accepted = |outcome: &ReconcileResult| -> Vec<bool> {
        let targets = outcome.observed.iter().map(|observed| &observed.resolved.targets);
        targets.map(|all| all.iter().all(|target| matches!(target.resolved, Some(Ok(_))))).collect()
    };
    let outcome = run(&mut reconciler(), &profiles, &Tables::default());
    assert_eq!(refused(&outcome).reason, RefusalReason::TooManyInformers);
    assert!(refused(&outcome).message.contains("1000 together"), "{}", refused(&outcome));
    assert!(accepted(&outcome)[1..].iter().all(|&accepted| accepted));
    let outcome = run(
        &mut reconciler_of(operator_scope("a", WatchedNamespaces::Everywhere)),
        &profiles,
        &Tables::default(),
    );
    assert!(accepted(&outcome).iter().all(|&accepted| accepted));
}

#[test]
fn all_profiles_share_a_limit_and_the_operator_namespace_has_precedence() {
    let limits =
        OperatorLimits { informers: 3, namespace_informers: 2, ..OperatorLimits::default() };
    let mut reconciler = reconciler_within(limits);
    let two = || targets(&["pods", "configmaps"]);
    let profiles = ["a", "b", "kubewarm-system"].map(|namespace| profile(namespace, "p", 1, two()));
    let outcome = run(&mut reconciler, &profiles, &Tables::default());
    let refused = outcome.observed.iter().map(|observed| {
        let targets = observed.resolved.targets.iter();
        targets.filter(|target| matches!(target.resolved, Some(Err(_)))).count()
    });
    assert_eq!(refused.collect::<Vec<_>>(), [1, 2, 0]);
    let text = outcome.observed[1].resolved.targets[0].resolved.clone().unwrap().unwrap_err();
    assert!(text.message.contains("--max-informers"), "{text}");
}

#[test]
fn an_equal_reconciliation_decides_the_same() {
    let profiles = [
        profile("a", "first", 1, targets(&["pods", "configmaps"])),
        profile("a", "second", 1, targets(&["pods", "unknown"])),
        profile("a", "invalid", 1, json!({"targets": []})),
    ];
    let (mut reconciler, mut cluster) = (reconciler(), Tables::default());
    let mut reconcile = |cluster: &Tables, seconds| {
        let now = Duration::from_secs(seconds);
        reconciler.reconcile(&profiles, &cluster.cluster(), None, now).observed
    };
    let decided = Declarations::new(reconcile(&cluster, 0));
    assert!(!decided.running.is_empty() && decided.is_of(&reconcile(&cluster, 1)));
    cluster.kinds.insert("unknown", ("v1", true));
    assert!(!decided.is_of(&reconcile(&cluster, 2)));
}
