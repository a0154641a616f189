//! The budgets of process, namespaces and profiles: which targets have crossed one, and when they are tried
//! again.

use super::{
    fit::{Victims, fit},
    footprint::Footprint,
    resolve::{Cluster, Resolved},
};
use kubewarm_api::model::{
    Bound, Budget, CellSpec, Gauge, INFORMER_BYTES, Limited, Limits, Measure, Overrun, ProfileRef,
    ValidatedProfile,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

/// Until a target that did not fit is tried again without an edit; up to a fifth more, so that not
/// all of them list in the same moment. Each try costs a list up to the limit.
const AGAIN: Duration = Duration::from_mins(10);

/// What stores and informers may take, in bytes; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBounds {
    /// All together.
    pub process: Option<u64>,
    /// Those that the profiles of one namespace declare, other than the operator's own.
    pub namespace: Option<u64>,
}

/// A target, by its profile.
type Name = (ProfileRef, Arc<str>);

/// Holds the budgets, and remembers who did not fit. Bounded by the profiles and targets that exist.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The operator's namespace.
    home: Arc<str>,
    process: Arc<Budget>,
    /// For each namespace but the operator's.
    of_namespace: Limits,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    profiles: BTreeMap<ProfileRef, Arc<Budget>>,
    /// What the last run has let run.
    running: Vec<Footprint>,
    limited: BTreeMap<Name, State>,
    /// Targets whose old cells go.
    outdated: BTreeSet<Name>,
    /// What somebody pays for since the last run.
    charged: Vec<Arc<Gauge>>,
    /// What [`Limiter::refuse`] has found to be exceeded since the last review.
    refused: Vec<Overrun>,
}

#[derive(Debug)]
struct Namespace {
    budget: Arc<Budget>,
    /// What the statuses of its profiles take: whoever has large ones written has less room for objects.
    statuses: Gauge,
}

#[derive(Debug)]
struct State {
    uid: Arc<str>,
    generation: i64,
    limited: Limited,
}

impl Limiter {
    /// Nothing is used yet. `home` is the operator's namespace, whose profiles have no limit in common.
    pub(super) fn new(home: Arc<str>, bounds: MemoryBounds) -> Self {
        let bytes = |max_bytes| Limits { max_objects: None, max_bytes };
        Self {
            home,
            process: Arc::new(Budget::new(Bound::Process, bytes(bounds.process), None)),
            of_namespace: bytes(bounds.namespace),
            namespaces: BTreeMap::new(),
            profiles: BTreeMap::new(),
            running: Vec::new(),
            limited: BTreeMap::new(),
            outdated: BTreeSet::new(),
            charged: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The budget of the process.
    pub(super) fn process(&self) -> &Arc<Budget> {
        &self.process
    }

    /// Begins a run with the profiles that exist, and the bytes of their statuses.
    pub(super) fn begin<'a>(&mut self, all: impl Iterator<Item = (&'a ProfileRef, usize)>) {
        let mut statuses: BTreeMap<&str, u64> = BTreeMap::new();
        let mut profiles = BTreeSet::new();
        for (profile, bytes) in all {
            let taken = statuses.entry(&*profile.namespace).or_default();
            if *profile.namespace != *self.home {
                *taken = taken.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            }
            profiles.insert(profile);
        }
        self.profiles.retain(|profile, _| profiles.contains(profile));
        self.namespaces.retain(|namespace, _| statuses.contains_key(&**namespace));
        for (name, bytes) in statuses {
            self.namespace(name).statuses.set(0, bytes);
        }
    }

    fn namespace(&mut self, name: &str) -> &Namespace {
        let limits = if *name == *self.home { Limits::default() } else { self.of_namespace };
        let process = &self.process;
        self.namespaces.entry(name.into()).or_insert_with(|| {
            let parent = Some(Arc::clone(process));
            let budget = Arc::new(Budget::new(Bound::Namespace, limits, parent));
            let statuses = Gauge::default();
            statuses.add_payer(&budget);
            Namespace { budget, statuses }
        })
    }

    /// The budget of a profile, which has these limits from now on.
    pub(super) fn budget(&mut self, profile: &ProfileRef, limits: Limits) -> Arc<Budget> {
        if let Some(known) = self.profiles.get(profile) {
            known.set_limits(limits);
            return Arc::clone(known);
        }
        let parent = Some(Arc::clone(&self.namespace(&profile.namespace).budget));
        let budget = Arc::new(Budget::new(Bound::Profile, limits, parent));
        self.profiles.insert(profile.clone(), Arc::clone(&budget));
        budget
    }

