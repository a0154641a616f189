//! Which targets a limit has stopped, and when they are tried again.

use super::{
    fit::{Beside, MemoryBounds, fit},
    resolve::Cluster,
    share::{Share, held},
};
use crate::model::{
    Allowance, Attempt, Bound, Gauge, Held, Leave, Limited, Measure, Overrun, ProfileRef, Total,
};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

/// Until a target that did not fit is tried again without an edit; up to a fifth more, so that not
/// all of them list in the same moment. Each try costs a list up to the limit.
const AGAIN: Duration = Duration::from_mins(10);
/// How much of a limit must be free, besides what a target is known to need, for it to be tried
/// again at once: a tenth.
const MARGIN: u64 = 10;

/// In steps of which the statuses of a namespace count: else what is left to its cells would be another
/// amount after each write of a status, and every cell told so.
const STEP: u64 = 64 << 10;

/// A target, by its profile.
type Name = (ProfileRef, Arc<str>);

/// Remembers who did not fit. Bounded by the targets that exist.
#[derive(Debug)]
pub(super) struct Limiter {
    bounds: MemoryBounds,
    total: Arc<Total>,
    /// What the statuses of each namespace's profiles take. Bounded by the profiles that are known.
    statuses: BTreeMap<Arc<str>, u64>,
    /// What the last run has let run.
    shares: Vec<Share>,
    limited: BTreeMap<Name, State>,
    /// What the last run has allowed: used again where it is the same.
    allowances: BTreeMap<Whose, Arc<Allowance>>,
}

#[derive(Debug)]
struct State {
    uid: Arc<str>,
    generation: i64,
    limited: Limited,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Objects(ProfileRef),
    Memory(ProfileRef),
    Namespace(Arc<str>),
    Process,
}

impl Limiter {
    /// Remembers nobody yet.
    pub(super) fn new(bounds: MemoryBounds, total: Arc<Total>) -> Self {
        Self {
            bounds,
            total,
            statuses: BTreeMap::new(),
            shares: Vec::new(),
            limited: BTreeMap::new(),
            allowances: BTreeMap::new(),
        }
    }

