//! Which other replicas are alive, judged by whether their leases change under our eyes. Pure.

use super::{
    PERIOD, PREFIX, WARM_TARGETS,
    share::{Shares, WarmTargets, decode},
};
use crate::model::ProfileRef;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// So many looks without a renewal, and the replica is taken for gone. Looks that failed do not
/// count: in an outage of the API server nobody can renew.
const MISSES: u32 = 3;
/// A lease that was not renewed for so long is deleted.
const ABANDONED: Duration = Duration::from_hours(1);

/// Another replica that is alive. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name of its pod.
    pub name: Arc<str>,
    /// When it last renewed its lease: by our clock if we saw that, else as it says.
    pub last_seen: Timestamp,
    shares: Arc<Shares>,
}

/// A lease to delete, unless it has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Abandoned {
    pub(super) lease: String,
    pub(super) version: String,
}

/// The leases of others as last seen. Bounded: holds what the last list held.
#[derive(Debug, Default)]
pub(super) struct Roll {
    seen: BTreeMap<Arc<str>, Entry>,
}

#[derive(Debug)]
struct Entry {
    renewed: Option<MicroTime>,
    /// When we first saw it so.
    at: Instant,
    /// How old it said it was, when it was the first that we saw of this replica.
    age: Duration,
    last_seen: Timestamp,
    /// Looks that found it unchanged.
    misses: u32,
    shares: Arc<Shares>,
    version: String,
    is_junk: bool,
}

impl Peer {
    /// A replica that was last seen then and said this of its tables.
    #[must_use]
    pub fn new(
        name: &str,
        last_seen: Timestamp,
        shares: impl IntoIterator<Item = (ProfileRef, WarmTargets)>,
    ) -> Self {
        let shares = Arc::new(shares.into_iter().collect());
        Self { name: name.into(), last_seen, shares }
    }

    /// How warm it says that this profile is; `None` if it does not say.
    #[must_use]
    pub fn warm_targets(&self, profile: &ProfileRef) -> Option<WarmTargets> {
        self.shares.get(profile).copied()
    }
}

impl Roll {
    /// Takes note of what a complete list held; `own` is the name of our own lease.
    pub(super) fn note(&mut self, leases: Vec<Lease>, own: &str, now: Instant, clock: Timestamp) {
        let mut before = std::mem::take(&mut self.seen);
        for lease in leases {
            let name = lease.metadata.name.clone().unwrap_or_default();
            if name == own {
                continue;
            }
            let Some(replica) = name.strip_prefix(PREFIX).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            let last = before.remove(replica);
            self.seen.insert(replica.into(), Entry::note(last, replica, &lease, now, clock));
        }
    }

    /// Those alive, by name.
    pub(super) fn peers(&self) -> Arc<[Peer]> {
        let alive = self.seen.iter().filter(|(_, seen)| seen.misses < MISSES);
        alive
            .map(|(name, seen)| Peer {
                name: Arc::clone(name),
                last_seen: seen.last_seen,
                shares: Arc::clone(&seen.shares),
            })
            .collect()
    }

    /// Leases that nobody has renewed for an hour. What a lease says of itself is not enough, as its
    /// writer's clock may be wrong: it must also have missed its turns while we looked.
    pub(super) fn abandoned(&self, now: Instant) -> Vec<Abandoned> {
        let missed = PERIOD * MISSES;
        let old = self.seen.iter().filter(|(_, seen)| {
            let unchanged = now.saturating_duration_since(seen.at);
            unchanged >= missed && unchanged.saturating_add(seen.age) >= ABANDONED
        });
        old.map(|(name, seen)| Abandoned {
            lease: format!("{PREFIX}{name}"),
            version: seen.version.clone(),
        })
        .collect()
    }
}

impl Entry {
    fn note(
        last: Option<Self>,
        replica: &str,
        lease: &Lease,
        now: Instant,
        clock: Timestamp,
    ) -> Self {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let was_junk = last.as_ref().is_some_and(|last| last.is_junk);
        let (age, last_seen, misses) = match last {
            Some(last) if last.renewed == renewed => {
                return Self { misses: last.misses.saturating_add(1), version, ..last };
            }
            Some(_) => (Duration::ZERO, clock, 0),
            None => first_sight(renewed.as_ref(), clock),
        };
        let annotations = lease.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(WARM_TARGETS));
        let decoded = text.map(|text| decode(text)).unwrap_or_default();
        let is_junk = decoded.junk.is_some();
        if let Some(junk) = decoded.junk.filter(|_| !was_junk) {
            let what = junk.as_str();
            tracing::warn!(
                replica,
                what,
                "annotation {WARM_TARGETS} of its lease ignored where it makes no sense"
            );
        }
        let shares = Arc::new(decoded.shares);
        Self { renewed, at: now, age, last_seen, misses, shares, version, is_junk }
    }
}

