//! Test data: profiles with a status, and parsed command-line arguments.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewarm_api::v1alpha1::CacheProfile;
use serde_json::{Value, json};

/// Parses the arguments of a command. `line` does not contain the command's name.
pub(super) fn parse<A: clap::Args>(line: &str) -> Result<A, clap::Error> {
    let words = ["kubewarm"].into_iter().chain(line.split_whitespace());
    let command = A::augment_args(clap::Command::new("kubewarm"));
    A::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The current time in the tests of the commands: one minute after the transition times in the test
/// profiles.
pub(super) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-03-01T11:59:00Z", "observedGeneration": 2,
    })
}

fn profile(name: &str, status: &Value) -> CacheProfile {
    serde_json::from_value(json!({
        "apiVersion": "kubewarm.io/v1alpha1",
        "kind": "CacheProfile",
        "metadata": { "namespace": "shop", "name": name, "generation": 2, "uid": "u-1" },
        "spec": {
            "targets": [{ "name": "pods", "resource": "pods" }],
            "warmup": { "deadlineSeconds": 10 },
        },
        "status": status,
    }))
    .unwrap()
}

fn warm_pods() -> Value {
    json!({
        "name": "pods",
        "conditions": [
            condition("Accepted", "True", "Resolved", ""),
            condition("Warm", "True", "Synced", ""),
            condition("Fresh", "True", "WatchesCurrent", ""),
        ],
        "informers": { "total": 12, "synced": 12 },
        "objects": 50_000, "memory": "24Mi", "servingGeneration": 2,
        "timeToWarmMilliseconds": 2480,
        "lastRelist": {
            "time": "2026-03-01T11:59:48Z", "reason": "Gone",
            "replacedObjects": 3, "deletedObjects": 2,
        },
    })
}

pub(super) fn ready() -> CacheProfile {
    profile(
        "checkout",
        &json!({
            "observedGeneration": 2,
            "conditions": [
                condition("Ready", "True", "Ready", "1 target is warm and fresh"),
                condition("Fresh", "True", "WatchesCurrent", ""),
                condition("WarmupDeadlineMet", "True", "DeadlineMet", ""),
            ],
            "warmTargets": "1/1", "objects": 50_000, "memory": "24Mi",
            "timeToWarmMilliseconds": 2480,
            "targets": [warm_pods()],
        }),
    )
}

/// A profile with a warm target, a target with one forbidden namespace, and a target of an unknown
/// kind. The test `tests/repository/samples.rs` checks that kubewarm computes this status.
pub(super) fn warming() -> CacheProfile {
    serde_json::from_str(include_str!("warming.json")).unwrap()
}

/// A stalled profile, whose message contains a terminal escape sequence.
pub(super) fn stalled() -> CacheProfile {
    profile(
        "broken",
        &json!({
            "observedGeneration": 2,
            "conditions": [
                condition("Ready", "False", "InvalidSpec", "targets[0]: \u{1b}[2Jbad"),
                condition("Stalled", "True", "InvalidSpec", "targets[0]: \u{1b}[2Jbad"),
            ],
        }),
    )
}

pub(super) fn untouched() -> CacheProfile {
    let mut profile = profile("new", &Value::Null);
    profile.metadata.creation_timestamp = Some(Time(now() - SignedDuration::from_mins(1)));
    profile
}
