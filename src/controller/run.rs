//! The reconciliation: what all profiles together come to, and when to look again.

use super::{
    desired::want,
    intake::{Found, Intake, own_cell},
    resolve::{Resolved, Surroundings, resolve},
};
use crate::{
    api::AccessStatus,
    cluster::{Discovery, Pace, Served},
    informer::{Changes, Desired, Informers, Reports, apply, plan},
    manifests::Access,
    metrics::{OperatorMetrics, Reconciled},
    model::{
        CellKey, CellSpec, Declared, DeclaredTarget, InvalidName, Mode, ProfileRef, Reason,
        Refusal, RefusalReason, Serving, Subject, ValidatedProfile,
    },
    status::Observed,
    store::Catalog,
};
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Changes that come together are one: the end of a warm-up is many.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The share of a core that reconciling may take: after a run comes a rest of ten times its length.
const REST: u32 = 10;
/// Without any sign: faults of cells that turn into refusals, and back.
const RESYNC: Duration = Duration::from_secs(10);

/// What everyone else sees of the controller: the profiles as they are run.
#[derive(Clone, Debug, Default)]
pub struct Declarations(Arc<RwLock<Option<Arc<Vec<Observed>>>>>);

impl Declarations {
    /// Every profile; `None` before they have been listed and discovery has answered.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Vec<Observed>>> {
        self.0.read().clone()
    }

    /// The cells that all profiles declare, those of namespace selectors included.
    #[must_use]
    pub fn cells(&self) -> Option<Vec<CellKey>> {
        let profiles = self.get()?;
        let targets = profiles.iter().flat_map(|observed| &observed.declared.targets);
        let keys = targets.flat_map(|target| target.cells.iter().chain(&target.namespaces));
        // Cells that profiles share are one cell.
        let keys: BTreeSet<_> = keys.cloned().collect();
        Some(keys.into_iter().collect())
    }
}

/// What the controller reads.
pub struct Sources {
    /// The tables, of profiles and namespaces among them.
    pub catalog: Catalog,
    /// What the cells say.
    pub reports: Reports,
    /// When they say something new.
    pub changes: Changes,
    /// What is served.
    pub discovery: Discovery,
    /// Who reads; `None` until the API server has said so.
    pub subject: watch::Receiver<Option<Subject>>,
}

/// The controller of one process.
pub struct Controller<I> {
    sources: Sources,
    informers: I,
    declarations: Declarations,
    operator_namespace: Arc<str>,
    metrics: OperatorMetrics,
    started: Instant,
    own: CellSpec,
    intake: Intake,
    known: BTreeMap<ProfileRef, Known>,
}

/// What is remembered of a profile between two runs.
#[derive(Debug)]
struct Known {
    uid: Arc<str>,
    /// The newest valid generation, which is the one that runs.
    valid: Arc<ValidatedProfile>,
    accepted_at: Duration,
    serving: BTreeMap<Arc<str>, (Serving, Vec<CellSpec>)>,
    /// The roles, as long as the declared cells and the subject stay the same.
    access: Option<(Vec<DeclaredTarget>, Subject, Option<Arc<AccessStatus>>)>,
}

impl<I: Informers> Controller<I> {
    /// # Errors
    ///
    /// None in practice: [`own_cell`]'s names are constants.
    pub fn new(
        sources: Sources,
        informers: I,
        operator_namespace: Arc<str>,
        metrics: OperatorMetrics,
        started: Instant,
    ) -> Result<Self, InvalidName> {
        Ok(Self {
            sources,
            informers,
            declarations: Declarations::default(),
            operator_namespace,
            metrics,
            started,
            own: own_cell()?,
            intake: Intake::default(),
            known: BTreeMap::new(),
        })
    }

    /// A view of the profiles that outlives the controller.
    #[must_use]
    pub fn declarations(&self) -> Declarations {
        self.declarations.clone()
    }

