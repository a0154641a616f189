//! What a lease says, and what to write into it: the pure half of leader election.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use std::time::Duration;
use tokio::time::Instant;

/// How long others wait after the last renewal that they saw.
const LEASE_SECONDS: i32 = 15;
/// The longest that a foreign record is believed to last, whatever it says.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// What we last saw of the lease, and when we first saw it so: expiry is measured on our monotonic
/// clock from there, since the clocks of others tell nothing.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    spec: LeaseSpec,
    at: Instant,
}

impl Observed {
    /// Takes note of `lease` as seen at `now`.
    pub(super) fn note(last: Option<Self>, lease: &Lease, now: Instant) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        match last {
            Some(last) if last.spec == spec => last,
            Some(_) | None => Self { spec, at: now },
        }
    }

    /// How long the lease still lasts unless it is renewed.
    pub(super) fn left(&self, now: Instant) -> Duration {
        (self.at + duration_of(&self.spec)).saturating_duration_since(now)
    }

    /// Who holds the lease, or held it before it expired; empty for a free one.
    pub(super) fn holder(&self) -> &str {
        self.spec.holder_identity.as_deref().unwrap_or_default()
    }

    /// What `identity` is to write: the lease is its own, or free, or has expired. `None` if somebody else holds it.
    /// `clock` is the wall clock, for the people who read the lease.
    pub(super) fn claim(
        &self,
        lease: Lease,
        identity: &str,
        now: Instant,
        clock: Timestamp,
    ) -> Option<Lease> {
        let holder = self.holder();
        let is_ours = holder == identity;
        if !is_ours && !holder.is_empty() && !self.left(now).is_zero() {
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

/// A lease to create.
pub(super) fn first(name: &str, identity: &str, clock: Timestamp) -> Lease {
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

/// The lease given back, if `identity` holds it.
pub(super) fn released(lease: Lease, identity: &str, clock: Timestamp) -> Option<Lease> {
    let spec = lease.spec.filter(|spec| spec.holder_identity.as_deref() == Some(identity))?;
    let renewed = after(spec.renew_time.as_ref(), clock);
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        // As client-go does; its electors wait so long in any case.
        lease_duration_seconds: Some(1),
        renew_time: Some(renewed),
        ..spec
    };
    Some(Lease { spec: Some(spec), metadata: lease.metadata })
}

/// Later than `last` even if the clock was set back: a renewal that changes nothing would look to
/// the others like none.
fn after(last: Option<&MicroTime>, clock: Timestamp) -> MicroTime {
    let next = last.and_then(|last| last.0.checked_add(SignedDuration::from_micros(1)).ok());
    // A year ahead is not worth following; the record differs by that all the same.
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

    fn claim(seen: &Observed, lease: &Lease, who: &str, now: Instant) -> Option<Lease> {
        seen.claim(lease.clone(), who, now, clock(0))
    }

    #[test]
    fn a_lease_expires_by_our_clock_and_not_by_its_own_times() {
        let start = Instant::now();
        // Renewed long ago by its own account, and in the future.
        for second in [-1_000_000, 1_000_000] {
            let lease = first("l", "a", clock(second));
            let seen = Observed::note(None, &lease, start);
            let late = start + TERM - Duration::from_millis(1);
            assert_eq!((claim(&seen, &lease, "b", late), seen.holder()), (None, "a"));
            let spec = claim(&seen, &lease, "b", start + TERM).unwrap().spec.unwrap();
            assert_eq!(spec.holder_identity.as_deref(), Some("b"));
            assert_eq!(spec.lease_transitions, Some(1));
        }
    }

    #[test]
    fn a_renewal_always_changes_the_record_and_starts_the_term_anew() {
        let start = Instant::now();
        let lease = first("l", "a", clock(5));
        let seen = Observed::note(None, &lease, start);
        // The wall clock stands still, or was set back.
        let renewed = claim(&seen, &lease, "a", start).unwrap();
        let spec = renewed.spec.clone().unwrap();
        assert_ne!(Some(&spec), lease.spec.as_ref());
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(spec.acquire_time, Some(MicroTime(clock(5))));
        let seen = Observed::note(Some(seen), &renewed, start + TERM);
        assert_eq!(claim(&seen, &renewed, "b", start + TERM), None);
    }

    #[test]
    fn only_ones_own_lease_is_released_and_a_released_one_is_free() {
        let start = Instant::now();
        let lease = first("l", "a", clock(0));
        assert_eq!(released(lease.clone(), "b", clock(1)), None);
        let free = released(lease, "a", clock(1)).unwrap();
        let seen = Observed::note(None, &free, start);
        assert!(claim(&seen, &free, "b", start).is_some());
    }

    #[test]
    fn an_absurd_record_does_not_block_for_ever() {
        let start = Instant::now();
        let mut lease = first("l", "a", clock(0));
        for (seconds, lasts) in [(i32::MAX, MAX_DURATION), (-1, Duration::from_secs(1))] {
            lease.spec.as_mut().unwrap().lease_duration_seconds = Some(seconds);
            let seen = Observed::note(None, &lease, start);
            assert!(claim(&seen, &lease, "b", start).is_none());
            assert!(claim(&seen, &lease, "b", start + lasts).is_some());
        }
        lease.spec = None;
        let seen = Observed::note(None, &lease, start);
        assert!(claim(&seen, &lease, "b", start).is_some());
    }
}