    /// Looks at what has come to be held since the last run: who does not fit, who does after all, and who is
    /// tried again. Answers what was exceeded, for the first time or once more.
    pub(super) fn review(&mut self, cluster: &dyn Cluster, now: Duration) -> Vec<Overrun> {
        let mut running = std::mem::take(&mut self.running);
        for footprint in &mut running {
            footprint.look(cluster);
        }
        let Victims { outdated, stopped } = fit(&running);
        self.outdated =
            outdated.into_iter().filter_map(|at| running.get(at)).map(name_of).collect();
        for (at, footprint) in running.iter().enumerate() {
            let name = name_of(footprint);
            if let Some(&overrun) = stopped.get(&at) {
                self.stop(name, (&footprint.uid, footprint.generation), overrun, now);
            } else if footprint.is_synced
                && self.limited.get(&name).is_some_and(|it| !it.limited.is_stopped())
            {
                self.limited.remove(&name);
            }
        }
        for State { limited, .. } in self.limited.values_mut() {
            if limited.retry_at.is_some_and(|time| time <= now) {
                limited.retry_at = None;
            }
        }
        stopped.into_values().chain(std::mem::take(&mut self.refused)).collect()
    }

    /// Stops a target until it is edited, or for 10 to 12 minutes.
    fn stop(
        &mut self,
        name: Name,
        (uid, generation): (&Arc<str>, i64),
        overrun: Overrun,
        now: Duration,
    ) {
        let before = self.limited.get(&name).map(|state| state.limited.overrun);
        let before = before.filter(|before| before.measure == overrun.measure);
        let reached = before.map_or(overrun.reached, |before| before.reached.max(overrun.reached));
        let (profile, target) = (&name.0, &name.1);
        tracing::warn!(%profile, %target, %overrun, "a target does not fit into its limit");
        let limited = Limited {
            overrun: Overrun { reached, ..overrun },
            retry_at: Some(now + AGAIN + spread(&name)),
        };
        self.limited.insert(name, State { uid: Arc::clone(uid), generation, limited });
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

    /// Stops a tenant's target whose informers alone do not fit, before any of them starts. What a target of the
    /// operator's namespace needs, others have to give.
    pub(super) fn refuse(
        &mut self,
        valid: &ValidatedProfile,
        target: &Resolved,
        cluster: &dyn Cluster,
        now: Duration,
    ) -> Option<Limited> {
        let namespace = &valid.profile.namespace;
        let is_new = |cell: &&CellSpec| !cluster.gauge(&cell.key).is_charged();
        let new = target.cells.iter().chain(&target.namespaces).filter(is_new).count();
        if new == 0 || **namespace == *self.home {
            return None;
        }
        let needed = INFORMER_BYTES.saturating_mul(u64::try_from(new).unwrap_or(u64::MAX));
        let budget = Arc::clone(&self.namespace(namespace).budget);
        let overrun = budget.chain().find_map(|budget| {
            let (limit, used) = (budget.limit(Measure::Memory)?, budget.used(Measure::Memory));
            let is_exceeded = used.saturating_add(needed) > limit;
            is_exceeded.then(|| Overrun {
                bound: budget.bound(),
                measure: Measure::Memory,
                limit,
                reached: needed,
                others: used,
                objects: 0,
                expected: None,
            })
        })?;
        self.refused.push(overrun);
        let name = (valid.profile.clone(), Arc::clone(&target.name));
        self.stop(name.clone(), (&valid.uid, valid.generation), overrun, now);
        self.limited.get(&name).map(|state| state.limited)
    }

    /// Whether the old cells of a target go: together with its new ones they are too much.
    pub(super) fn is_outdated(&self, profile: &ProfileRef, target: &Arc<str>) -> bool {
        self.outdated.contains(&(profile.clone(), Arc::clone(target)))
    }

    /// Notes a target that runs, and charges what its cells hold; in the order of precedence.
    pub(super) fn admit(&mut self, footprint: Footprint) {
        for (gauge, payer) in footprint.charges() {
            gauge.add_payer(payer);
        }
        self.running.push(footprint);
    }

    /// Ends a run: nobody pays any more for what has not been admitted in it, and targets that do not exist
    /// any more are forgotten.
    pub(super) fn end(&mut self, exists: impl Fn(&ProfileRef, &str) -> bool) {
        let mut bills: BTreeMap<usize, (&Arc<Gauge>, Vec<Arc<Budget>>)> = BTreeMap::new();
        for (gauge, payer) in self.running.iter().flat_map(Footprint::charges) {
            let (_, payers) =
                bills.entry(Arc::as_ptr(gauge).addr()).or_insert_with(|| (gauge, Vec::new()));
            if !payers.contains(payer) {
                payers.push(Arc::clone(payer));
            }
        }
        for gone in &self.charged {
            if !bills.contains_key(&Arc::as_ptr(gone).addr()) {
                gone.charge_to(Vec::new());
            }
        }
        let charge = |(gauge, payers): (&Arc<Gauge>, Vec<Arc<Budget>>)| {
            gauge.charge_to(payers);
            Arc::clone(gauge)
        };
        self.charged = bills.into_values().map(charge).collect();
        self.limited.retain(|(profile, target), _| exists(profile, target));
    }
}

fn name_of(footprint: &Footprint) -> Name {
    (footprint.profile.clone(), Arc::clone(&footprint.target))
}

/// Up to a fifth of [`AGAIN`], always the same for the same target.
fn spread(name: &Name) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    AGAIN / 5 * u32::from(u8::try_from(hash % 256).unwrap_or(0)) / 256
}
