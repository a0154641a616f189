use super::fixtures::{RBAC, StatusWorld, declared, key, message, target};
use crate::status::{MAX_STATUS, ObservedProfile, status_writer::shrink_to_limit};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewarm_api::{
    manifests::ProfilePermissions,
    model::{Identity, InformerKey, InformerScope, ResolvedProfile, Subject, WatchedNamespaces},
    v1alpha1::{
        AccessStatus, CacheProfileStatus, NamespaceRules, PolicyRule, TargetProblem, TargetStatus,
    },
};
use kubewarm_cache::informer::{InformerReport, LatencyQuantiles, RelistReason, RelistReport};
use std::{sync::Arc, time::Duration};

const KINDS: [&str; 8] = [
    "pods",
    "services",
    "configmaps",
    "serviceaccounts",
    "endpoints",
    "persistentvolumeclaims",
    "resourcequotas",
    "limitranges",
];

fn informer(resource: &str, namespace: &str) -> InformerKey {
    let identity = Identity::ServiceAccount { namespace: "shop".into(), name: "reader".into() };
    InformerKey { identity, ..key(resource, InformerScope::Namespace(namespace.into())) }
}

/// Returns a profile that reads as a ServiceAccount. `targets` contains the names and informers of
/// its targets.
fn profile(targets: impl IntoIterator<Item = (String, Vec<InformerKey>)>) -> ResolvedProfile {
    let targets = targets.into_iter().map(|(name, informers)| target(&name, &informers)).collect();
    ResolvedProfile { service_account: Some("reader".into()), ..declared(targets) }
}

/// Returns the status as kubewarm writes it, with the RBAC manifests of all informers.
fn status(world: &StatusWorld, profile: &ResolvedProfile) -> CacheProfileStatus {
    let operator =
        Subject::ServiceAccount { namespace: "kubewarm-system".into(), name: "kubewarm".into() };
    let access =
        ProfilePermissions::for_informers(profile, &operator, &WatchedNamespaces::Everywhere)
            .unwrap()
            .status();
    let access = Some(Arc::new(access));
    let observed = ObservedProfile {
        access,
        ..ObservedProfile::new(Arc::new(profile.clone()), kubewarm_api::manifests::NAMESPACE.into())
    };
    world.compute_of(&observed, None)
}

fn bytes(status: &CacheProfileStatus) -> usize {
    serde_json::to_vec(status).unwrap().len()
}

#[test]
fn a_typical_status_has_less_than_16_kib() {
    let mut world = StatusWorld::new();
    let quantiles =
        Some(LatencyQuantiles { p50: Duration::from_millis(12), p99: Duration::from_millis(345) });
    let report = InformerReport {
        list_latency: quantiles,
        event_latency: quantiles,
        read_latency: quantiles,
        last_relist: Some(RelistReport {
            at: world.clock.wall,
            reason: RelistReason::Gone,
            replaced: 3,
            deleted_objects: 2,
        }),
        ..world.watching()
    };
    for kind in KINDS {
        world.runs(informer(kind, "shop"), report.clone());
    }
    let targets = KINDS.map(|kind| (kind.to_owned(), vec![informer(kind, "shop")]));
    let status = status(&world, &profile(targets));
    assert!(status.access.as_ref().unwrap().manifests.is_some());
    assert!(status.targets.iter().all(|target| target.last_relist.is_some()));
    assert!(bytes(&status) < 16 << 10, "{} bytes", bytes(&status));
}

#[test]
fn manifests_of_many_namespaces_are_left_out_and_the_command_is_named() {
    let namespaces: Vec<_> = (0..300).map(|number| format!("team-{number}")).collect();
    let target = |number: usize| -> (String, Vec<InformerKey>) {
        let kind = KINDS[number % KINDS.len()];
        let informers = namespaces.iter().map(|namespace| informer(kind, namespace));
        (format!("target-{number}"), informers.collect())
    };
    let status = status(&StatusWorld::new(), &profile((0..128).map(target)));
    let access = status.access.as_ref().unwrap();
    assert_eq!((&access.manifests, &access.manifests_elevated), (&None, &None));
    let told = message(&status.conditions, "Accepted");
    assert!(told.ends_with(&format!("print them with `{RBAC}`")), "{told}");
    assert!(bytes(&status) < 256 << 10, "{} bytes", bytes(&status));
}

#[test]
fn the_largest_status_fits_after_it_is_shortened() {
    let text = |length| "x".repeat(length);
    let condition = |name: String| Condition {
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        message: text(1024),
        observed_generation: Some(i64::MAX),
        reason: text(63),
        status: "Unknown".into(),
        type_: name,
    };
    let conditions: Vec<_> = (0..8).map(|number| condition(number.to_string())).collect();
    let problem = TargetProblem { message: Some(text(512)), ..TargetProblem::default() };
    let of_target = conditions[..4].to_vec();
    let target = |number: usize| TargetStatus {
        name: format!("{number:063}"),
        conditions: of_target.clone(),
        problems: vec![problem.clone(); 16],
        ..TargetStatus::default()
    };
    let rules = vec![PolicyRule { resources: vec![text(63); 128], ..PolicyRule::default() }];
    let missing = vec![NamespaceRules { namespace: text(63), rules }; 128];
    let whole = CacheProfileStatus {
        conditions,
        targets: (0..128).map(target).collect(),
        access: Some(AccessStatus { missing, ..AccessStatus::default() }),
        ..CacheProfileStatus::default()
    };
    assert!(bytes(&whole) > 2 * MAX_STATUS);
    let written = shrink_to_limit(&whole);
    assert!(bytes(&written) <= MAX_STATUS, "{} bytes", bytes(&written));
    assert_eq!(written.targets.len(), 128);
    assert!(written.targets.iter().all(|target| target.conditions[0].message.len() > 250));
}
