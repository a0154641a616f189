//! What all profiles together come to: their targets, and the cells that should exist. Pure but for
//! its memory of the last valid spec of each.

use super::{
    admission::Admission,
    desired::{LeftOut, Wishes},
    footprint::Footprint,
    intake::Found,
    kept::{Valid, instead, with_note},
    kinds::Kinds,
    limiter::{Limiter, MemoryBounds},
    outlook::ordered,
    quota::{InformerLimits, InformerQuota, InformerQuotas},
    resolve::{Cluster, Resolved, resolve},
    settle::{Targets, planned, settle, within},
};
use crate::{forecast::Order, status::Observed};
use jiff::Timestamp;
use kubewarm_api::{
    manifests::Access,
    model::{
        AuthorCheck, Budget, CellKey, Declared, DeclaredTarget, Home, Limits, Mode, OnAccessLost,
        Overrun, ProfileRef, ReadTerms, Reason, Refusal, RefusalReason, Subject, Target,
        ValidatedProfile,
    },
    v1alpha1::AccessStatus,
};
use kubewarm_cache::informer::Desired;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Remembers profiles between two runs. Bounded by the profiles that exist.
#[derive(Debug)]
pub(super) struct Reconciler {
    home: Home,
    known: BTreeMap<ProfileRef, Known>,
    /// Profiles whose last valid generation is not kept, and why.
    dropped: BTreeMap<ProfileRef, Dropped>,
    kinds: Kinds,
    left_out: LeftOut,
    limiter: Limiter,
    informers: InformerLimits,
    admission: Admission,
}

/// A profile without a valid generation that may run, and had one.
#[derive(Debug)]
struct Dropped {
    uid: Arc<str>,
    note: String,
}

/// What a run comes to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The cells of all profiles.
    pub(super) desired: Desired,
    /// The profiles whose cost is to be forecast.
    pub(super) orders: Vec<Order>,
    /// The profiles, for those who report on them.
    pub(super) observed: Vec<Observed>,
    /// Whether some kind is not served, so that discovery should hurry.
    pub(super) is_kind_missing: bool,
    /// Limits that were found to be exceeded.
    pub(super) exceeded: Vec<Overrun>,
    /// Whether the server denies a kind that discovery still lists.
    pub(super) is_discovery_behind: bool,
}

/// What is remembered of a profile between two runs.
#[derive(Debug)]
struct Known {
    uid: Arc<str>,
    /// The newest valid generation, which is the one that runs; forgotten once a newer one, valid or
    /// not, names somebody else to read, and when it does not fit beside the specs that are held.
    valid: Valid,
    accepted_at: Duration,
    targets: Targets,
    /// The roles, as long as the declared cells and the subject stay the same.
    access: Option<(Vec<DeclaredTarget>, Subject, Option<Arc<AccessStatus>>)>,
}

impl Reconciler {
    /// Remembers nothing yet. Stores and informers keep to `bounds` and `informers`.
    pub(super) fn new(
        home: Home,
        bounds: MemoryBounds,
        informers: InformerLimits,
        admission: Admission,
    ) -> Self {
        let limiter = Limiter::new(Arc::clone(&home.namespace), bounds);
        Self {
            home,
            known: BTreeMap::new(),
            dropped: BTreeMap::new(),
            kinds: Kinds::default(),
            left_out: LeftOut::new(),
            limiter,
            informers,
            admission,
        }
    }

    /// What all stores are charged to.
    pub(super) fn process(&self) -> &Arc<Budget> {
        self.limiter.process()
    }

    /// Computes what `profiles` come to.
    ///
    /// Takes all of them, not what changed: a deleted one is simply absent, so no finalizer is
    /// needed for state that lives in memory. `now` is the time since the process started. Running
    /// it twice with the same input gives the same answer.
    pub(super) fn reconcile(
        &mut self,
        profiles: &[Found],
        cluster: &dyn Cluster,
        subject: Option<&Subject>,
        now: Duration,
    ) -> Outcome {
        let exist: BTreeSet<_> = profiles.iter().map(|found| &found.profile).collect();
        self.known.retain(|profile, _| exist.contains(profile));
        self.dropped.retain(|profile, _| exist.contains(profile));
        self.limiter.begin(profiles.iter().map(|found| (&found.profile, found.status_bytes)));
        let exceeded = self.limiter.review(cluster, now);
        let mut outcome = Outcome { exceeded, ..Outcome::default() };
        let (mut wishes, mut quotas) = (Wishes::default(), InformerQuotas::new(self.informers));
        let mut declared: Vec<_> = by_precedence(profiles, &self.home.namespace)
            .into_iter()
            .map(|found| {
                let home = Arc::clone(&self.home.namespace);
                let quota = quotas.of(&found.profile.namespace, &home);
                let (declared, order) = self.declare(found, cluster, now, &mut wishes, quota);
                outcome.orders.extend(order);
                (found, declared)
            })
            .collect();
        self.limiter.end(|profile, target| {
            let known = self.known.get(profile);
            known.is_some_and(|known| {
                known.valid.profile.targets.iter().any(|it| *it.name == *target)
            })
        });
        declared.sort_by(|(a, _), (b, _)| a.profile.cmp(&b.profile));
        let (desired, left_out) = wishes.settle(|key| cluster.gauge(key));
        outcome.desired = desired;
        for (found, mut declared) in declared {
            tell(&mut declared, &left_out);
            outcome.is_kind_missing |= declared.targets.iter().any(is_missing);
            let cells = declared.targets.iter().flat_map(|target| target.cells.iter());
            outcome.is_discovery_behind |= cells.into_iter().any(|key| is_denied(key, cluster));
            let access = self.access(&declared, subject);
            let in_cluster = found.status.clone();
            outcome.observed.push(Observed {
                declared: Arc::new(declared),
                access,
                excess: None,
                plan: None,
                in_cluster,
            });
        }
        outcome.is_kind_missing |= self.kinds.is_any_missed();
        self.kinds.end_run();
        self.log(left_out);
        outcome
    }

