//! When a replica is ready, with informers in each state.

use super::*;
use crate::server::fixtures::{at, failing, key, listing, snapshot, synced};
use kubewarm_cache::informer::{RelistReason, RelistReport};

fn all(informers: &[InformerKey]) -> DeclaredInformers {
    DeclaredInformers { informers: informers.into(), is_complete: true }
}

#[test]
fn readiness_fails_until_the_profiles_are_listed() {
    let readiness = ReadinessTracker::default();
    let look = readiness.compute(None, &[], at(1_000));
    assert!(!look.is_ready());
    assert_eq!(look.to_string(), "not ready: profiles not listed yet");
    assert!(
        readiness.compute(Some(&all(&[])), &[], at(1_000)).is_ready(),
        "without profiles it is ready"
    );
}

#[test]
fn readiness_fails_until_the_replica_has_a_certificate_of_the_common_ca() {
    let (sender, receiver) = watch::channel(None);
    let readiness = ReadinessTracker::default().with_certificate(receiver);
    let look = |second| readiness.compute(Some(&all(&[])), &[], at(second));
    for second in [1_000, 9_000] {
        let expected = "not ready: no certificate yet in the Secret of --certificate-secret";
        assert_eq!(look(second).to_string(), expected);
    }
    sender.send_replace(Some("CA".into()));
    assert!(look(9_001).is_ready());
}

#[test]
fn readiness_waits_for_a_declared_informer_that_has_not_started() {
    let readiness = ReadinessTracker::default();
    let declared = [key("pods", "a"), key("pods", "b")];
    let informers = [snapshot(key("pods", "a"), synced())];
    let look = readiness.compute(Some(&all(&declared)), &informers, at(1_000));
    assert!(!look.is_ready());
    assert_eq!(look.to_string(), "not ready: 1 of 2 informers pending");
    assert_eq!(look.pending_informers[0], "pods.v1 in namespace b: not started");
}

#[test]
fn readiness_does_not_wait_for_refused_informers_or_for_a_minute_of_failures() {
    let readiness = ReadinessTracker::default();
    let names = ["a", "b", "c", "d"].map(|namespace| key("pods", namespace));
    let informers = |since| {
        let [a, b, c, d] = names.clone();
        [
            snapshot(a, synced()),
            snapshot(b, failing(FaultReason::Forbidden, 999)),
            snapshot(c, failing(FaultReason::NotServed, 999)),
            snapshot(d, failing(FaultReason::Unreachable, since)),
        ]
    };
    let look = readiness.compute(Some(&all(&names)), &informers(941), at(1_000));
    assert_eq!((look.is_ready(), look.synced, look.refused, look.pending), (false, 1, 2, 1));
    let look = readiness.compute(Some(&all(&names)), &informers(940), at(1_000));
    assert_eq!((look.is_ready(), look.failing_long, look.pending), (true, 1, 0));
}

#[test]
fn a_refused_list_method_is_not_final_while_the_next_one_is_tried() {
    let refused = failing(FaultReason::Unsupported, 999);
    let trying = InformerReport { phase: InformerPhase::Listing, ..refused.clone() };
    let declared = all(&[key("pods", "a")]);
    let [refused, trying] = [refused, trying].map(|report| {
        let informers = [snapshot(key("pods", "a"), report)];
        ReadinessTracker::default().compute(Some(&declared), &informers, at(1_000))
    });
    assert_eq!((refused.refused, refused.pending), (1, 0));
    assert_eq!((trying.refused, trying.pending), (0, 1));
}

#[tokio::test]
async fn after_a_list_next_to_another_replica_readiness_waits_for_the_event_log() {
    let declared = all(&[key("pods", "a")]);
    let first_sync = |strategy| {
        let mut report = synced();
        report.warmed.as_mut().unwrap().strategy = strategy;
        (report.warmed.unwrap().synced, [snapshot(key("pods", "a"), report)])
    };
    let seconds = SignedDuration::from_secs;
    for (strategy, has_peers, expected) in [
        (FirstSyncMethod::List, true, false),
        (FirstSyncMethod::List, false, true),
        (FirstSyncMethod::Peer, true, true),
    ] {
        let peers = PeerReplicas::of_clients([]);
        if has_peers {
            peers.record_answer();
        }
        let readiness = ReadinessTracker::new(Some(peers.clone()));
        let (listed_at, informers) = first_sync(strategy);
        let look = readiness.compute(Some(&declared), &informers, listed_at + seconds(74));
        assert_eq!((look.is_ready(), look.pending), (expected, 0), "{strategy:?} {has_peers}");
        if !expected {
            assert_eq!(look.to_string(), "not ready: event logs are shorter than 75 s");
            assert!(!peers.is_newly_ready());
        }
        let look = readiness.compute(Some(&declared), &informers, listed_at + seconds(75));
        assert!(look.is_ready());
        assert_eq!(peers.is_newly_ready(), has_peers);
    }
}

