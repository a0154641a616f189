use super::fixtures::{
    RBAC, StatusWorld, declared, key, message, one, pods, serving, spec, state, summary, target,
};
use crate::status::ObservedProfile;
use kubewarm_api::{
    model::{
        FaultReason, FieldPath, InformerScope, ManagedFieldsPolicy, ProfileMode, Projection,
        Refusal, RefusalReason, ResolvedProfile, ResolvedTarget, TargetRequirement,
    },
    v1alpha1::{AccessStatus, InformerCounts},
};
use kubewarm_cache::informer::{InformerPhase, InformerReport, Verb};
use std::{sync::Arc, time::Duration};

const TYPES: [&str; 8] = [
    "Ready",
    "Accepted",
    "Authorized",
    "Warm",
    "Fresh",
    "WithinLimits",
    "WarmupDeadlineMet",
    "Stalled",
];

fn refused(reason: RefusalReason) -> ResolvedTarget {
    let refusal = Refusal::new(reason, "the message of the refusal");
    ResolvedTarget { resolved: Some(Err(refusal)), ..target("pods", &[]) }
}

#[test]
fn before_discovery_everything_is_unknown() {
    let undiscovered = ResolvedTarget { resolved: None, ..target("pods", &[]) };
    let status = StatusWorld::new().compute(&declared(vec![undiscovered]), None);
    let state: Vec<_> = TYPES.iter().map(|type_| state(&status.conditions, type_)).collect();
    let expected = [
        "Unknown/Pending",
        "Unknown/Discovering",
        "Unknown/Verifying",
        "Unknown/Pending",
        "Unknown/NotWarm",
        "True/BelowLimits",
        "Unknown/NoDeadline",
        "Unknown/Discovering",
    ];
    assert_eq!(state, expected);
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
}

#[test]
fn a_profile_without_running_informers_is_not_synced() {
    let targets = vec![target("pods", &[pods("a"), pods("b")])];
    let status = StatusWorld::new().compute(&declared(targets), None);
    assert_eq!(summary(&status), ["False/TargetsNotWarm", "False/Syncing", "Unknown/NotWarm"]);
    assert_eq!(status.warm_targets.as_deref(), Some("0/1"));
    let informers = InformerCounts { total: 2, syncing: 2, ..InformerCounts::default() };
    assert_eq!(status.targets[0].informers, Some(informers));
}

#[test]
fn one_declared_informer_that_does_not_run_keeps_its_target_cold() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let targets = vec![target("pods", &[pods("a"), pods("b")])];
    let status = world.compute(&declared(targets), None);
    assert_eq!(summary(&status)[1], "False/Syncing");
    assert_eq!(
        message(&status.conditions, "Warm"),
        "target \"pods\": syncing pods: 1 of 2 informers done, \
         waiting for the API server or for a free list slot"
    );
}

#[test]
fn a_profile_with_synced_and_open_watches_is_ready() {
    let mut world = StatusWorld::new();
    let report = world.watching();
    let status = one(&mut world, report);
    assert_eq!(summary(&status), ["True/Ready", "True/Synced", "True/WatchesCurrent"]);
    assert_eq!(status.warm_targets.as_deref(), Some("1/1"));
    assert_eq!(state(&status.conditions, "Stalled"), "False/NotStalled");
    assert_eq!(status.objects, Some(10));
    assert_eq!(status.memory.as_deref(), Some("3Mi"));
    assert_eq!(status.time_to_warm_milliseconds, Some(2_000));
    assert_eq!(status.targets[0].time_to_warm_milliseconds, Some(2_000));
    let resolved = status.targets[0].resolved.clone().unwrap();
    assert_eq!((resolved.version.as_deref(), resolved.namespace_count), (Some("v1"), Some(1)));
}