    /// Logs the indexes that have been left out since the last run; the statuses say all.
    fn log(&mut self, left_out: LeftOut) {
        for ((profile, target), paths) in &left_out {
            if self.left_out.get(&(profile.clone(), Arc::clone(target))) != Some(paths) {
                let indexes = paths.len();
                tracing::warn!(%profile, %target, indexes, "no room in the table for declared indexes");
            }
        }
        self.left_out = left_out;
    }

    /// Resolves a target. A kind that one answer of discovery lacks counts as served on, unless the
    /// target's own cells have been told that it is gone.
    fn resolve(
        &mut self,
        valid: &ValidatedProfile,
        target: &Target,
        cluster: &dyn Cluster,
        now: Duration,
    ) -> Resolved {
        let (of, version) = (&target.of, target.version.as_ref());
        let answer = cluster.resolve(of, version.map(|version| &**version));
        let believed = answer.clone().map(|answer| self.kinds.believe(of, version, answer, now));
        let home = &self.home;
        let resolved = resolve(valid, target, home, believed, cluster);
        if self.kinds.is_missed(of, version)
            && resolved.cells.iter().any(|cell| is_denied(&cell.key, cluster))
        {
            self.kinds.forget(of, version);
            return resolve(valid, target, home, answer, cluster);
        }
        resolved
    }

    /// The generation of a profile that is to run, and why that is not the newest.
    fn choose(&mut self, found: &Found, last: Option<&Valid>) -> (Option<Valid>, Option<Refusal>) {
        let unrunnable = match &found.parsed {
            Ok(valid) => {
                self.dropped.remove(&found.profile);
                self.admission.release(&found.profile);
                let profile = Arc::clone(valid);
                return (Some(Valid { profile, bytes: found.spec_bytes }), None);
            }
            Err(unrunnable) => unrunnable,
        };
        let refusal = &unrunnable.refusal;
        if let Some(last) = last {
            match instead(&found.profile, unrunnable, last, &self.admission) {
                Ok(()) => return (Some(last.clone()), Some(refusal.clone())),
                Err(note) => {
                    let (profile, uid) = (&found.profile, Arc::clone(&found.uid));
                    tracing::warn!(%profile, %note, "an edited profile runs no longer");
                    self.dropped.insert(profile.clone(), Dropped { uid, note });
                }
            }
        }
        self.admission.release(&found.profile);
        let dropped = self.dropped.get(&found.profile).filter(|it| it.uid == found.uid);
        (None, Some(with_note(refusal, dropped.map(|dropped| &*dropped.note))))
    }

