use super::fixtures::{
    RBAC, SUBJECT, StatusWorld, declared, key, message, one, pods, state, summary, target,
};
use crate::status::ObservedProfile;
use jiff::SignedDuration;
use kubewarm_api::{
    model::{FaultReason, InformerScope},
    v1alpha1::InformerCounts,
};
use kubewarm_cache::informer::{InformerPhase, InformerReport, Verb};
use std::{sync::Arc, time::Duration};
use strum::VariantArray as _;

#[test]
fn each_fault_before_the_first_sync_has_a_reason() {
    let table = [
        (FaultReason::Forbidden, "False/PermissionsMissing", "False/Forbidden"),
        (FaultReason::Unauthorized, "False/PermissionsMissing", "False/Forbidden"),
        (FaultReason::NotServed, "False/TargetsNotWarm", "False/ResourceNotFound"),
        (FaultReason::NamespaceNotFound, "False/TargetsNotWarm", "False/NamespaceNotFound"),
        (FaultReason::TimedOut, "False/TargetsNotWarm", "False/StreamTimedOut"),
        (FaultReason::Unreachable, "False/TargetsNotWarm", "False/ServerUnreachable"),
        (FaultReason::ServerError, "False/TargetsNotWarm", "False/ServerUnreachable"),
        (FaultReason::Throttled, "False/TargetsNotWarm", "False/ServerUnreachable"),
        (FaultReason::Malformed, "False/TargetsNotWarm", "False/Syncing"),
    ];
    for (reason, ready, warm) in table {
        let mut world = StatusWorld::new();
        let report = world.failing(world.listing(), reason, Verb::List);
        let status = one(&mut world, report);
        assert_eq!(summary(&status), [ready, warm, "Unknown/NotWarm"], "{reason}");
        let problem = &status.targets[0].problems[0];
        assert_eq!((problem.namespace.as_str(), problem.reason.as_str()), ("a", reason.as_str()));
        assert!(problem.next_retry_time.is_some());
    }
}

#[test]
fn only_lost_access_and_removed_kinds_make_a_synced_informer_cold() {
    for &reason in FaultReason::VARIANTS {
        let mut world = StatusWorld::new();
        let report = world.failing(world.watching(), reason, Verb::Watch);
        let status = one(&mut world, report);
        let cold = reason.is_access_denied()
            || matches!(reason, FaultReason::NotServed | FaultReason::NamespaceNotFound);
        let warm = state(&status.conditions, "Warm");
        assert_eq!(warm == "True/Synced", !cold, "{reason}: {warm}");
        assert_ne!(state(&status.conditions, "Ready"), "True/Ready", "{reason}");
    }
}

#[test]
fn a_forbidden_informer_names_target_verb_namespace_subject_and_next_step() {
    let mut world = StatusWorld::new();
    world.runs(pods("team-a"), world.watching());
    world.runs(pods("team-b"), world.failing(world.listing(), FaultReason::Forbidden, Verb::Watch));
    let targets = vec![target("pods", &[pods("team-a"), pods("team-b")])];
    let status = world.compute(&declared(targets), None);
    let expected = format!(
        "target \"pods\": not allowed to watch pods in namespace \"team-b\" as {SUBJECT}; \
         run `{RBAC} --diff`"
    );
    for type_ in ["Ready", "Warm"] {
        assert_eq!(message(&status.conditions, type_), expected);
    }
    let informers =
        InformerCounts { total: 2, synced: 1, forbidden: 1, ..InformerCounts::default() };
    assert_eq!(status.targets[0].informers, Some(informers));
}

#[test]
fn refused_secrets_name_the_same_command() {
    let mut world = StatusWorld::new();
    let secrets = key("secrets", InformerScope::AllNamespaces);
    world.runs(secrets.clone(), world.failing(world.listing(), FaultReason::Forbidden, Verb::List));
    let status = world.compute(&declared(vec![target("secrets", &[secrets])]), None);
    let text = message(&status.conditions, "Ready");
    assert!(text.contains("list secrets in all namespaces"), "{text}");
    assert!(text.ends_with(&format!("run `{RBAC} --diff`")), "{text}");
}

