//! Storms in simulated time.

use crate::{
    api::{CacheProfileStatus, Problem, TargetStatus},
    model::ProfileRef,
    status::{Outcome, Pacer},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

fn profile(number: usize) -> ProfileRef {
    ProfileRef { namespace: "shop".into(), name: format!("p{number}").into() }
}

fn uid(text: &str) -> Arc<str> {
    text.into()
}

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
            problems: vec![Problem::default()],
            ..TargetStatus::default()
        }],
        ..CacheProfileStatus::default()
    }
}

/// One profile that the API server already has as `status("True", 0)`, at time zero.
struct One {
    pacer: Pacer,
    start: Instant,
}

impl One {
    fn new() -> Self {
        Self { pacer: Pacer::default(), start: Instant::now() }
    }

    /// Offers `wanted` at `millis`, lets the write end well, and says whether there was one.
    fn writes(&mut self, millis: u64, wanted: &CacheProfileStatus) -> bool {
        let now = self.start + Duration::from_millis(millis);
        let known = status("True", 0);
        self.pacer.offer(&profile(0), &uid("u"), Some(&known), Arc::new(wanted.clone()), now);
        let writes = self.pacer.due(now);
        for write in &writes {
            self.pacer.done(&write.profile, &write.uid, Outcome::Written, now);
        }
        !writes.is_empty()
    }
}

#[test]
fn what_the_cluster_has_already_is_not_written_again() {
    let mut one = One::new();
    assert!(!one.writes(0, &status("True", 0)));
    assert!(!one.writes(3_600_000, &status("True", 0)));
}

#[test]
fn versions_memory_latencies_and_retry_times_never_cause_a_write() {
    let mut wanted = status("True", 0);
    wanted.memory = Some("5Mi".into());
    for target in &mut wanted.targets {
        target.resource_version = Some("77".into());
        target.memory = Some("5Mi".into());
        target.latency_milliseconds = Some(crate::api::LatencyStatus::default());
        for problem in &mut target.problems {
            problem.next_retry_time = Some(Time(jiff::Timestamp::MAX));
        }
    }
    let mut one = One::new();
    assert!(!one.writes(0, &wanted));
    assert!(!one.writes(3_600_000, &wanted));
    wanted.warm_targets = Some("1/1".into());
    assert!(one.writes(3_601_000, &wanted), "they go along with something else");
}

#[test]
fn a_profile_that_counts_its_own_status_writes_does_not_feed_itself() {
    let mut one = One::new();
    assert!(one.writes(0, &status("False", 3)));
    for second in 1..3_600 {
        let mut wanted = status("False", 3);
        wanted.targets[0].resource_version = Some(second.to_string());
        assert!(!one.writes(second * 1_000, &wanted), "second {second}");
    }
}

#[test]
fn objects_are_written_once_a_minute() {
    let mut one = One::new();
    let writes: Vec<_> = (0..600_u64)
        .filter(|second| {
            one.writes(second * 1_000, &status("True", i64::try_from(*second).unwrap() + 1))
        })
        .collect();
    assert_eq!(writes, [0, 60, 120, 180, 240, 300, 360, 420, 480, 540]);
}

#[test]
fn details_wait_ten_seconds_and_flips_do_not() {
    let mut one = One::new();
    let detail =
        |text: &str| CacheProfileStatus { warm_targets: Some(text.into()), ..status("True", 0) };
    assert!(one.writes(0, &detail("1/3")));
    assert!(!one.writes(1_000, &detail("2/3")));
    assert!(one.writes(1_500, &status("False", 0)), "a flip");
    assert!(!one.writes(2_000, &status("True", 0)), "the next within a second");
    assert!(one.writes(2_500, &status("True", 0)));
    assert!(!one.writes(12_499, &detail("3/3")));
    assert!(one.writes(12_500, &detail("3/3")));
}

#[test]
fn a_failed_write_is_repeated_with_growing_pauses() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let mut began = Vec::new();
    for second in 0..200 {
        let now = start + Duration::from_secs(second);
        pacer.offer(&profile(0), &uid("u"), None, Arc::new(status("True", 0)), now);
        for write in pacer.due(now) {
            began.push(second);
            pacer.done(&write.profile, &write.uid, Outcome::Failed, now);
        }
    }
    assert_eq!(began, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
}

#[test]
fn a_404_is_dropped_and_a_new_uid_begins_anew() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let mut writes = |uid_: &str, second: u64, outcome| {
        let now = start + Duration::from_secs(second);
        pacer.offer(&profile(0), &uid(uid_), None, Arc::new(status("True", 0)), now);
        let due = pacer.due(now);
        for write in &due {
            pacer.done(&write.profile, &write.uid, outcome, now);
        }
        due.len()
    };
    assert_eq!(writes("old", 0, Outcome::Gone), 1);
    assert_eq!(writes("old", 100, Outcome::Gone), 0);
    assert_eq!(writes("new", 101, Outcome::Written), 1);
    assert_eq!(writes("new", 102, Outcome::Written), 0);
}

#[test]
fn an_answer_for_a_former_uid_is_ignored() {
    let mut pacer = Pacer::default();
    let now = Instant::now();
    pacer.offer(&profile(0), &uid("old"), None, Arc::new(status("True", 0)), now);
    assert_eq!(pacer.due(now).len(), 1);
    pacer.offer(&profile(0), &uid("new"), None, Arc::new(status("True", 0)), now);
    pacer.done(&profile(0), "old", Outcome::Written, now);
    assert_eq!(pacer.due(now).len(), 1, "the new one has not been written");
}