#[tokio::test]
async fn a_copied_event_log_that_a_relist_ended_counts_as_short_for_75_s_in_all() {
    let peers = PeerReplicas::of_clients([]);
    peers.record_answer();
    let readiness = ReadinessTracker::new(Some(peers));
    let relisted = |second| {
        let mut report = synced();
        report.warmed.as_mut().unwrap().strategy = FirstSyncMethod::Peer;
        let reason = RelistReason::Gone;
        let last = RelistReport { at: at(second), reason, replaced: 0, deleted_objects: 0 };
        [snapshot(key("pods", "a"), InformerReport { last_relist: Some(last), ..report })]
    };
    let declared = all(&[key("pods", "a")]);
    let is_ready = |listed_at, now| {
        readiness.compute(Some(&declared), &relisted(listed_at), at(now)).is_ready()
    };
    assert!(!is_ready(1_000, 1_001));
    assert!(!is_ready(1_070, 1_075));
    assert!(is_ready(1_070, 1_076), "an informer that lists again and again does not matter");
}

#[test]
fn with_a_fallback_readiness_waits_for_failing_informers_without_a_limit() {
    let declared = all(&[key("pods", "a"), key("pods", "b")]);
    let informers = [
        snapshot(key("pods", "a"), failing(FaultReason::Unreachable, 1_000)),
        snapshot(key("pods", "b"), failing(FaultReason::Forbidden, 1_000)),
    ];
    let at_times = |readiness: &ReadinessTracker| {
        [1_000, 1_060, 9_000]
            .map(|second| readiness.compute(Some(&declared), &informers, at(second)).is_ready())
    };
    assert_eq!(at_times(&ReadinessTracker::default()), [false, true, true]);
    let readiness = ReadinessTracker::default().with_fallback();
    assert_eq!(at_times(&readiness), [false; 3]);
    let look = readiness.compute(Some(&declared), &informers, at(9_001));
    // An administrator must grant the other permission, which can take days.
    assert_eq!((look.pending, look.refused, look.deadline), (1, 1, None));
}

#[test]
fn readiness_stays_until_the_shutdown() {
    let readiness = ReadinessTracker::default();
    let declared = [key("pods", "a")];
    let look = |report| {
        readiness.compute(Some(&all(&declared)), &[snapshot(key("pods", "a"), report)], at(1_000))
    };
    assert!(look(synced()).is_ready());
    let later = look(listing());
    assert_eq!((later.is_ready(), later.pending), (true, 1));
    readiness.begin_shutdown();
    let last = look(synced());
    assert_eq!((last.is_ready(), last.end), (false, StartupOutcome::Stopping));
}

#[test]
fn readiness_ignores_informers_that_are_added_later_or_removed() {
    let readiness = ReadinessTracker::default();
    let [a, b, c] = ["a", "b", "c"].map(|namespace| key("pods", namespace));
    assert!(!readiness.compute(Some(&all(&[a.clone(), b])), &[], at(1_000)).is_ready());
    // A profile with informer b was deleted, and another profile declared informer c.
    let look = readiness.compute(Some(&all(&[a.clone(), c])), &[snapshot(a, synced())], at(1_000));
    assert_eq!((look.is_ready(), look.declared), (true, 1));
}

#[test]
fn readiness_waits_ten_minutes_for_queued_informers() {
    let readiness = ReadinessTracker::default();
    let declared = all(&[key("pods", "a"), key("pods", "b")]);
    let informers = [snapshot(key("pods", "a"), synced())];
    let look = |second| readiness.compute(Some(&declared), &informers, at(second));
    assert_eq!(look(1_000).deadline, Some(at(1_600)));
    assert!(!look(1_599).is_ready());
    let last = look(1_600);
    assert_eq!((last.is_ready(), last.end, last.pending), (true, StartupOutcome::TimedOut, 1));
    assert_eq!(look(9_000).end, StartupOutcome::TimedOut, "it stays ready");
}

#[test]
fn readiness_waits_ten_minutes_for_a_selectors_namespaces() {
    let readiness = ReadinessTracker::default();
    let some = DeclaredInformers { informers: [key("pods", "a")].into(), is_complete: false };
    let informers = [snapshot(key("pods", "a"), synced())];
    let look = readiness.compute(Some(&some), &informers, at(1_000));
    assert_eq!((look.is_ready(), look.pending), (false, 0));
    assert_eq!(look.to_string(), "not ready: namespaces not listed yet");
    assert!(readiness.compute(Some(&some), &informers, at(1_600)).is_ready());
}

#[test]
fn readiness_does_not_wait_for_a_selector_added_later() {
    let readiness = ReadinessTracker::default();
    let [a, b] = ["a", "b"].map(|namespace| key("pods", namespace));
    assert!(!readiness.compute(Some(&all(std::slice::from_ref(&a))), &[], at(1_000)).is_ready());
    let later = DeclaredInformers { informers: [a.clone(), b].into(), is_complete: false };
    assert!(readiness.compute(Some(&later), &[snapshot(a, synced())], at(1_001)).is_ready());
}