/// The age, the time and the misses of a lease that we know only by its own words: one that says it
/// is old is taken for gone until it changes. So a new leader does not report the dead, and a
/// replica with a wrong clock appears at its next renewal.
fn first_sight(renewed: Option<&MicroTime>, clock: Timestamp) -> (Duration, Timestamp, u32) {
    let renewed = renewed.map_or(Timestamp::UNIX_EPOCH, |time| time.0.min(clock));
    let age = clock.duration_since(renewed).max(SignedDuration::ZERO).unsigned_abs();
    let misses = if age >= PERIOD * MISSES { MISSES } else { 0 };
    (age, renewed, misses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };

    const OWN: &str = "kubewarm-replica-me";

    fn clock(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn lease(name: &str, renewed: i64, text: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                resource_version: Some(format!("v{renewed}")),
                annotations: Some([(WARM_TARGETS.to_owned(), text.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                renew_time: Some(MicroTime(clock(renewed))),
                ..LeaseSpec::default()
            }),
        }
    }

    fn peer(renewed: i64) -> Lease {
        lease("kubewarm-replica-other", renewed, r#"{"shop/cart":"1/2"}"#)
    }

    /// One look, at this second.
    fn look(roll: &mut Roll, start: Instant, second: u32, leases: Vec<Lease>) -> Vec<String> {
        let now = start + Duration::from_secs(second.into());
        roll.note(leases, OWN, now, clock(second.into()));
        roll.peers().iter().map(|peer| peer.name.to_string()).collect()
    }

    #[test]
    fn those_alive_are_listed_with_what_they_say_and_we_are_not_among_them() {
        let mut roll = Roll::default();
        let own = lease(OWN, 0, "{}");
        let foreign = lease("somebody-elses", 0, "{}");
        assert_eq!(look(&mut roll, Instant::now(), 5, vec![own, peer(0), foreign]), ["other"]);
        let peers = roll.peers();
        let profile = |name: &str| ProfileRef { namespace: "shop".into(), name: name.into() };
        assert_eq!(peers[0].warm_targets(&profile("cart")), WarmTargets::parse("1/2"));
        assert_eq!(peers[0].warm_targets(&profile("unsaid")), None);
        assert_eq!(peers[0].last_seen, clock(0));
    }

    #[test]
    fn three_looks_without_a_renewal_end_a_replica_and_a_renewal_brings_it_back() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        for second in [0, 30, 60] {
            assert_eq!(look(&mut roll, start, second, vec![peer(0)]), ["other"], "{second}");
        }
        assert!(look(&mut roll, start, 90, vec![peer(0)]).is_empty());
        assert_eq!(look(&mut roll, start, 120, vec![peer(119)]), ["other"]);
        assert!(look(&mut roll, start, 150, vec![]).is_empty(), "deleted");
    }

    #[test]
    fn an_outage_in_which_nobody_could_renew_ends_no_replica() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        look(&mut roll, start, 0, vec![peer(0)]);
        assert_eq!(look(&mut roll, start, 600, vec![peer(0)]), ["other"]);
    }

    #[test]
    fn what_says_at_first_sight_that_it_is_old_is_believed_until_it_changes() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        assert!(look(&mut roll, start, 0, vec![peer(-90)]).is_empty());
        // Its clock is behind by as much; it lives.
        assert_eq!(look(&mut roll, start, 30, vec![peer(-60)]), ["other"]);
        assert_eq!(roll.peers()[0].last_seen, clock(30), "by our clock");
        // Far ahead.
        let mut roll = Roll::default();
        assert_eq!(look(&mut roll, start, 0, vec![peer(1_000_000)]), ["other"]);
        assert_eq!(roll.peers()[0].last_seen, clock(0));
    }

    #[test]
    fn a_lease_is_abandoned_after_an_hour_but_never_at_first_sight() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        look(&mut roll, start, 0, vec![peer(0)]);
        look(&mut roll, start, 3_599, vec![peer(0)]);
        assert_eq!(roll.abandoned(at(3_599)), []);
        let gone =
            Abandoned { lease: "kubewarm-replica-other".to_owned(), version: "v0".to_owned() };
        assert_eq!(roll.abandoned(at(3_600)), [gone]);
        // By its own words it is older than that.
        let mut roll = Roll::default();
        look(&mut roll, start, 0, vec![peer(-1_000_000)]);
        assert_eq!(roll.abandoned(at(0)), []);
        assert_eq!(roll.abandoned(at(89)), []);
        assert_eq!(roll.abandoned(at(90)).len(), 1);
    }

    #[test]
    fn a_lease_without_a_time_or_with_junk_does_no_harm() {
        let (mut roll, start) = (Roll::default(), Instant::now());
        let mut timeless = peer(0);
        timeless.spec = None;
        assert!(look(&mut roll, start, 0, vec![timeless, Lease::default()]).is_empty());
        let junk = lease("kubewarm-replica-junk", 29, "junk");
        assert_eq!(look(&mut roll, start, 30, vec![junk]), ["junk"]);
        let profile = ProfileRef { namespace: "shop".into(), name: "cart".into() };
        assert_eq!(roll.peers()[0].warm_targets(&profile), None);
    }
}