#[test]
fn optional_targets_never_change_a_condition() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let optional = |target| ResolvedTarget { requirement: TargetRequirement::Optional, ..target };
    world.runs(pods("b"), world.failing(world.listing(), FaultReason::Forbidden, Verb::List));
    let targets = vec![
        target("first", &[pods("a")]),
        optional(target("second", &[pods("b")])),
        optional(refused(RefusalReason::NotListable)),
    ];
    let status = world.compute(&declared(targets), None);
    assert_eq!(summary(&status), ["True/Ready", "True/Synced", "True/WatchesCurrent"]);
    assert_eq!(state(&status.conditions, "Accepted"), "True/Resolved");
    assert_eq!(state(&status.conditions, "Stalled"), "False/NotStalled");
    assert_eq!(status.warm_targets.as_deref(), Some("1/3"));
    let text = message(&status.conditions, "Warm");
    assert!(text.contains("Optional: target \"second\": not allowed to list pods"), "{text}");
}

#[test]
fn only_refusals_that_need_an_edit_set_stalled() {
    let table = [
        (RefusalReason::UnknownResource, "False/UnknownResource", "False/NotStalled"),
        (RefusalReason::NotListable, "False/InvalidSpec", "True/NotListable"),
        (RefusalReason::ScopeMismatch, "False/InvalidSpec", "True/ScopeMismatch"),
        (RefusalReason::UnsupportedField, "False/InvalidSpec", "True/UnsupportedField"),
        (RefusalReason::TooManyInformers, "False/InvalidSpec", "True/TooManyInformers"),
        (
            RefusalReason::CrossNamespaceNotAllowed,
            "False/InvalidSpec",
            "True/CrossNamespaceNotAllowed",
        ),
        (RefusalReason::InvalidSpec, "False/InvalidSpec", "True/InvalidSpec"),
    ];
    for (reason, ready, stalled) in table {
        let mut world = StatusWorld::new();
        world.runs(pods("a"), world.watching());
        let targets = vec![target("good", &[pods("a")]), refused(reason)];
        let status = world.compute(&declared(targets), None);
        assert_eq!(state(&status.conditions, "Accepted"), format!("False/{reason}"));
        assert_eq!(state(&status.conditions, "Ready"), ready, "{reason}");
        assert_eq!(state(&status.conditions, "Stalled"), stalled, "{reason}");
        assert_eq!(
            state(&status.targets[0].conditions, "Warm"),
            "True/Synced",
            "the other target stays warm"
        );
        let text = message(&status.conditions, "Accepted");
        assert_eq!(
            text, "the message of the refusal",
            "the refusal's message already names the target"
        );
    }
}

#[test]
fn a_refused_generation_is_reported_while_the_last_valid_one_serves() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let profile = ResolvedProfile {
        refused: Some(Refusal::new(RefusalReason::InvalidSpec, "spec.targets[0] is odd")),
        ..declared(vec![target("pods", &[pods("a")])])
    };
    let status = world.compute(&profile, None);
    assert_eq!(summary(&status), ["False/InvalidSpec", "True/Synced", "True/WatchesCurrent"]);
    assert_eq!(state(&status.conditions, "Stalled"), "True/InvalidSpec");
}

#[test]
fn a_profile_that_runs_nothing_is_neither_warm_nor_authorized() {
    let profile = ResolvedProfile {
        refused: Some(Refusal::new(RefusalReason::InvalidSpec, "spec.targets[0] is odd")),
        warmup_deadline: Some(Duration::from_hours(1)),
        ..declared(Vec::new())
    };
    let status = StatusWorld::new().compute(&profile, None);
    assert_eq!(summary(&status), ["False/InvalidSpec", "Unknown/Pending", "Unknown/NotWarm"]);
    for (type_, expected) in [
        ("Authorized", "Unknown/Verifying"),
        ("WithinLimits", "Unknown/Measuring"),
        ("WarmupDeadlineMet", "Unknown/Warming"),
        ("Stalled", "True/InvalidSpec"),
    ] {
        assert_eq!(state(&status.conditions, type_), expected);
    }
    let text = message(&status.conditions, "Accepted");
    assert_eq!(
        text,
        "spec.targets[0] is odd; nothing is watched or served until that is corrected"
    );
    assert_eq!(status.time_to_warm_milliseconds, None);
}

