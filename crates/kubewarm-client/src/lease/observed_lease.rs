//! Decides who holds a lease and what to write into it. This part of the leader election sends no
//! requests.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use std::time::Duration;
use tokio::time::Instant;

/// Lease duration, in seconds. A follower acquires the lease this long after it saw the last
/// renewal.
const LEASE_SECONDS: i32 = 15;
/// Upper limit for the duration of a lease that another process wrote, so that a wrong duration
/// does not exclude all other candidates for longer. A longer duration counts as one hour.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// The `spec` of a lease as last read, with the time at which this process first saw this `spec`.
///
/// The lease expires one lease duration after that time on the local monotonic clock. The times in
/// the lease do not count, because clocks of other machines can differ.
#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    spec: LeaseSpec,
    at: Instant,
}

impl ObservedLease {
    /// Records that this process saw `lease` at `now`. If its `spec` equals the `spec` in `last`,
    /// the holder has not renewed the lease, and the function returns `last` with the earlier time.
    pub(super) fn observe(last: Option<Self>, lease: &Lease, now: Instant) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        match last {
            Some(last) if last.spec == spec => last,
            Some(_) | None => Self { spec, at: now },
        }
    }

    /// Returns the duration from `now` to the expiry of the lease, unless its holder renews it.
    pub(super) fn remaining(&self, now: Instant) -> Duration {
        (self.at + duration_of(&self.spec)).saturating_duration_since(now)
    }

    /// Returns the identity of the holder, even if the lease has expired. Returns an empty string
    /// for a released lease.
    pub(super) fn holder(&self) -> &str {
        self.spec.holder_identity.as_deref().unwrap_or_default()
    }

    /// Returns `lease` with the changes by which `identity` renews or acquires it. Returns `None`
    /// if another process holds the lease.
    ///
    /// `now` decides whether the lease has expired. `clock`, the wall-clock time, appears in the
    /// lease only for people who read it, because clocks of other machines can differ.
    pub(super) fn claim(
        &self,
        lease: Lease,
        identity: &str,
        now: Instant,
        clock: Timestamp,
    ) -> Option<Lease> {
        let holder = self.holder();
        let is_ours = holder == identity;
        if !is_ours && !holder.is_empty() && !self.remaining(now).is_zero() {
            return None;
        }
        let transitions = self.spec.lease_transitions.unwrap_or(0);
        let renewed = after(self.spec.renew_time.as_ref(), clock);
        let acquired = match &self.spec.acquire_time {
            Some(time) if is_ours => time.clone(),
            Some(_) | None => renewed.clone(),
        };
        let spec = LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            acquire_time: Some(acquired),
            renew_time: Some(renewed),
            lease_transitions: Some(transitions.saturating_add(i32::from(!is_ours))),
            ..self.spec.clone()
        };
        Some(Lease { spec: Some(spec), ..lease })
    }
}

pub(super) fn new_lease(name: &str, identity: &str, clock: Timestamp) -> Lease {
    let time = MicroTime(clock);
    Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            acquire_time: Some(time.clone()),
            renew_time: Some(time),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }),
    }
}

pub(super) fn released_lease(lease: Lease, identity: &str, clock: Timestamp) -> Option<Lease> {
    let spec = lease.spec.filter(|spec| spec.holder_identity.as_deref() == Some(identity))?;
    let renewed = after(spec.renew_time.as_ref(), clock);
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        // The API server accepts only a positive duration. client-go also writes 1 s into a lease
        // that it releases.
        lease_duration_seconds: Some(1),
        renew_time: Some(renewed),
        ..spec
    };
    Some(Lease { spec: Some(spec), metadata: lease.metadata })
}

/// Returns the renew time that the process writes into the lease: `clock`, or 1 µs after `last` if
/// `clock` is not later than `last`.
///
/// Each renewal must change the lease, because a follower detects a renewal by the change.
fn after(last: Option<&MicroTime>, clock: Timestamp) -> MicroTime {
    let next = last.and_then(|last| last.0.checked_add(SignedDuration::from_micros(1)).ok());
    // A `last` that is 24 h or more ahead of the wall clock is wrong, so the renewal contains the
    // wall-clock time instead. The wall-clock time differs from `last`, so this renewal also
    // changes the lease.
    match next {
        Some(next)
            if next > clock && next.duration_since(clock) < SignedDuration::from_hours(24) =>
        {
            MicroTime(next)
        }
        Some(_) | None => MicroTime(clock),
    }
}

fn duration_of(spec: &LeaseSpec) -> Duration {
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    Duration::from_secs(seconds).clamp(Duration::from_secs(1), MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(15);

    fn clock(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn claim(seen: &ObservedLease, lease: &Lease, who: &str, now: Instant) -> Option<Lease> {
        seen.claim(lease.clone(), who, now, clock(0))
    }

    #[test]
    fn a_lease_expires_by_the_local_clock_and_not_by_its_own_times() {
        let start = Instant::now();
        // The renew time in the lease is 1,000,000 s in the past, then 1,000,000 s in the future.
        for second in [-1_000_000, 1_000_000] {
            let lease = new_lease("l", "a", clock(second));
            let seen = ObservedLease::observe(None, &lease, start);
            let late = start + TERM - Duration::from_millis(1);
            assert_eq!((claim(&seen, &lease, "b", late), seen.holder()), (None, "a"));
            let spec = claim(&seen, &lease, "b", start + TERM).unwrap().spec.unwrap();
            assert_eq!(spec.holder_identity.as_deref(), Some("b"));
            assert_eq!(spec.lease_transitions, Some(1));
        }
    }

    #[test]
    fn a_renewal_always_changes_the_lease_and_restarts_its_duration() {
        let start = Instant::now();
        let lease = new_lease("l", "a", clock(5));
        let seen = ObservedLease::observe(None, &lease, start);
        // The wall clock was set back from second 5 to second 0.
        let renewed = claim(&seen, &lease, "a", start).unwrap();
        let spec = renewed.spec.clone().unwrap();
        assert_ne!(Some(&spec), lease.spec.as_ref());
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(spec.acquire_time, Some(MicroTime(clock(5))));
        let seen = ObservedLease::observe(Some(seen), &renewed, start + TERM);
        assert_eq!(claim(&seen, &renewed, "b", start + TERM), None);
    }

    #[test]
    fn only_the_holder_releases_a_lease_and_others_can_then_acquire_it() {
        let start = Instant::now();
        let lease = new_lease("l", "a", clock(0));
        assert_eq!(released_lease(lease.clone(), "b", clock(1)), None);
        let free = released_lease(lease, "a", clock(1)).unwrap();
        let seen = ObservedLease::observe(None, &free, start);
        assert!(claim(&seen, &free, "b", start).is_some());
    }

    #[test]
    fn an_invalid_lease_duration_is_limited() {
        let start = Instant::now();
        let mut lease = new_lease("l", "a", clock(0));
        for (seconds, lasts) in [(i32::MAX, MAX_DURATION), (-1, Duration::from_secs(1))] {
            lease.spec.as_mut().unwrap().lease_duration_seconds = Some(seconds);
            let seen = ObservedLease::observe(None, &lease, start);
            assert!(claim(&seen, &lease, "b", start).is_none());
            assert!(claim(&seen, &lease, "b", start + lasts).is_some());
        }
        lease.spec = None;
        let seen = ObservedLease::observe(None, &lease, start);
        assert!(claim(&seen, &lease, "b", start).is_some());
    }
}
