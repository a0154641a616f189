use super::fixtures::{RBAC, SUBJECT, StatusWorld, declared, key, message, pods, state, target};
use crate::{
    access::{ExcessPermissions, InformerAccess},
    status::{ObservedProfile, write_delay::write_delay},
};
use kubewarm_api::{
    model::{
        FaultReason, InformerKey, InformerScope, RequestFault, ResolvedProfile, TargetRequirement,
        Verb,
    },
    v1alpha1::{NamespaceRules, PolicyRule, RulesCompleteness},
};
use kubewarm_cache::informer::{PermissionDenial, PermissionState};
use std::{sync::Arc, time::Duration};

fn scene() -> (StatusWorld, ResolvedProfile, [InformerKey; 3]) {
    let mut world = StatusWorld::new();
    let keys = [pods("a"), pods("b"), key("secrets", InformerScope::AllNamespaces)];
    for key in &keys {
        world.runs(key.clone(), world.watching());
    }
    let targets = vec![target("pods", &keys[..2]), target("secrets", &keys[2..])];
    (world, declared(targets), keys)
}

fn refused(world: &StatusWorld, reason: FaultReason, verbs: &[Verb]) -> InformerAccess {
    let refused = PermissionDenial {
        verbs: verbs.to_vec(),
        reason,
        message: "the server's words".into(),
        verified_at: world.clock.wall,
        revoked: None,
    };
    InformerAccess { state: PermissionState::Refused(refused), ..world.granted() }
}

const BOTH: &[Verb] = &[Verb::List, Verb::Watch];

#[test]
fn what_is_verified_says_since_when() {
    let (mut world, profile, keys) = scene();
    let before = world.granted();
    world.pass(Duration::from_secs(20));
    for key in &keys[1..] {
        world.set_access(key, world.granted());
    }
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "True/Verified");
    let access = status.access.unwrap();
    let PermissionState::Granted { verified_at, .. } = before.state else { panic!("granted") };
    assert_eq!(access.last_verified_time.unwrap().0, verified_at, "the oldest check counts");

    let permission = PermissionState::Granted { verified_at: world.clock.wall, is_by_review: true };
    world.set_access(&keys[0], InformerAccess { state: permission, ..world.granted() });
    let status = world.compute(&profile, None);
    assert_eq!(
        state(&status.conditions, "Authorized"),
        "True/Verified",
        "reviews alone are enough"
    );
    assert_eq!(status.access.unwrap().last_verified_time.unwrap().0, world.clock.wall);

    world.set_access(
        &keys[0],
        InformerAccess { state: PermissionState::Verifying, ..world.granted() },
    );
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "Unknown/Verifying");
    assert_eq!(
        message(&status.conditions, "Authorized"),
        "target \"pods\": 1 of 2 informers verified"
    );
    assert_eq!(status.access.unwrap().last_verified_time, None);
}