#[test]
fn paused_is_neither_ready_nor_failed_and_keeps_what_it_has() {
    let mut world = StatusWorld::new();
    let paused = InformerReport { phase: InformerPhase::Paused, ..world.watching() };
    world.runs(pods("a"), paused);
    let pause = |targets| ResolvedProfile { mode: ProfileMode::Paused, ..declared(targets) };
    let status = world.compute(&pause(vec![target("pods", &[pods("a")])]), None);
    assert_eq!(summary(&status), ["Unknown/Paused", "True/Synced", "False/WatchSilent"]);
    let status = world.compute(&pause(vec![target("pods", &[pods("b")])]), None);
    assert_eq!(summary(&status), ["Unknown/Paused", "False/Paused", "Unknown/NotWarm"]);
}

#[test]
fn a_selector_without_matches_is_warm_and_reports_it() {
    let mut world = StatusWorld::new();
    let namespaces = key("namespaces", InformerScope::Cluster);
    let by_selector = ResolvedTarget { namespaces: Some(spec(&namespaces)), ..target("pods", &[]) };
    let profile = declared(vec![by_selector]);
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Warm"), "False/Syncing", "namespaces are not known yet");
    let forbidden = world.failing(world.listing(), FaultReason::Forbidden, Verb::List);
    world.runs(namespaces.clone(), forbidden);
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Ready"), "False/PermissionsMissing");
    let text = message(&status.conditions, "Ready");
    assert!(text.contains("list namespaces across the cluster"), "{text}");
    world.runs(namespaces, world.watching());
    let status = world.compute(&profile, None);
    assert_eq!(summary(&status), ["True/Ready", "True/Synced", "True/WatchesCurrent"]);
    let text = message(&status.conditions, "Warm");
    assert!(text.contains("the selector matches no namespace"), "{text}");
    assert_eq!(status.targets[0].resolved.clone().unwrap().namespace_count, Some(0));
}

#[test]
fn an_edited_target_reports_its_new_informers_and_the_serving_generation() {
    let mut world = StatusWorld::new();
    world.runs(pods("old"), world.watching());
    world.runs(pods("new"), world.listing());
    let edited = serving(target("pods", &[pods("new")]), 2, &[pods("old")]);
    let profile = declared(vec![edited]);
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Warm"), "False/Syncing");
    assert_eq!(status.targets[0].serving_generation, Some(2));
    assert_eq!(
        status.targets[0].objects,
        Some(10),
        "the objects are those in the serving informer's store"
    );

    world.runs(pods("new"), world.watching());
    let status = world.compute(&profile, None);
    assert_eq!(state(&status.conditions, "Warm"), "True/Synced");
    assert_eq!(
        status.targets[0].serving_generation,
        Some(3),
        "the status reports the generation before the controller reconciles"
    );
}

#[test]
fn the_deadline_is_met_missed_or_unknown() {
    let status = |seconds, is_warm: bool| {
        let mut world = StatusWorld::new();
        if is_warm {
            world.runs(pods("a"), world.watching());
        }
        let profile = ResolvedProfile {
            warmup_deadline: Some(Duration::from_secs(seconds)),
            ..declared(vec![target("pods", &[pods("a")])])
        };
        state(&world.compute(&profile, None).conditions, "WarmupDeadlineMet")
    };
    assert_eq!(status(2, true), "True/DeadlineMet");
    assert_eq!(status(1, true), "False/DeadlineMissed");
    assert_eq!(status(30, false), "Unknown/Warming");
    assert_eq!(status(9, false), "False/DeadlineMissed", "the deadline has passed");
}