    /// Takes note of the bytes of all statuses, by namespace, but those of the operator's own: whoever
    /// has large ones written must take that from his own part, not from everybody's.
    pub(super) fn count_statuses<'a>(&mut self, all: impl Iterator<Item = (&'a Arc<str>, usize)>) {
        self.statuses.clear();
        for (namespace, bytes) in all {
            let taken = self.statuses.entry(Arc::clone(namespace)).or_default();
            *taken = taken.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        for taken in self.statuses.values_mut() {
            *taken = taken.div_ceil(STEP).saturating_mul(STEP);
        }
    }

    /// Looks at what has come to be held since the last run, and begins a new one: who does not fit,
    /// who does after all, and who is tried again. Answers what was exceeded, for the first time or
    /// once more.
    pub(super) fn review(&mut self, cluster: &dyn Cluster, now: Duration) -> Vec<Overrun> {
        let mut shares = std::mem::take(&mut self.shares);
        for share in &mut shares {
            share.look(cluster);
        }
        let memory = Measure::Memory;
        let all = shares.iter().flat_map(|share| share.counted(Bound::Process, memory));
        let process = self.total.bytes().saturating_sub(held(all, memory));
        let beside = Beside { process, statuses: self.statuses.clone() };
        let out = fit(&shares, self.bounds, &beside);
        let mut kept = Vec::new();
        for (at, share) in shares.iter().enumerate() {
            let name = (share.profile.clone(), Arc::clone(&share.target));
            if let Some(&overrun) = out.get(&at) {
                self.limit(name, share, overrun, now);
                continue;
            }
            let under_way = |state: &State| state.limited.attempt == Attempt::UnderWay;
            if share.is_synced && self.limited.get(&name).is_some_and(under_way) {
                self.limited.remove(&name);
            }
            kept.push(share);
        }
        self.try_again(&kept, now);
        out.into_values().collect()
    }

    fn limit(&mut self, name: Name, share: &Share, overrun: Overrun, now: Duration) {
        let before = self.limited.get(&name).map(|state| state.limited.overrun);
        let before = before.filter(|before| before.measure == overrun.measure);
        let reached = before.map_or(overrun.reached, |before| before.reached.max(overrun.reached));
        let (profile, target) = (&name.0, &name.1);
        tracing::warn!(%profile, %target, %overrun, "a target does not fit into its limit");
        let limited = Limited {
            overrun: Overrun { reached, ..overrun },
            attempt: Attempt::At(now + AGAIN + spread(&name)),
        };
        let (uid, generation) = (Arc::clone(&share.uid), share.generation);
        self.limited.insert(name, State { uid, generation, limited });
    }

    /// Tries those again whose time has come, or for whom there is room. A target that has just been
    /// seen to need more than the room there is waits: so two that do not fit together do not take
    /// turns.
    fn try_again(&mut self, kept: &[&Share], now: Duration) {
        let total = self.total.bytes();
        for ((profile, _), State { limited, .. }) in &mut self.limited {
            let Attempt::At(time) = limited.attempt else { continue };
            let Overrun { bound, measure, limit, reached, .. } = limited.overrun;
            let of = |is: &dyn Fn(&Share) -> bool| {
                let these = kept.iter().filter(|share| is(share));
                held(these.flat_map(|share| share.counted(bound, measure)), measure)
            };
            let taken = match bound {
                Bound::Profile => of(&|share| share.profile == *profile),
                Bound::Namespace => {
                    let statuses = self.statuses.get(&profile.namespace).copied().unwrap_or(0);
                    of(&|share| share.profile.namespace == profile.namespace)
                        .saturating_add(statuses)
                }
                Bound::Process => total,
            };
            let needed = taken.saturating_add(reached).saturating_add(limit / MARGIN);
            if time <= now || needed <= limit {
                limited.attempt = Attempt::UnderWay;
            }
        }
    }

    /// How a target of this generation of a profile is limited. An edit is a new chance.
    pub(super) fn of(
        &mut self,
        profile: &ProfileRef,
        (uid, generation): (&str, i64),
        target: &Arc<str>,
    ) -> Option<Limited> {
        let name = (profile.clone(), Arc::clone(target));
        let state = self.limited.get(&name)?;
        if *state.uid != *uid || state.generation != generation {
            self.limited.remove(&name);
            return None;
        }
        Some(state.limited)
    }

    /// Forgets the targets that do not exist any more; at the end of a run, when it is known which do.
    pub(super) fn retain(&mut self, exists: impl Fn(&ProfileRef, &str) -> bool) {
        self.limited.retain(|(profile, target), _| exists(profile, target));
    }

    /// Notes a target that runs; in the order of precedence.
    pub(super) fn admit(&mut self, share: Share) {
        self.shares.push(share);
    }

    /// What each profile leaves its cells, from what has been admitted.
    pub(super) fn leaves(&mut self) -> BTreeMap<ProfileRef, Leave> {
        let mut cells: BTreeMap<Whose, Vec<Arc<Gauge>>> = BTreeMap::new();
        for share in &self.shares {
            let mut count = |whose: Whose, bound, measure| {
                let counted = share.counted(bound, measure).cloned();
                cells.entry(whose).or_default().extend(counted);
            };
            if share.limits.max_objects.is_some() {
                count(Whose::Objects(share.profile.clone()), Bound::Profile, Measure::Objects);
            }
            if share.limits.max_bytes.is_some() {
                count(Whose::Memory(share.profile.clone()), Bound::Profile, Measure::Memory);
            }
            if self.bounds.namespace.is_some() && share.is_tenants {
                let whose = Whose::Namespace(Arc::clone(&share.profile.namespace));
                count(whose, Bound::Namespace, Measure::Memory);
            }
        }
        let mut before = std::mem::take(&mut self.allowances);
        let mut allow = |whose: Whose, objects, bytes, held| {
            let known = before.remove(&whose).filter(|known| known.is_of(objects, bytes, &held));
            let allowance = known.unwrap_or_else(|| Arc::new(Allowance::new(objects, bytes, held)));
            self.allowances.insert(whose, allowance);
        };
        let limits: BTreeMap<_, _> =
            self.shares.iter().map(|share| (&share.profile, share.limits)).collect();
        for (whose, mut held) in cells {
            // Cells that several targets share count once.
            held.sort_by_key(Arc::as_ptr);
            held.dedup_by(|a, b| Arc::ptr_eq(a, b));
            let (objects, bytes) = match &whose {
                Whose::Objects(profile) => {
                    (limits.get(profile).and_then(|it| it.max_objects), None)
                }
                Whose::Memory(profile) => (None, limits.get(profile).and_then(|it| it.max_bytes)),
                Whose::Namespace(namespace) => {
                    let statuses = self.statuses.get(namespace).copied().unwrap_or(0);
                    (None, self.bounds.namespace.map(|all| all.saturating_sub(statuses)))
                }
                Whose::Process => (None, self.bounds.process),
            };
            allow(whose, objects, bytes, Held::Cells(held));
        }
        if self.bounds.process.is_some() {
            let everything = Held::Everything(Arc::clone(&self.total));
            allow(Whose::Process, None, self.bounds.process, everything);
        }
        let leave = |profile: &ProfileRef| -> Leave {
            let whose = [
                Whose::Objects(profile.clone()),
                Whose::Memory(profile.clone()),
                Whose::Namespace(Arc::clone(&profile.namespace)),
                Whose::Process,
            ];
            whose.iter().filter_map(|whose| self.allowances.get(whose)).cloned().collect()
        };
        limits.into_keys().map(|profile| (profile.clone(), leave(profile))).collect()
    }
}

/// Up to a fifth of [`AGAIN`], always the same for the same target.
fn spread(name: &Name) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    AGAIN / 5 * u32::from(u8::try_from(hash % 256).unwrap_or(0)) / 256
}