#[test]
fn missing_permissions_are_listed_with_the_next_step() {
    let (mut world, profile, keys) = scene();
    world.set_access(&keys[1], refused(&world, FaultReason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "False/PermissionsMissing");
    assert_eq!(state(&status.conditions, "Ready"), "False/PermissionsMissing");
    let expected = format!(
        "target \"pods\": not allowed to list and watch pods of the core API group in namespace \
         \"b\" as {SUBJECT}; run `{RBAC} --diff`"
    );
    for type_ in ["Ready", "Authorized"] {
        assert_eq!(message(&status.conditions, type_), expected);
    }
    let rule = |namespace: &str, resource: &str, verbs: &[&str]| NamespaceRules {
        namespace: namespace.to_owned(),
        rules: vec![PolicyRule {
            api_groups: vec![String::new()],
            resources: vec![resource.to_owned()],
            resource_names: Vec::new(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        }],
    };
    assert_eq!(status.access.unwrap().missing, [rule("b", "pods", &["list", "watch"])]);

    world.set_access(&keys[2], refused(&world, FaultReason::Forbidden, &[Verb::Watch]));
    let status = world.compute(&profile, None);
    let text = message(&status.conditions, "Authorized");
    assert!(text.ends_with(&format!("run `{RBAC} --diff`")), "{text}");
    let missing = [rule("", "secrets", &["watch"]), rule("b", "pods", &["list", "watch"])];
    assert_eq!(status.access.unwrap().missing, missing);
}

#[test]
fn lost_access_is_reported_as_revoked() {
    let (mut world, profile, keys) = scene();
    let mut lost = refused(&world, FaultReason::Forbidden, BOTH);
    let PermissionState::Refused(denial) = &mut lost.state else { panic!("refused") };
    denial.revoked = Some(world.clock.wall);
    world.set_access(&keys[0], lost);
    world.set_access(&keys[1], refused(&world, FaultReason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "False/AccessRevoked");
    assert_eq!(state(&status.conditions, "Ready"), "False/PermissionsMissing");
    let text = message(&status.conditions, "Authorized");
    assert!(text.contains("no longer allowed to list and watch pods"), "{text}");
    assert!(text.contains("(it was at 1970-01-12T13:46:40Z)"), "{text}");
    assert!(text.contains("not allowed to list and watch pods"), "{text}");
}

#[test]
fn the_next_step_names_the_operator_namespace() {
    let (mut world, profile, keys) = scene();
    world.set_access(&keys[1], refused(&world, FaultReason::Forbidden, BOTH));
    let observed = ObservedProfile {
        operator_namespace: "ops".into(),
        ..ObservedProfile::new(Arc::new(profile), kubewarm_api::manifests::NAMESPACE.into())
    };
    let status = world.compute_of(&observed, None);
    let text = message(&status.conditions, "Authorized");
    assert!(text.ends_with("-n shop --operator-namespace ops --diff`"), "{text}");
}

#[test]
fn a_deleted_namespace_is_no_missing_permission() {
    let (mut world, profile, keys) = scene();
    world.set_access(&keys[1], refused(&world, FaultReason::NamespaceNotFound, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "True/Verified");
    assert!(status.access.unwrap().missing.is_empty());
    world.set_access(&keys[1], refused(&world, FaultReason::Unauthorized, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "False/PermissionsMissing");
    let text = message(&status.conditions, "Authorized");
    assert!(text.contains("does not accept the credentials of"), "{text}");
    assert!(status.access.unwrap().missing.is_empty(), "no Role fixes a 401");
}

#[test]
fn an_optional_target_without_access_leaves_the_profile_authorized() {
    let (mut world, mut profile, keys) = scene();
    profile.targets[1].requirement = TargetRequirement::Optional;
    world.set_access(&keys[2], refused(&world, FaultReason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "True/Verified");
    assert_eq!(state(&status.conditions, "Ready"), "True/Ready");
    assert!(
        message(&status.conditions, "Authorized").contains("Optional: target \"secrets\": not")
    );
    assert_eq!(status.access.unwrap().missing.len(), 1);
}

#[test]
fn contradicting_reviews_and_late_checks_are_reported() {
    let (mut world, profile, keys) = scene();
    world.set_access(&keys[0], InformerAccess { overruled: Some(false), ..world.granted() });
    world.set_access(&keys[2], InformerAccess { is_late: true, ..world.granted() });
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "True/Verified");
    let text = message(&status.conditions, "Authorized");
    let words =
        ["according to reviews, reading pods in namespace \"a\" would be refused", "every 20 s"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");

    let refused = refused(&world, FaultReason::Forbidden, &[Verb::Watch]);
    let access = InformerAccess { overruled: Some(true), ..refused };
    world.set_access(&keys[0], access);
    let status = world.compute(&profile, None);
    let text = message(&status.conditions, "Ready");
    assert!(text.contains("reading pods in namespace \"a\" would be allowed"), "{text}");
}

#[test]
fn failing_checks_are_reported_and_finally_count_as_lost_access() {
    let (mut world, profile, keys) = scene();
    let failed = Some(RequestFault::new(FaultReason::Throttled, "too many requests"));
    let failing = InformerAccess { failed, ..world.granted() };
    world.set_access(&keys[1], failing.clone());
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "True/Verified");
    let text = message(&status.conditions, "Authorized");
    let words = "checks of pods in namespace \"b\" have had no result since 1970-01-12T13:46:40Z (too \
                 many requests)";
    assert!(text.contains(words), "{text}");

    let verified_at = world.clock.wall;
    world.pass(Duration::from_mins(10));
    for key in [&keys[0], &keys[2]] {
        world.set_access(key, world.granted());
    }
    let permission =
        PermissionState::Unverified { verified_at, message: "too many requests".into() };
    world.set_access(&keys[1], InformerAccess { state: permission, ..failing });
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Authorized"), "Unknown/Verifying");
    let expected = format!(
        "target \"pods\": 1 of 2 informers verified. no check has shown since \
         1970-01-12T13:46:40Z whether {SUBJECT} may list and watch pods in \
         namespace \"b\", although the API server answers other requests; access counts as lost \
         until a check is answered (too many requests)"
    );
    assert_eq!(message(&status.conditions, "Authorized"), expected);
    let access = status.access.unwrap();
    assert_eq!(access.last_verified_time.unwrap().0, verified_at);
    assert!(access.missing.is_empty(), "no permission is known to be missing");
}

#[test]
fn excess_is_reported_with_its_completeness() {
    let (mut world, profile, _) = scene();
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!((access.excess.len(), access.excess_completeness), (0, None));
    let rule = PolicyRule {
        api_groups: vec!["*".into()],
        resources: vec!["*".into()],
        resource_names: Vec::new(),
        verbs: vec!["list".into(), "watch".into()],
    };
    let complete = RulesCompleteness::Complete;
    let excess = |rules, completeness| Arc::new(ExcessPermissions { rules, completeness });
    let all: Vec<(Arc<str>, _)> = vec![
        ("a".into(), excess(vec![rule.clone()], complete)),
        ("b".into(), excess(vec![], complete)),
    ];
    world.excess = Some(all.clone());
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!(access.excess, [NamespaceRules { namespace: "a".into(), rules: vec![rule] }]);
    assert_eq!(access.excess_completeness, Some(RulesCompleteness::Complete));
    let more = ("c".into(), excess(vec![], RulesCompleteness::Incomplete));
    world.excess = Some(all.into_iter().chain([more]).collect());
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!(access.excess_completeness, Some(RulesCompleteness::Incomplete));
}

#[test]
fn a_newer_verification_time_causes_no_write() {
    let (mut world, profile, keys) = scene();
    let before = world.compute(&profile, None);
    for key in &keys {
        world.pass(Duration::from_secs(1));
        world.set_access(key, world.granted());
    }
    let mut after = before.clone();
    after.access = world.compute(&profile, Some(&before)).access;
    assert_ne!(before.access, after.access);
    assert_eq!(write_delay(Some(&before), &after), None);
    world.set_access(&keys[0], refused(&world, FaultReason::Forbidden, BOTH));
    after.access = world.compute(&profile, Some(&before)).access;
    assert_eq!(write_delay(Some(&before), &after), Some(Duration::from_secs(10)));
}

#[test]
fn missing_permissions_of_128_kinds_of_one_group_are_one_rule() {
    let mut world = StatusWorld::new();
    let kinds: Vec<_> = (0..128).map(|number| format!("kinds{number:03}")).collect();
    let targets = kinds.iter().map(|kind| {
        let key = key(kind, InformerScope::Namespace("a".into()));
        world.runs(key.clone(), world.watching());
        world.set_access(&key, refused(&world, FaultReason::Forbidden, BOTH));
        target(kind, &[key])
    });
    let profile = declared(targets.collect());
    let missing = world.compute(&profile, None).access.unwrap().missing;
    assert!(
        matches!(&*missing, [namespace] if matches!(&*namespace.rules, [rule] if rule.resources == kinds))
    );
}