#[test]
fn each_cause_of_staleness_has_a_reason() {
    use InformerPhase::{Failing, Paused, Reconnecting, Relisting, Silent};

    let world = StatusWorld::new();
    let watching = world.watching();
    let late = world.clock.mono - Duration::from_secs(121);
    let long_ago = world.clock.wall - SignedDuration::from_secs(6);
    let phase = |phase| InformerReport { phase, since: long_ago, ..watching.clone() };
    let failing = |phase_, reason, verb| InformerReport {
        phase: phase_,
        ..world.failing(watching.clone(), reason, verb)
    };
    let table = [
        (watching.clone(), "True/WatchesCurrent"),
        (InformerReport { current_at: Some(late), ..watching.clone() }, "False/WatchSilent"),
        (InformerReport { current_at: None, ..watching.clone() }, "False/WatchSilent"),
        (phase(Silent), "True/WatchesCurrent"),
        (InformerReport { current_at: Some(late), ..phase(Silent) }, "False/WatchSilent"),
        (phase(Reconnecting), "False/Reconnecting"),
        (InformerReport { since: world.clock.wall, ..phase(Reconnecting) }, "True/WatchesCurrent"),
        (phase(Relisting), "False/Relisting"),
        (InformerReport { since: world.clock.wall, ..phase(Relisting) }, "False/Relisting"),
        (phase(Paused), "False/WatchSilent"),
        (failing(Failing, FaultReason::Unreachable, Verb::Watch), "False/ServerUnreachable"),
        (failing(Reconnecting, FaultReason::ServerError, Verb::Watch), "False/ServerUnreachable"),
        (failing(Failing, FaultReason::Throttled, Verb::List), "False/ServerUnreachable"),
        (failing(Failing, FaultReason::TimedOut, Verb::List), "False/ServerUnreachable"),
        (failing(Failing, FaultReason::TimedOut, Verb::Watch), "False/WatchSilent"),
        (failing(Relisting, FaultReason::Gone, Verb::Watch), "False/Relisting"),
        (failing(Failing, FaultReason::Gone, Verb::Watch), "False/Reconnecting"),
    ];
    for (report, expected) in table {
        let mut world = world.clone();
        let (phase, fault) = (report.phase, report.fault.clone());
        let status = one(&mut world, report);
        assert_eq!(state(&status.conditions, "Fresh"), expected, "{phase:?} {fault:?}");
        assert_eq!(state(&status.conditions, "Warm"), "True/Synced", "{phase:?}");
        let ready = if expected.starts_with("True") { "True/Ready" } else { "False/Stale" };
        assert_eq!(state(&status.conditions, "Ready"), ready, "{phase:?}");
    }
}

#[test]
fn only_an_interruption_of_five_seconds_is_reported() {
    let mut world = StatusWorld::new();
    let mut report = world.failing(world.watching(), FaultReason::Unreachable, Verb::Watch);
    if let Some(fault) = &mut report.fault {
        fault.since = world.clock.wall;
    }
    let status = one(&mut world, report.clone());
    assert_eq!(state(&status.conditions, "Fresh"), "True/WatchesCurrent");
    world.pass(Duration::from_secs(5));
    let status = one(&mut world, report);
    assert_eq!(state(&status.conditions, "Fresh"), "False/ServerUnreachable");
}

#[test]
fn the_command_is_named_before_the_manifests_are_known() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.failing(world.listing(), FaultReason::Forbidden, Verb::List));
    let profile = declared(vec![target("pods", &[pods("a")])]);
    let observed =
        ObservedProfile::new(Arc::new(profile), kubewarm_api::manifests::NAMESPACE.into());
    let status = world.compute_of(&observed, None);
    let text = message(&status.conditions, "Ready");
    assert!(text.ends_with(&format!("as kubewarm; run `{RBAC} --diff`")), "{text}");
}
