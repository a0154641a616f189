//! From a resolved target to what is declared of it: its cells, and those that answer meanwhile. Pure.

use super::{cluster::ClusterView, desired::Wishes, holding::Holding};
use kubewarm_api::model::{
    Budget, CellKey, CellSpec, DeclaredTarget, Identity, Limited, Overrun, ProfileRef, Projection,
    Reason, Refusal, RefusalReason, ResourceInfo, SecretData, Serving, Target, ValidatedProfile,
};
use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

/// Until a target that did not fit is tried again without an edit; up to a fifth more, so that not
/// all of them list in the same moment. Each try costs a list up to the limit.
const AGAIN: Duration = Duration::from_mins(10);

/// How long a kind may be missing before it counts as gone: two polls of discovery while it hurries.
/// An API server that has just started lists the groups of custom resources a little late.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is remembered of a target between two runs.
#[derive(Debug, Default)]
pub(super) struct KnownTarget {
    /// What answers, until something newer is synced.
    serving: Option<Serving>,
    /// What the last run declared and nobody has seen synced: it may be by the next one, which finds
    /// the target edited already.
    warming: Option<Serving>,
    /// The limit that it did not fit into, until it is synced within it.
    pub(super) limited: Option<Limited>,
    /// What it holds, if it runs.
    pub(super) holding: Option<Holding>,
    /// What discovery said last of its kind, and since when that is missing.
    kind: Option<(ResourceInfo, Option<Duration>)>,
    /// The cell of its selector, with the namespaces in the cell's store when that was last complete.
    selected: Option<(CellKey, Vec<Arc<str>>)>,
    /// The same cell, with the number of namespaces that were last found. Nobody keeps the names of a planned
    /// target that is refused.
    matched: Option<(CellKey, usize)>,
}

impl KnownTarget {
    /// What its kind comes to, now that discovery says `answer`: what it came to before, if it has been missing
    /// for less than 10 s and the target's own cells have not been told that it is gone.
    pub(super) fn believe(
        &mut self,
        target: &Target,
        answer: Result<ResourceInfo, Refusal>,
        cluster: &ClusterView<'_>,
        now: Duration,
    ) -> Result<ResourceInfo, Refusal> {
        let known = self.kind.take();
        let refusal = match answer {
            Ok(kind) => {
                self.kind = Some((kind.clone(), None));
                return Ok(kind);
            }
            Err(refusal) => refusal,
        };
        let is_same = |(kind, _): &(ResourceInfo, _)| {
            kind.resource.group_resource() == &target.of
                && target.version.as_deref().is_none_or(|it| it == kind.resource.version())
        };
        let is_unknown = refusal.reason == RefusalReason::UnknownResource;
        let Some((kind, since)) = known.filter(|known| is_unknown && is_same(known)) else {
            return Err(refusal);
        };
        let since = since.unwrap_or(now);
        let is_denied = self.holding.as_ref().is_some_and(|holding| holding.is_denied(cluster));
        if is_denied || now.saturating_sub(since) >= PATIENCE {
            return Err(refusal);
        }
        self.kind = Some((kind.clone(), Some(since)));
        Ok(kind)
    }

    /// The names of the namespaces that its selector matches; `None` before they are known.
    ///
    /// The last known ones count on where the store has been emptied since it was complete. After a loss of access to
    /// namespaces, for one: cells live by their own access. They also count while the selector's cell does not exist: a
    /// target that a limit has stopped declares what it had.
    pub(super) fn names(
        &mut self,
        cell: &CellKey,
        cluster: &ClusterView<'_>,
    ) -> Option<Vec<Arc<str>>> {
        let names = self.find_names(cell, cluster);
        if let Some(names) = &names {
            self.matched = Some((cell.clone(), names.len()));
        }
        self.matched.take_if(|(of, _)| of != cell);
        names
    }

    fn find_names(&mut self, cell: &CellKey, cluster: &ClusterView<'_>) -> Option<Vec<Arc<str>>> {
        // The store may have been emptied after the report was taken.
        if cluster.is_synced(cell)
            && let Some(names) = (cluster.names)(cell)
        {
            self.selected = Some((cell.clone(), names.clone()));
            return Some(names);
        }
        let last = || {
            let (of, names) = self.selected.as_ref()?;
            (of == cell).then(|| names.clone())
        };
        let planned = || (cluster.planned_names)(cell);
        match cluster.reports.get(cell) {
            None => planned().or_else(last),
            Some(report) if report.lost.is_some() || report.synced_at.is_some() => {
                last().or_else(planned)
            }
            Some(_) => planned(),
        }
    }

    /// Forgets the namespaces of a target without a selector, or of one that is refused together with its selector.
    pub(super) fn forget_names(&mut self) {
        (self.selected, self.matched) = (None, None);
    }

