//! What is known of permissions, and what a profile says of it.

use super::fixtures::{SUBJECT, World, declared, key, message, pods, said, target};
use crate::{
    access::{CellAccess, Excess, Refused, Standing},
    status::difference::pause,
};
use kubewarm_api::{
    model::{CellKey, Declared, Extent, Fault, Reason, Requirement, Verb},
    v1alpha1::{Completeness, NamespaceRules, PolicyRule},
};
use std::{sync::Arc, time::Duration};

/// Two targets, of which one has two cells; everything is warm.
fn scene() -> (World, Declared, [CellKey; 3]) {
    let mut world = World::new();
    let keys = [pods("a"), pods("b"), key("secrets", Extent::AllNamespaces)];
    for key in &keys {
        world.runs(key.clone(), world.watching());
    }
    let targets = vec![target("pods", &keys[..2]), target("secrets", &keys[2..])];
    (world, declared(targets), keys)
}

fn refused(world: &World, reason: Reason, verbs: &[Verb]) -> CellAccess {
    let refused = Refused {
        verbs: verbs.to_vec(),
        reason,
        message: "the server's words".into(),
        verified_at: world.clock.wall,
        revoked: None,
    };
    CellAccess { standing: Standing::Refused(refused), ..world.granted() }
}

const BOTH: &[Verb] = &[Verb::List, Verb::Watch];

#[test]
fn what_is_verified_says_since_when() {
    let (mut world, profile, keys) = scene();
    let before = world.granted();
    world.pass(Duration::from_secs(20));
    for key in &keys[1..] {
        world.knows(key, world.granted());
    }
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified");
    let access = status.access.unwrap();
    let Standing::Granted { verified_at, .. } = before.standing else { panic!("granted") };
    assert_eq!(access.last_verified_time.unwrap().0, verified_at, "the oldest counts");

    let standing = Standing::Granted { verified_at: world.clock.wall, is_by_review: true };
    world.knows(&keys[0], CellAccess { standing, ..world.granted() });
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified", "by reviews alone");
    assert_eq!(status.access.unwrap().last_verified_time.unwrap().0, world.clock.wall);

    world.knows(&keys[0], CellAccess { standing: Standing::Verifying, ..world.granted() });
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "Unknown/Verifying");
    assert_eq!(message(&status.conditions, "Authorized"), "target \"pods\": 1 of 2 cells verified");
    assert_eq!(status.access.unwrap().last_verified_time, None);
}