    /// Runs until `stop`; gives the informers back, for whoever ends them.
    pub async fn run(mut self, stop: CancellationToken) -> I {
        let mut changes = self.sources.changes.subscribe();
        let mut served = self.sources.discovery.served();
        let mut subject = self.sources.subject.clone();
        loop {
            let began = Instant::now();
            self.reconcile();
            let rest = (began.elapsed() * REST).max(DEBOUNCE);
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                () = tokio::time::sleep(rest) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return self.informers,
                Ok(()) = changes.changed() => {}
                Ok(()) = served.changed() => {}
                Ok(()) = subject.changed() => {}
                () = tokio::time::sleep(RESYNC) => {}
            }
            changes.mark_unchanged();
        }
    }

    /// Brings the cells in line with the profiles.
    ///
    /// Takes all profiles, not what changed: a deleted one is simply absent, so no finalizer is
    /// needed for state that lives in memory. Everything but `apply` is pure; running it twice
    /// changes nothing.
    pub fn reconcile(&mut self) {
        let timer = self.metrics.reconcile();
        let mut desired = Desired::new();
        want(&mut desired, self.own.clone(), Mode::Active);
        let served = self.sources.discovery.served().borrow().clone();
        let found = self.profiles();
        let listed = found.is_some();
        let found = found.unwrap_or_default();
        self.known.retain(|profile, _| found.iter().any(|found| found.profile == *profile));

        let mut observed = Vec::with_capacity(found.len());
        let mut is_something_missing = false;
        for found in found {
            let declared = self.declare(&found, served.as_deref(), &mut desired);
            is_something_missing |= declared.targets.iter().any(is_missing);
            let access = self.access(&declared);
            observed.push(Observed {
                declared: Arc::new(declared),
                access,
                in_cluster: found.status.clone(),
            });
        }

        if listed || self.informers.running().is_empty() {
            apply(plan(&desired, &self.informers.running()), &mut self.informers);
        }
        self.sources.discovery.set_pace(if is_something_missing {
            Pace::Hurried
        } else {
            Pace::Calm
        });
        if listed && served.is_some() {
            *self.declarations.0.write() = Some(Arc::new(observed));
        }
        timer.finish(Reconciled::Ok);
    }

    /// Every profile; `None` while they have never been listed.
    fn profiles(&mut self) -> Option<Vec<Found>> {
        self.sources.reports.get(&self.own.key)?.synced_at?;
        let table = self.sources.catalog.reader(&self.own.key)?;
        Some(self.intake.read(&table))
    }

    fn declare(
        &mut self,
        found: &Found,
        served: Option<&Served>,
        desired: &mut Desired,
    ) -> Declared {
        let now = self.started.elapsed();
        let known = self.known.remove(&found.profile).filter(|known| known.uid == found.uid);
        let (valid, refused) = match (&found.parsed, &known) {
            (Ok(valid), _) => (Some(Arc::clone(valid)), None),
            (Err(refusal), Some(known)) => (Some(Arc::clone(&known.valid)), Some(refusal.clone())),
            (Err(refusal), None) => (None, Some(refusal.clone())),
        };
        let Some(valid) = valid else {
            return unrunnable(found, refused, now);
        };
        let same = known.as_ref().is_some_and(|known| known.valid.generation == valid.generation);
        let (accepted_at, mut serving, access) = known.map_or_else(
            || (now, BTreeMap::new(), None),
            |known| (if same { known.accepted_at } else { now }, known.serving, known.access),
        );

        let around = Surroundings {
            served,
            operator_namespace: &self.operator_namespace,
            namespaces: &|key| self.namespaces(key),
        };
        let resolved = resolve(&valid, &around);
        serving.retain(|name, _| resolved.iter().any(|target| target.name == *name));
        let mut targets = Vec::with_capacity(resolved.len());
        for target in resolved {
            targets.push(self.settle(target, &valid, &mut serving, desired));
        }
        let declared = Declared {
            profile: found.profile.clone(),
            uid: Arc::clone(&found.uid),
            generation: found.generation,
            refused,
            mode: valid.mode,
            targets,
            objective: valid.warmup.objective,
            max_staleness: valid.max_staleness,
            accepted_at,
        };
        let uid = Arc::clone(&found.uid);
        let known = Known { uid, valid, accepted_at, serving, access };
        self.known.insert(found.profile.clone(), known);
        declared
    }

    /// Wants the target's cells, and those that still answer for it until these are synced.
    fn settle(
        &self,
        target: Resolved,
        valid: &ValidatedProfile,
        serving: &mut BTreeMap<Arc<str>, (Serving, Vec<CellSpec>)>,
        desired: &mut Desired,
    ) -> DeclaredTarget {
        let Resolved { name, requirement, declared_as, outcome, cells, namespaces } = target;
        let cells_known = namespaces.as_ref().is_none_or(|cell| self.is_synced(&cell.key));
        let accepted = matches!(outcome, Some(Ok(_)));
        if accepted && cells_known && cells.iter().all(|cell| self.is_synced(&cell.key)) {
            let keys = cells.iter().map(|cell| cell.key.clone()).collect();
            let now = Serving { generation: valid.generation, cells: keys };
            serving.insert(Arc::clone(&name), (now, cells.clone()));
        } else if matches!(outcome, Some(Err(_))) {
            // A kind that went takes its tables with it.
            serving.remove(&name);
        }
        let old = serving.get(&name);
        for spec in old.into_iter().flat_map(|(_, specs)| specs) {
            if !cells.iter().any(|cell| cell.key == spec.key) {
                want(desired, spec.clone(), valid.mode);
            }
        }
        for spec in cells.iter().chain(&namespaces) {
            want(desired, spec.clone(), valid.mode);
        }
        let outcome = outcome.map(|outcome| {
            outcome.and_then(|kind| {
                cells.iter().find_map(|cell| self.refusal(&name, cell)).map_or(Ok(kind), Err)
            })
        });
        DeclaredTarget {
            requirement,
            declared_as,
            resolved: outcome,
            cells: cells.into_iter().map(|cell| cell.key).collect(),
            namespaces: namespaces.map(|cell| cell.key),
            serving: old.map(|(serving, _)| serving.clone()),
            name,
        }
    }

    /// What only the server can say, and only when it is asked: the cell runs on, so that it is
    /// noticed when the answer changes.
    fn refusal(&self, target: &str, cell: &CellSpec) -> Option<Refusal> {
        let fault = self.sources.reports.get(&cell.key)?.fault?;
        match fault.reason {
            Reason::Unsupported if !cell.key.fields.is_empty() => Some(Refusal::new(
                RefusalReason::UnsupportedField,
                format!(
                    "targets[{target}].fieldSelectors: the API server does not select {} by {}: {}; \
                     remove the selector, or use a label",
                    cell.key.resource, cell.key.fields, fault.message
                ),
            )),
            Reason::NotListable => Some(Refusal::new(
                RefusalReason::NotListable,
                format!(
                    "targets[{target}].resource: {} cannot be listed and watched: {}",
                    cell.key.resource, fault.message
                ),
            )),
            Reason::NotServed => {
                // Discovery knows sooner if it is asked now.
                self.sources.discovery.refresh();
                None
            }
            Reason::Forbidden
            | Reason::Unauthorized
            | Reason::NamespaceNotFound
            | Reason::Gone
            | Reason::Unsupported
            | Reason::VersionAhead
            | Reason::Throttled
            | Reason::ServerError
            | Reason::Unreachable
            | Reason::TimedOut
            | Reason::Malformed
            | Reason::TooLarge
            | Reason::Lagging
            | Reason::ClosedAtOnce
            | Reason::Internal => None,
        }
    }

    fn is_synced(&self, key: &CellKey) -> bool {
        self.sources.reports.get(key).is_some_and(|report| report.synced_at.is_some())
    }

    /// The names in a cell of namespaces, once it is synced.
    fn namespaces(&self, key: &CellKey) -> Option<Vec<Arc<str>>> {
        let report = self.sources.reports.get(key)?;
        report.synced_at?;
        let names = self.sources.catalog.reader(key)?.keys(None, usize::MAX);
        Some(names.into_iter().map(|key| key.name.into()).collect())
    }

    /// `status.access`, computed anew only when cells or subject change.
    fn access(&mut self, declared: &Declared) -> Option<Arc<AccessStatus>> {
        let subject = self.sources.subject.borrow().clone()?;
        let known = self.known.get_mut(&declared.profile)?;
        if let Some((targets, of, access)) = &known.access
            && *of == subject
            && same_cells(targets, &declared.targets)
        {
            return access.clone();
        }
        let access = match Access::of_cells(declared, subject.clone()) {
            Ok(access) => Some(Arc::new(access.status().0)),
            Err(error) => {
                tracing::warn!(profile = %declared.profile, %error, "no manifests for a profile");
                None
            }
        };
        known.access = Some((declared.targets.clone(), subject, access.clone()));
        access
    }
}

/// Whether the permissions follow from the same cells.
fn same_cells(a: &[DeclaredTarget], b: &[DeclaredTarget]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.cells == b.cells && a.namespaces == b.namespaces)
}

/// A profile that was never valid: it declares nothing and says why.
fn unrunnable(found: &Found, refused: Option<Refusal>, now: Duration) -> Declared {
    Declared {
        profile: found.profile.clone(),
        uid: Arc::clone(&found.uid),
        generation: found.generation,
        refused,
        mode: Mode::Active,
        targets: Vec::new(),
        objective: None,
        max_staleness: Duration::from_mins(2),
        accepted_at: now,
    }
}

fn is_missing(target: &DeclaredTarget) -> bool {
    let refusal = target.resolved.as_ref().and_then(|resolved| resolved.as_ref().err());
    refusal.is_some_and(|refusal| refusal.reason == RefusalReason::UnknownResource)
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("reports", &self.reports).finish_non_exhaustive()
    }
}

impl<I> fmt::Debug for Controller<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("profiles", &self.known.len()).finish_non_exhaustive()
    }
}