    /// How many cells a planned `target` has, or would have if the names of its namespaces were known.
    pub(super) fn count_cells(&self, target: &DeclaredTarget) -> usize {
        let matched = self.matched.as_ref().filter(|_| target.namespaces.is_some());
        // One cell for each namespace, and the selector's own.
        target.all_cells().count().max(matched.map_or(0, |(_, count)| count + 1))
    }

    /// Whether discovery does not list its kind, and the last answer still counts.
    pub(super) fn is_kind_missing(&self) -> bool {
        self.kind.as_ref().is_some_and(|(_, since)| since.is_some())
    }

    /// Nothing answers for what is only planned.
    pub(super) fn forget_cells(&mut self) {
        let Self { kind, selected, matched, .. } = std::mem::take(self);
        *self = Self { kind, selected, matched, ..Self::default() };
    }

    /// Forgets what may not answer for `target` any more, and lets that answer which has synced since.
    pub(super) fn renew(
        &mut self,
        target: &Target,
        identity: &Identity,
        cluster: &ClusterView<'_>,
    ) {
        let is_synced = |it: &Serving| it.cells.iter().all(|cell| cluster.is_warm(&cell.key));
        self.serving = self.warming.take().filter(is_synced).or_else(|| self.serving.take());
        self.serving.take_if(|old| !may_answer(old, target, identity));
    }

    /// Lets go of what answers for a target that is refused: a kind that went takes its tables with
    /// it. A target that has grown too large keeps what it had, if that fits.
    pub(super) fn retain(&mut self, target: &DeclaredTarget, fits: impl FnOnce(usize) -> bool) {
        let Some(Err(refusal)) = &target.resolved else { return };
        let cells = self.serving.as_ref().map_or(0, |old| old.cells.len());
        if refusal.reason != RefusalReason::TooManyInformers || !fits(cells) {
            self.serving = None;
        }
    }

    /// Lets go of the old cells that answer for a target that runs.
    pub(super) fn drop_old(&mut self) {
        if self.holding.as_mut().is_some_and(Holding::drop_old) {
            self.serving = None;
        }
    }

    /// Stops a target until it is edited, or for 10 to 12 minutes.
    pub(super) fn stop(
        &mut self,
        (profile, target): (&ProfileRef, &Arc<str>),
        overrun: Overrun,
        now: Duration,
    ) {
        let before = self.limited.map(|limited| limited.overrun);
        let before = before.filter(|before| before.measure == overrun.measure);
        let reached = before.map_or(overrun.reached, |before| before.reached.max(overrun.reached));
        tracing::warn!(%profile, %target, %overrun, "a target does not fit into its limit");
        self.limited = Some(Limited {
            overrun: Overrun { reached, ..overrun },
            retry_at: Some(now + AGAIN + spread(profile, target)),
        });
        self.holding = None;
    }

    /// Whether a limit keeps it from running.
    pub(super) fn is_stopped(&self) -> bool {
        self.limited.is_some_and(|limited| limited.is_stopped())
    }

    /// Forgets the limit of a target that has been listed within it, and tries one again that has rested.
    pub(super) fn try_again(&mut self, cluster: &ClusterView<'_>, now: Duration) {
        let Some(limited) = &mut self.limited else { return };
        let holding = self.holding.as_ref();
        if limited.is_stopped() {
            limited.retry_at.take_if(|time| *time <= now);
        } else if holding.is_some_and(|it| it.is_synced(cluster)) {
            self.limited = None;
        }
    }
}

/// Up to a fifth of [`AGAIN`], always the same for the same target.
fn spread(profile: &ProfileRef, target: &Arc<str>) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((profile, target));
    AGAIN / 5 * u32::from(u8::try_from(hash % 256).unwrap_or(0)) / 256
}

/// Whether an edit leaves the old cells the right to answer. What another account reads does not
/// answer: nobody asked whether the new spec's author may act as that one. Nor do secrets that are
/// held whole answer for a target that no longer holds them so.
fn may_answer(old: &Serving, target: &Target, identity: &Identity) -> bool {
    let holds_whole = |data: SecretData, projection: Projection| {
        data == SecretData::Allow && matches!(projection, Projection::Full(_))
    };
    let may_hold_whole = holds_whole(target.secret_data, target.projection);
    old.cells.iter().all(|CellSpec { key, .. }| {
        key.identity == *identity
            && (may_hold_whole || !holds_whole(key.secret_data, key.projection))
    })
}

/// Failures in a row of a new version's cell that nobody needs to hear of: a server that has just
/// taken a definition in may refuse for a moment.
const PASSING_FAILURES: u32 = 3;

/// Has `quota` take the target's `cells`; of a target that does not fit, none is left but the one that notices when
/// fewer namespaces match, if at least that one fits.
pub(super) fn within(
    quota: &mut impl FnMut(usize) -> Result<(), Refusal>,
    cells: usize,
    mut target: DeclaredTarget,
) -> DeclaredTarget {
    if let Err(refusal) = quota(cells) {
        target.resolved = Some(Err(refusal));
        target.cells = [].into();
        target.namespaces.take_if(|_| quota(1).is_err());
    }
    target
}