#[test]
fn what_is_missing_is_named_with_the_next_step() {
    let (mut world, profile, keys) = scene();
    world.knows(&keys[1], refused(&world, Reason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "False/PermissionsMissing");
    assert_eq!(said(&status.conditions, "Ready"), "False/PermissionsMissing");
    let expected = format!(
        "target \"pods\": not allowed to list and watch pods of the core API group in namespace \
         \"b\" as {SUBJECT}; apply what `kubectl warm rbac checkout -n shop` prints"
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

    world.knows(&keys[2], refused(&world, Reason::Forbidden, &[Verb::Watch]));
    let status = world.compute(&profile, None);
    let text = message(&status.conditions, "Authorized");
    assert!(text.ends_with("apply what `kubectl warm rbac checkout -n shop` prints"), "{text}");
    let missing = [rule("", "secrets", &["watch"]), rule("b", "pods", &["list", "watch"])];
    assert_eq!(status.access.unwrap().missing, missing);
}

#[test]
fn access_that_was_there_is_revoked_and_not_merely_missing() {
    let (mut world, profile, keys) = scene();
    let mut lost = refused(&world, Reason::Forbidden, BOTH);
    let Standing::Refused(found) = &mut lost.standing else { panic!("refused") };
    found.revoked = Some(world.clock.wall);
    world.knows(&keys[0], lost);
    world.knows(&keys[1], refused(&world, Reason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "False/AccessRevoked");
    assert_eq!(said(&status.conditions, "Ready"), "False/PermissionsMissing");
    let text = message(&status.conditions, "Authorized");
    assert!(text.contains("no longer allowed to list and watch pods"), "{text}");
    assert!(text.contains("(it was at 1970-01-12T13:46:40Z)"), "{text}");
    assert!(text.contains("not allowed to list and watch pods"), "{text}");
}

#[test]
fn a_namespace_that_is_gone_lacks_no_permission() {
    let (mut world, profile, keys) = scene();
    world.knows(&keys[1], refused(&world, Reason::NamespaceNotFound, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified");
    assert!(status.access.unwrap().missing.is_empty());
    world.knows(&keys[1], refused(&world, Reason::Unauthorized, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "False/PermissionsMissing");
    let text = message(&status.conditions, "Authorized");
    assert!(text.contains("does not accept the credentials of"), "{text}");
    assert!(status.access.unwrap().missing.is_empty(), "no role helps");
}

#[test]
fn an_optional_target_takes_nothing_away() {
    let (mut world, mut profile, keys) = scene();
    profile.targets[1].requirement = Requirement::Optional;
    world.knows(&keys[2], refused(&world, Reason::Forbidden, BOTH));
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified");
    assert_eq!(said(&status.conditions, "Ready"), "True/Ready");
    assert!(
        message(&status.conditions, "Authorized").contains("Optional: target \"secrets\": not")
    );
    assert_eq!(status.access.unwrap().missing.len(), 1);
}

#[test]
fn reviews_that_say_otherwise_and_late_checks_are_shown() {
    let (mut world, profile, keys) = scene();
    world.knows(&keys[0], CellAccess { overruled: Some(false), ..world.granted() });
    world.knows(&keys[2], CellAccess { is_late: true, ..world.granted() });
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified");
    let text = message(&status.conditions, "Authorized");
    let words = ["reviews say that reading pods in namespace \"a\" would be refused", "every 20 s"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");

    let refused = refused(&world, Reason::Forbidden, &[Verb::Watch]);
    let access = CellAccess { overruled: Some(true), ..refused };
    world.knows(&keys[0], access);
    let status = world.compute(&profile, None);
    let text = message(&status.conditions, "Ready");
    assert!(text.contains("reading pods in namespace \"a\" would be allowed"), "{text}");
}

#[test]
fn checks_that_come_to_nothing_are_shown_and_in_the_end_count_as_a_loss() {
    let (mut world, profile, keys) = scene();
    let failed = Some(Fault::new(Reason::Throttled, "too many requests"));
    let failing = CellAccess { failed, ..world.granted() };
    world.knows(&keys[1], failing.clone());
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "True/Verified");
    let text = message(&status.conditions, "Authorized");
    let words = "checks of pods in namespace \"b\" come to nothing since 1970-01-12T13:46:40Z (too \
                 many requests)";
    assert!(text.contains(words), "{text}");

    let verified_at = world.clock.wall;
    world.pass(Duration::from_mins(10));
    for key in [&keys[0], &keys[2]] {
        world.knows(key, world.granted());
    }
    let standing = Standing::Unverified { verified_at, message: "too many requests".into() };
    world.knows(&keys[1], CellAccess { standing, ..failing });
    let status = world.compute(&profile, None);
    assert_eq!(said(&status.conditions, "Authorized"), "Unknown/Verifying");
    let expected = format!(
        "target \"pods\": 1 of 2 cells verified. whether {SUBJECT} may list and watch pods in \
         namespace \"b\" has not been verified since 1970-01-12T13:46:40Z, though the API server \
         answers others: it counts as lost until a check is answered (too many requests)"
    );
    assert_eq!(message(&status.conditions, "Authorized"), expected);
    let access = status.access.unwrap();
    assert_eq!(access.last_verified_time.unwrap().0, verified_at);
    assert!(access.missing.is_empty(), "nothing is known to be");
}

#[test]
fn excess_is_shown_where_there_is_any_and_whether_it_is_all() {
    let (mut world, profile, _) = scene();
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!((access.excess.len(), access.excess_completeness), (0, None));
    let rule = PolicyRule {
        api_groups: vec!["*".into()],
        resources: vec!["*".into()],
        resource_names: Vec::new(),
        verbs: vec!["list".into(), "watch".into()],
    };
    let complete = Completeness::Complete;
    let excess = |rules, completeness| Arc::new(Excess { rules, completeness });
    let all: Vec<(Arc<str>, _)> = vec![
        ("a".into(), excess(vec![rule.clone()], complete)),
        ("b".into(), excess(vec![], complete)),
    ];
    world.excess = Some(all.clone());
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!(access.excess, [NamespaceRules { namespace: "a".into(), rules: vec![rule] }]);
    assert_eq!(access.excess_completeness, Some(Completeness::Complete));
    let more = ("c".into(), excess(vec![], Completeness::Incomplete));
    world.excess = Some(all.into_iter().chain([more]).collect());
    let access = world.compute(&profile, None).access.unwrap();
    assert_eq!(access.excess_completeness, Some(Completeness::Incomplete));
}

#[test]
fn the_time_of_the_last_verification_is_not_worth_a_write() {
    let (mut world, profile, keys) = scene();
    let before = world.compute(&profile, None);
    for key in &keys {
        world.pass(Duration::from_secs(1));
        world.knows(key, world.granted());
    }
    let mut after = before.clone();
    after.access = world.compute(&profile, Some(&before)).access;
    assert_ne!(before.access, after.access);
    assert_eq!(pause(Some(&before), &after), None);
    world.knows(&keys[0], refused(&world, Reason::Forbidden, BOTH));
    after.access = world.compute(&profile, Some(&before)).access;
    assert_eq!(pause(Some(&before), &after), Some(Duration::from_secs(10)));
}