    fn declare(
        &mut self,
        found: &Found,
        cluster: &dyn Cluster,
        now: Duration,
        wishes: &mut Wishes,
        mut quota: InformerQuota<'_>,
    ) -> (Declared, Option<Order>) {
        let known = self.known.remove(&found.profile).filter(|known| known.uid == found.uid);
        let (runs, refused) = self.choose(found, known.as_ref().map(|known| &known.valid));
        let Some(runs) = runs else {
            return (unrunnable(found, refused, now), None);
        };
        let valid = &*runs.profile;
        let same =
            known.as_ref().is_some_and(|known| known.valid.profile.generation == valid.generation);
        let (accepted_at, mut remembered, access) = known.map_or_else(
            || (now, Targets::default(), None),
            |known| (if same { known.accepted_at } else { now }, known.targets, known.access),
        );

        if valid.mode == Mode::Plan {
            // Nothing answers for what is only planned.
            remembered = Targets::default();
        }
        remembered.renew(valid, cluster);
        let mut orders = Vec::new();
        let targets = valid.targets.iter().map(|target| {
            let resolved = within(&mut quota, self.resolve(valid, target, cluster, now));
            let fits = |cells| quota.take(&target.name, cells).is_ok();
            remembered.retain(&resolved, fits);
            if valid.mode == Mode::Plan {
                orders.extend(ordered(&resolved));
                return planned(resolved);
            }
            let running = (&*found.uid, valid.generation);
            let limited = self.limiter.of(&found.profile, running, &target.name);
            let limited = if limited.is_some_and(|limited| limited.is_stopped()) {
                limited
            } else {
                self.limiter.refuse(valid, &resolved, cluster, now).or(limited)
            };
            if limited.is_some() || self.limiter.is_outdated(&found.profile, &target.name) {
                remembered.drop(&target.name);
            }
            let (declared, holding) =
                settle(resolved, valid, cluster, &mut remembered, wishes, limited);
            if !declared.is_stopped() {
                let is_tenants = *found.profile.namespace != *self.home.namespace;
                let budget = self.limiter.budget(&found.profile, valid.limits);
                let footprint = Footprint::of(valid, target, budget, is_tenants, holding, cluster);
                self.limiter.admit(footprint);
            }
            declared
        });
        let targets = targets.collect();
        let order = (valid.mode == Mode::Plan).then(|| Order {
            profile: found.profile.clone(),
            uid: Arc::clone(&found.uid),
            generation: found.generation,
            max_concurrent_lists: valid.warmup.max_concurrent_lists,
            targets: orders,
        });
        let declared = Declared {
            profile: found.profile.clone(),
            uid: Arc::clone(&found.uid),
            generation: found.generation,
            refused,
            service_account: valid.service_account.clone(),
            authors: cluster.authors(),
            mode: valid.mode,
            targets,
            objective: valid.warmup.objective,
            max_staleness: valid.max_staleness,
            on_access_lost: valid.on_access_lost,
            reads: valid.reads,
            limits: valid.limits,
            accepted_at,
        };
        let uid = Arc::clone(&found.uid);
        let known = Known { uid, valid: runs, accepted_at, targets: remembered, access };
        self.known.insert(found.profile.clone(), known);
        (declared, order)
    }

    /// `status.access`, computed anew only when cells or subject change.
    fn access(
        &mut self,
        declared: &Declared,
        subject: Option<&Subject>,
    ) -> Option<Arc<AccessStatus>> {
        let subject = subject?;
        let known = self.known.get_mut(&declared.profile)?;
        if let Some((targets, of, access)) = &known.access
            && of == subject
            && same_cells(targets, &declared.targets)
        {
            return access.clone();
        }
        let access = match Access::of_cells(declared, subject, &self.home.watched) {
            Ok(access) => Some(Arc::new(access.status())),
            Err(error) => {
                tracing::warn!(profile = %declared.profile, %error, "no manifests for a profile");
                None
            }
        };
        known.access = Some((declared.targets.clone(), subject.clone(), access.clone()));
        access
    }
}

/// Profiles of the operator's namespace first, then by who declared first: what a tenant cannot
/// choose, as it can a name.
fn by_precedence<'a>(profiles: &'a [Found], operator_namespace: &str) -> Vec<&'a Found> {
    let mut all: Vec<_> = profiles.iter().collect();
    all.sort_by_key(|found| {
        let tenants = *found.profile.namespace != *operator_namespace;
        (tenants, found.created.unwrap_or(Timestamp::MAX), &found.uid, &found.profile)
    });
    all
}

/// Has each target say which of its indexes its tables have no room for.
fn tell(declared: &mut Declared, left_out: &LeftOut) {
    if left_out.is_empty() {
        return;
    }
    for target in &mut declared.targets {
        let by = (declared.profile.clone(), Arc::clone(&target.name));
        target.left_out = left_out.get(&by).into_iter().flatten().cloned().collect();
    }
}

/// Whether the permissions follow from the same cells.
fn same_cells(a: &[DeclaredTarget], b: &[DeclaredTarget]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.cells == b.cells && a.namespaces == b.namespaces)
}

/// A profile without a valid generation that may run: it declares nothing and says why.
fn unrunnable(found: &Found, refused: Option<Refusal>, now: Duration) -> Declared {
    Declared {
        profile: found.profile.clone(),
        uid: Arc::clone(&found.uid),
        generation: found.generation,
        refused,
        service_account: None,
        authors: AuthorCheck::Unknown,
        mode: Mode::Active,
        targets: Vec::new(),
        objective: None,
        max_staleness: Duration::from_mins(2),
        on_access_lost: OnAccessLost::default(),
        reads: ReadTerms::default(),
        limits: Limits::default(),
        accepted_at: now,
    }
}

fn is_missing(target: &DeclaredTarget) -> bool {
    let refusal = target.resolved.as_ref().and_then(|resolved| resolved.as_ref().err());
    refusal.is_some_and(|refusal| refusal.reason == RefusalReason::UnknownResource)
}

/// Whether the server answers 404 for a cell's kind.
fn is_denied(key: &CellKey, cluster: &dyn Cluster) -> bool {
    let fault = cluster.report(key).and_then(|report| report.fault);
    fault.is_some_and(|fault| fault.reason == Reason::NotServed)
}