#[test]
fn transition_times_change_only_with_the_status() {
    let mut world = StatusWorld::new();
    let report = world.watching();
    let first = one(&mut world, report.clone());
    world.pass(Duration::from_secs(50));
    let second = world.compute(&declared(vec![target("pods", &[pods("a")])]), Some(&first));
    assert_eq!(second.conditions, first.conditions);
    let relisting = InformerReport { phase: InformerPhase::Relisting, ..report };
    world.runs(pods("a"), relisting);
    let third = world.compute(&declared(vec![target("pods", &[pods("a")])]), Some(&second));
    let moved: Vec<_> = third
        .conditions
        .iter()
        .zip(&second.conditions)
        .filter(|(new, old)| new.last_transition_time != old.last_transition_time)
        .map(|(new, _)| new.type_.as_str())
        .collect();
    assert_eq!(moved, ["Ready", "Fresh"]);
}

#[test]
fn an_omitted_index_is_reported_by_its_target() {
    let paths = ["spec.a", "spec.b", "spec.c", "spec.d"];
    let left_out = paths.iter().map(|path| FieldPath::parse(path).unwrap()).collect();
    let target = ResolvedTarget { left_out, ..target("pods", &[pods("a")]) };
    let status = StatusWorld::new().compute(&declared(vec![target]), None);
    let conditions = &status.targets[0].conditions;
    assert_eq!(state(conditions, "Accepted"), "True/Resolved");
    let message = message(conditions, "Accepted");
    assert!(message.ends_with(": spec.a, spec.b, spec.c and 1 more"), "{message}");
}

#[test]
fn a_target_that_drops_managed_fields_names_the_command_and_stays_ready() {
    let mut world = StatusWorld::new();
    let (kept, mut dropped) = (pods("a"), pods("b"));
    dropped.projection = Projection::Full(ManagedFieldsPolicy::Drop);
    for key in [&kept, &dropped] {
        world.runs(key.clone(), world.watching());
    }
    let targets = vec![target("kept", &[kept]), target("pods", &[dropped])];
    let status = world.compute(&declared(targets), None);
    let [kept, dropped] = &status.targets[..] else { panic!("{status:?}") };
    assert!(!message(&kept.conditions, "Accepted").contains("managedFields"));
    let text = message(&dropped.conditions, "Accepted");
    let command = "`kubectl patch cprof checkout -n shop --type=json \
        -p='[{\"op\":\"test\",\"path\":\"/spec/targets/1/name\",\"value\":\"pods\"},\
        {\"op\":\"replace\",\"path\":\"/spec/targets/1/projection/managedFields\",\"value\":\"Keep\"}]'`";
    assert!(text.ends_with(command), "{text}");
    let of_all = message(&status.conditions, "Accepted");
    assert!(of_all.contains(r#"; target "pods" drops managedFields"#), "{of_all}");
    assert_eq!(state(&status.conditions, "Ready"), "True/Ready");
}

#[test]
fn omitted_manifests_are_replaced_by_a_command_in_accepted() {
    let mut world = StatusWorld::new();
    world.runs(pods("a"), world.watching());
    let profile = declared(vec![target("pods", &[pods("a")])]);
    let message = |access: &AccessStatus| {
        let access = Some(Arc::new(access.clone()));
        let observed = ObservedProfile {
            access,
            ..ObservedProfile::new(
                Arc::new(profile.clone()),
                kubewarm_api::manifests::NAMESPACE.into(),
            )
        };
        let status = world.compute_of(&observed, None);
        let accepted =
            status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        assert_eq!(accepted.status, "True");
        accepted.message.clone()
    };
    // The profile needs no elevated permissions, so an absent `manifestsElevated` does not mean
    // that manifests are missing.
    let complete = AccessStatus { manifests: Some("kind: Role".into()), ..AccessStatus::default() };
    assert!(!message(&complete).contains("warm rbac"));
    let advice = message(&AccessStatus::default());
    assert!(advice.ends_with(&format!("print them with `{RBAC}`")), "{advice}");
}