#[test]
fn a_write_under_way_is_not_begun_twice() {
    let mut pacer = Pacer::default();
    let now = Instant::now();
    pacer.offer(&profile(0), &uid("u"), None, Arc::new(status("True", 0)), now);
    assert_eq!(pacer.due(now).len(), 1);
    let later = now + Duration::from_secs(30);
    pacer.offer(&profile(0), &uid("u"), None, Arc::new(status("False", 0)), later);
    assert_eq!(pacer.due(later), []);
    pacer.done(&profile(0), "u", Outcome::Written, later);
    assert_eq!(pacer.due(later).len(), 1, "what changed meanwhile is written then");
}

#[test]
fn what_vanished_is_forgotten() {
    let mut pacer = Pacer::default();
    let now = Instant::now();
    for number in 0..1_000 {
        pacer.offer(&profile(number), &uid("u"), None, Arc::new(status("True", 0)), now);
    }
    pacer.retain(|found| *found == profile(7));
    assert_eq!(pacer.len(), 1);
}

#[test]
fn a_thousand_flapping_profiles_stay_within_ten_writes_a_second() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let mut began = Vec::new();
    let mut count = vec![0_u32; 1_000];
    for tick in 0..3_000_u64 {
        let now = start + Duration::from_millis(tick * 100);
        let ready = if tick % 20 < 10 { "True" } else { "False" };
        if tick % 10 == 0 {
            for number in 0..1_000 {
                let wanted = Arc::new(status(ready, i64::try_from(tick).unwrap()));
                pacer.offer(&profile(number), &uid("u"), None, wanted, now);
            }
        }
        for write in pacer.due(now) {
            began.push(now);
            let number: usize = write.profile.name.trim_start_matches('p').parse().unwrap();
            count[number] += 1;
            pacer.done(&write.profile, &write.uid, Outcome::Written, now);
        }
    }
    let second = Duration::from_secs(1);
    for (at, first) in began.iter().enumerate() {
        let within = began[at..].iter().take_while(|later| **later - *first < second).count();
        assert!(within <= 10, "{within} writes in one second");
    }
    assert!(began.len() >= 2_900, "the rate is used: {}", began.len());
    let (least, most) = (count.iter().min().unwrap(), count.iter().max().unwrap());
    assert!(*least >= 2 && *most <= 4, "turns are taken: {least}..{most} of 3");
}

#[test]
fn flips_overtake_details() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let known = status("True", 0);
    let detail = CacheProfileStatus { warm_targets: Some("1/2".into()), ..status("True", 0) };
    for number in 0..100 {
        pacer.offer(&profile(number), &uid("u"), Some(&known), Arc::new(detail.clone()), start);
    }
    let now = start + Duration::from_secs(1);
    let flip = Arc::new(status("False", 0));
    pacer.offer(&profile(500), &uid("u"), Some(&known), flip, now);
    assert_eq!(pacer.due(now)[0].profile, profile(500));
}

#[test]
fn a_thousand_quiet_profiles_write_nothing_after_the_first_time() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let mut writes = 0;
    for second in 0..130_u64 {
        let now = start + Duration::from_secs(second);
        for number in 0..1_000 {
            pacer.offer(&profile(number), &uid("u"), None, Arc::new(status("True", 0)), now);
        }
        for write in pacer.due(now) {
            writes += 1;
            pacer.done(&write.profile, &write.uid, Outcome::Written, now);
        }
    }
    assert_eq!(writes, 1_000);
}

fn of(namespace: &str, number: usize) -> ProfileRef {
    ProfileRef { namespace: namespace.into(), ..profile(number) }
}

#[test]
fn a_namespace_that_keeps_creating_profiles_takes_no_more_than_its_turns() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    let mut count = std::collections::HashMap::<Arc<str>, usize>::new();
    for second in 0..60 {
        let now = start + Duration::from_secs(second);
        let new = usize::try_from(second).unwrap() * 100;
        for number in new..new + 100 {
            let wanted = Arc::new(status("True", 0));
            pacer.offer(&of("greedy", number), &uid("u"), None, wanted, now);
        }
        // Three others have as much as they can be given, of less urgency.
        for namespace in ["a", "b", "c"] {
            for number in 0..100 {
                let known = status("True", 0);
                let detail = CacheProfileStatus {
                    warm_targets: Some(format!("{second}/100")),
                    ..known.clone()
                };
                let profile = of(namespace, number);
                pacer.offer(&profile, &uid("u"), Some(&known), Arc::new(detail), now);
            }
        }
        for write in pacer.due(now) {
            *count.entry(Arc::clone(&write.profile.namespace)).or_default() += 1;
            pacer.done(&write.profile, &write.uid, Outcome::Written, now);
        }
    }
    assert_eq!(count.values().sum::<usize>(), 600, "the rate is used: {count:?}");
    assert!(count.values().all(|writes| *writes == 150), "{count:?}");
}

#[test]
fn what_one_namespace_has_under_way_for_long_keeps_no_other_waiting() {
    let mut pacer = Pacer::default();
    let start = Instant::now();
    for number in 0..1_000 {
        let wanted = Arc::new(status("True", 0));
        pacer.offer(&of("slow", number), &uid("u"), None, wanted, start);
    }
    let begun: usize =
        (0..10).map(|second| pacer.due(start + Duration::from_secs(second)).len()).sum();
    assert_eq!(begun, 10, "a quarter of all that may be under way");
    let now = start + Duration::from_secs(10);
    pacer.offer(&of("quick", 0), &uid("u"), None, Arc::new(status("True", 0)), now);
    assert_eq!(pacer.due(now).len(), 1);
}