/// Wants the target's cells, and those that still answer for it until these are synced, and has `budget` pay for
/// both.
pub(super) fn settle(
    mut declared: DeclaredTarget,
    valid: &ValidatedProfile,
    cluster: &ClusterView<'_>,
    state: &mut KnownTarget,
    (budget, priority): (&Arc<Budget>, u16),
    wishes: &mut Wishes,
) -> DeclaredTarget {
    let is_stopped = state.is_stopped();
    if state.limited.is_some() {
        // Nothing answers before it has been listed completely within the limit, even if another profile keeps
        // the same cells warm.
        state.serving = None;
    }
    let is_warm = |cell: &CellSpec| cluster.is_warm(&cell.key);
    let cells_known = declared.namespaces.as_ref().is_none_or(is_warm);
    if let Some(Ok(kind)) = &declared.resolved
        && cells_known
        && !is_stopped
    {
        let now = Serving {
            generation: valid.generation,
            kind: kind.clone(),
            cells: Arc::clone(&declared.cells),
        };
        let is_warm = declared.cells.iter().all(is_warm);
        *(if is_warm { &mut state.serving } else { &mut state.warming }) = Some(now);
    }
    let old = state.serving.as_ref();
    let is_old = |spec: &&CellSpec| declared.cells.iter().all(|cell| cell.key != spec.key);
    let old_cells = old.iter().flat_map(|old| &*old.cells).filter(is_old);
    let old_cells: Vec<_> = old_cells.cloned().collect();
    for spec in &old_cells {
        wishes.add(spec, valid.mode, None);
    }
    if is_stopped {
        state.holding = None;
    } else {
        for spec in &*declared.cells {
            wishes.add(spec, valid.mode, Some(&declared.name));
        }
        // Its index is not the author's, and no loss where it has no room.
        let selector = declared.namespaces.as_ref();
        if let Some(spec) = selector {
            wishes.add(spec, valid.mode, None);
        }
        state.holding = Some(Holding::new(budget, priority, &declared.cells, &old_cells, selector));
    }
    if let (Some(Ok(kind)), Some(old)) = (&mut declared.resolved, old)
        && stands_in(old, kind, &declared.cells, valid.generation, cluster)
    {
        *kind = old.kind.clone();
        declared.cells = Arc::clone(&old.cells);
    }
    let refused =
        declared.cells.iter().find_map(|cell| refusal(&declared.name, &cell.key, cluster));
    if let (Some(Ok(_)), Some(refusal)) = (&declared.resolved, refused) {
        declared.resolved = Some(Err(refusal));
    }
    declared.serving = old.cloned();
    declared.limited = state.limited;
    declared
}

/// Whether the cells of a version that is no longer preferred still are the target: its author has
/// changed nothing, so it does not turn cold while the new version's cells warm up.
fn stands_in(
    old: &Serving,
    kind: &ResourceInfo,
    new: &[CellSpec],
    generation: i64,
    cluster: &ClusterView<'_>,
) -> bool {
    let is_promising = |cell: &CellSpec| {
        cluster.fault(&cell.key).is_none_or(|fault| fault.attempts < PASSING_FAILURES)
    };
    old.generation == generation
        && old.kind.resource.version() != kind.resource.version()
        && old.cells.iter().all(|cell| cluster.is_warm(&cell.key))
        && new.iter().all(is_promising)
}

/// What only the server can say, and only when it is asked: the cell runs on, so that it is
/// noticed when the answer changes.
fn refusal(target: &str, key: &CellKey, cluster: &ClusterView<'_>) -> Option<Refusal> {
    let fault = cluster.fault(key)?;
    match fault.reason {
        Reason::Unsupported if !key.fields.is_empty() => Some(Refusal::new(
            RefusalReason::UnsupportedField,
            format!(
                "targets[{target}].fieldSelector: the API server does not select {} by {}: {}; \
                     remove the selector, or use a label",
                key.resource, key.fields, fault.message
            ),
        )),
        Reason::NotListable => Some(Refusal::new(
            RefusalReason::NotListable,
            format!(
                "targets[{target}].resource: {} cannot be listed and watched: {}",
                key.resource, fault.message
            ),
        )),
        Reason::ServiceAccountNotFound => Some(Refusal::new(
            RefusalReason::ServiceAccountNotFound,
            format!(
                "spec.serviceAccountName: {}; create the ServiceAccount, and target {target:?} \
                 starts by itself",
                fault.message
            ),
        )),
        Reason::NotServed
        | Reason::TokenRequestDenied
        | Reason::Forbidden
        | Reason::Unauthorized
        | Reason::NamespaceNotFound
        | Reason::Gone
        | Reason::Unsupported
        | Reason::Throttled
        | Reason::ServerError
        | Reason::Unreachable
        | Reason::TimedOut
        | Reason::Malformed
        | Reason::TooLarge
        | Reason::ClosedAtOnce
        | Reason::Unverified
        | Reason::Internal => None,
    }
}
