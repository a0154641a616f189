use crate::status::events::{LastEventTimes, changes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubewarm_api::{
    model::ProfileRef,
    v1alpha1::{CacheProfileStatus, RelistStatus, TargetStatus},
};
use std::time::Duration;
use tokio::time::Instant;

fn condition(type_: &str, status: &str, reason: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message: format!("{type_} is {status}"),
        observed_generation: None,
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    }
}

fn ready(status: &str) -> CacheProfileStatus {
    let conditions = vec![condition("Ready", status, "Reason")];
    CacheProfileStatus { conditions, ..CacheProfileStatus::default() }
}

fn authorized(status: &str, reason: &str) -> CacheProfileStatus {
    let conditions = vec![condition("Authorized", status, reason)];
    CacheProfileStatus { conditions, ..CacheProfileStatus::default() }
}

fn target(type_: &str, status: &str, reason: &str) -> CacheProfileStatus {
    let target = TargetStatus {
        name: "pods".into(),
        conditions: vec![condition(type_, status, reason)],
        ..TargetStatus::default()
    };
    CacheProfileStatus { targets: vec![target], ..CacheProfileStatus::default() }
}

fn causes(old: Option<&CacheProfileStatus>, new: &CacheProfileStatus) -> Vec<&'static str> {
    changes(&profile("a"), &"u".into(), old, new).into_iter().map(|event| event.reason).collect()
}

fn profile(name: &str) -> ProfileRef {
    ProfileRef { namespace: "shop".into(), name: name.into() }
}

#[test]
fn important_status_changes_send_an_event_with_a_reason() {
    let table = [
        (None, ready("True"), vec!["Ready"]),
        (None, ready("False"), vec![]),
        (None, ready("Unknown"), vec![]),
        (Some(ready("True")), ready("True"), vec![]),
        (Some(ready("True")), ready("False"), vec!["NotReady"]),
        (Some(ready("Unknown")), ready("False"), vec![]),
        // The user pauses the profile and activates it again.
        (Some(ready("True")), ready("Unknown"), vec![]),
        (Some(ready("Unknown")), ready("True"), vec!["Ready"]),
        (
            Some(authorized("True", "Verified")),
            authorized("False", "AccessRevoked"),
            vec!["AccessRevoked"],
        ),
        (
            Some(authorized("False", "AccessRevoked")),
            authorized("True", "Verified"),
            vec!["AccessReturned"],
        ),
        (
            Some(authorized("Unknown", "Verifying")),
            authorized("False", "PermissionsMissing"),
            vec![],
        ),
        (
            Some(target("Warm", "True", "Synced")),
            target("Warm", "False", "Forbidden"),
            vec!["PermissionsMissing"],
        ),
        (Some(target("Warm", "False", "Forbidden")), target("Warm", "False", "Syncing"), vec![]),
        (
            Some(target("Warm", "False", "Forbidden")),
            target("Warm", "True", "Synced"),
            vec!["PermissionsGranted"],
        ),
        (
            Some(target("Warm", "True", "Synced")),
            target("Warm", "False", "NamespaceNotFound"),
            vec!["NamespaceNotFound"],
        ),
        (
            Some(target("Accepted", "True", "Resolved")),
            target("Accepted", "False", "UnknownResource"),
            vec!["KindUnknown"],
        ),
        (
            Some(target("Accepted", "False", "UnknownResource")),
            target("Accepted", "True", "Resolved"),
            vec!["KindServed"],
        ),
    ];
    for (old, new, expected) in table {
        assert_eq!(causes(old.as_ref(), &new), expected, "{old:?} to {new:?}");
    }
}

#[test]
fn each_relist_after_a_fault_sends_one_event() {
    for (reason, cause) in
        [("Rollback", "ResourceVersionRolledBack"), ("Inconsistent", "CacheInconsistent")]
    {
        let relist = |second| {
            let mut status = target("Warm", "True", "Synced");
            status.targets[0].last_relist = Some(RelistStatus {
                time: Time(jiff::Timestamp::from_second(second).unwrap()),
                reason: reason.into(),
                replaced_objects: 0,
                deleted_objects: 0,
            });
            status
        };
        let before = target("Warm", "True", "Synced");
        assert_eq!(causes(Some(&before), &relist(1)), [cause]);
        assert!(causes(Some(&relist(1)), &relist(1)).is_empty());
        assert_eq!(causes(Some(&relist(1)), &relist(2)), [cause]);
    }
}

#[test]
fn a_flapping_profile_sends_one_event_per_cause_in_ten_minutes() {
    let mut notices = LastEventTimes::default();
    let start = Instant::now();
    let mut sent = Vec::new();
    for second in 0..1_200 {
        let (old, new) = if second % 2 == 0 { ("False", "True") } else { ("True", "False") };
        let now = start + Duration::from_secs(second);
        let uid = "u".into();
        let planned = notices.plan(&profile("a"), &uid, Some(&ready(old)), &ready(new), now);
        sent.extend(planned.into_iter().map(|notice| (second, notice.reason)));
    }
    let expected = [(0, "Ready"), (1, "NotReady"), (600, "Ready"), (601, "NotReady")];
    assert_eq!(sent, expected);
}
