use crate::status::write_delay::write_delay;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewarm_api::v1alpha1::{
    AccessStatus, CacheProfileStatus, LatencyStatus, TargetProblem, TargetStatus,
};
use std::time::Duration;

fn status(ready: &str, objects: i64) -> CacheProfileStatus {
    CacheProfileStatus {
        conditions: vec![Condition {
            type_: "Ready".into(),
            status: ready.into(),
            reason: "Because".into(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }],
        objects: Some(objects),
        targets: vec![TargetStatus {
            name: "pods".into(),
            problems: vec![TargetProblem::default()],
            ..TargetStatus::default()
        }],
        access: Some(AccessStatus::default()),
        ..CacheProfileStatus::default()
    }
}

/// Returns the minimum number of seconds between the last status write and the write of the status
/// `wanted`.
fn seconds(wanted: &CacheProfileStatus) -> Option<u64> {
    write_delay(Some(&status("True", 0)), wanted).as_ref().map(Duration::as_secs)
}

#[test]
fn a_status_equal_to_the_clusters_is_not_written() {
    assert_eq!(seconds(&status("True", 0)), None);
    assert!(write_delay(None, &status("True", 0)).is_some());
}

#[test]
fn memory_latencies_and_times_never_cause_a_write() {
    let mut wanted = status("True", 0);
    wanted.memory = Some("5Mi".into());
    wanted.access.as_mut().unwrap().last_verified_time = Some(Time(jiff::Timestamp::MAX));
    for target in &mut wanted.targets {
        target.memory = Some("5Mi".into());
        target.latency_milliseconds = Some(LatencyStatus::default());
        target.last_confirmed_time = Some(Time(jiff::Timestamp::MAX));
        for problem in &mut target.problems {
            problem.next_retry_time = Some(Time(jiff::Timestamp::MAX));
        }
    }
    assert_eq!(seconds(&wanted), None);
    wanted.warm_targets = Some("1/1".into());
    assert_eq!(seconds(&wanted), Some(10), "the ignored fields do not delay another change");
}

#[test]
fn conditions_are_written_after_one_second_details_after_ten_and_counts_after_sixty() {
    assert_eq!(seconds(&status("False", 0)), Some(1));
    let mut other = status("True", 0);
    other.conditions[0].reason = "Another".into();
    assert_eq!(seconds(&other), Some(1));
    other = status("True", 0);
    other.targets[0].name = "nodes".into();
    assert_eq!(seconds(&other), Some(1), "another target counts as a changed condition");
    other = status("True", 0);
    other.conditions[0].message = "new words".into();
    assert_eq!(seconds(&other), Some(10));
    other = status("True", 0);
    other.targets[0].problems.clear();
    assert_eq!(seconds(&other), Some(10));
    assert_eq!(seconds(&status("True", 1)), Some(60));
    other = status("True", 0);
    other.targets[0].objects = Some(7);
    assert_eq!(seconds(&other), Some(60));
}
