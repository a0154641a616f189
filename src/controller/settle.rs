//! From a resolved target to what is declared of it: its cells, and those that answer meanwhile. Pure.

use super::{
    desired::Wishes,
    quota::InformerQuota,
    resolve::{Cluster, Resolved},
};
use kubewarm_api::model::{
    CellKey, CellSpec, DeclaredTarget, Identity, Limited, Projection, Reason, Refusal,
    RefusalReason, ResolvedTarget, SensitiveData, Serving, Target, ValidatedProfile,
};
use std::{collections::BTreeMap, sync::Arc};

/// What answers for a target until something newer is synced.
#[derive(Debug)]
pub(super) struct Answering {
    serving: Serving,
    kind: ResolvedTarget,
    cells: Vec<CellSpec>,
}

/// The targets of a profile, by name, between two runs.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// What answers.
    serving: BTreeMap<Arc<str>, Answering>,
    /// What the last run declared and nobody has seen synced: it may be by the next one, which finds
    /// the target edited already.
    warming: BTreeMap<Arc<str>, Answering>,
}

/// The cells of which a target holds something.
#[derive(Debug)]
pub(super) struct Holding {
    /// Those that it is to have.
    pub(super) cells: Arc<[CellKey]>,
    /// Others, that answer for it until these are synced.
    pub(super) old: Vec<CellKey>,
    /// The one that finds its namespaces.
    pub(super) namespaces: Option<CellKey>,
}

impl Targets {
    /// Forgets the targets that are not declared any more, or for which what they were may not
    /// answer, and lets those answer that have synced since.
    pub(super) fn renew(&mut self, valid: &ValidatedProfile, cluster: &dyn Cluster) {
        for (name, target) in std::mem::take(&mut self.warming) {
            if target.cells.iter().all(|cell| is_warm(&cell.key, cluster)) {
                self.serving.insert(name, target);
            }
        }
        let identity = valid.identity();
        self.serving.retain(|name, old| {
            let declared = valid.targets.iter().find(|target| target.name == *name);
            declared.is_some_and(|target| may_answer(old, target, &identity))
        });
    }

    /// Lets go of what answers for a target that is refused: a kind that went takes its tables with
    /// it. A target that has grown too large keeps what it had, if that fits.
    pub(super) fn retain(&mut self, target: &Resolved, fits: impl FnOnce(usize) -> bool) {
        let Some(Err(refusal)) = &target.outcome else { return };
        let cells = self.serving.get(&target.name).map_or(0, |old| old.cells.len());
        if refusal.reason != RefusalReason::TooManyCells || !fits(cells) {
            self.serving.remove(&target.name);
        }
    }

    /// Drops what answers for a target that does not fit into a limit: nothing does before it has been
    /// listed completely within the limit, even if another profile keeps the same cells warm.
    pub(super) fn drop(&mut self, target: &Arc<str>) {
        self.serving.remove(target);
    }
}

/// Whether an edit leaves the old cells the right to answer. What another account reads does not
/// answer: nobody asked whether the new spec's author may act as that one. Nor do secrets that are
/// held whole answer for a target that no longer holds them so.
fn may_answer(old: &Answering, target: &Target, identity: &Identity) -> bool {
    let holds_whole = |data: SensitiveData, projection: Projection| {
        data == SensitiveData::Allow && matches!(projection, Projection::Full(_))
    };
    let may_hold_whole = holds_whole(target.sensitive_data, target.projection);
    old.cells.iter().all(|CellSpec { key, .. }| {
        key.identity == *identity
            && (may_hold_whole || !holds_whole(key.sensitive_data, key.projection))
    })
}

/// Failures in a row of a new version's cell that nobody needs to hear of: a server that has just
/// taken a definition in may refuse for a moment.
const PASSING_FAILURES: u32 = 3;

/// Takes the target's cells out of the quota; of a target that does not fit, none is left but the
/// one that notices when fewer namespaces match, if at least that one fits.
pub(super) fn within(quota: &mut InformerQuota<'_>, target: Resolved) -> Resolved {
    let cells = target.cells.len() + usize::from(target.namespaces.is_some());
    match quota.take(&target.name, cells) {
        Ok(()) => target,
        Err(refusal) => {
            let namespaces = target.namespaces.filter(|_| quota.take(&target.name, 1).is_ok());
            Resolved { outcome: Some(Err(refusal)), cells: Vec::new(), namespaces, ..target }
        }
    }
}

/// Wants the target's cells, and those that still answer for it until these are synced; says which
/// both are.
pub(super) fn settle(
    target: Resolved,
    valid: &ValidatedProfile,
    cluster: &dyn Cluster,
    targets: &mut Targets,
    wishes: &mut Wishes,
    limited: Option<Limited>,
) -> (DeclaredTarget, Holding) {
    let is_stopped = limited.is_some_and(|limited| limited.is_stopped());
    let Resolved { name, requirement, declared_as, outcome, cells, namespaces, named } = target;
    let cells_known = namespaces.as_ref().is_none_or(|cell| is_warm(&cell.key, cluster));
    if let Some(Ok(kind)) = &outcome
        && cells_known
        && !is_stopped
    {
        let keys = cells.iter().map(|cell| cell.key.clone()).collect();
        let serving = Serving { generation: valid.generation, cells: keys };
        let now = Answering { serving, kind: kind.clone(), cells: cells.clone() };
        let is_warm = cells.iter().all(|cell| is_warm(&cell.key, cluster));
        let into = if is_warm { &mut targets.serving } else { &mut targets.warming };
        into.insert(Arc::clone(&name), now);
    }
    let old = targets.serving.get(&name);
    let mut holding = Holding {
        cells: cells.iter().map(|cell| cell.key.clone()).collect(),
        old: Vec::new(),
        namespaces: namespaces.as_ref().map(|cell| cell.key.clone()),
    };
    for spec in old.into_iter().flat_map(|old| &old.cells) {
        if !cells.iter().any(|cell| cell.key == spec.key) {
            wishes.add(spec, valid.mode, None);
            holding.old.push(spec.key.clone());
        }
    }
    let wanted = if is_stopped { &[] } else { &*cells };
    for spec in wanted {
        wishes.add(spec, valid.mode, Some(&name));
    }
    // Its index is not the author's, and no loss where it has no room.
    let watched = namespaces.iter().filter(|_| !is_stopped);
    watched.for_each(|spec| wishes.add(spec, valid.mode, None));
    let (outcome, cells) = match (outcome, old) {
        (Some(Ok(kind)), Some(old)) if stands_in(old, &kind, &cells, valid.generation, cluster) => {
            (Some(Ok(old.kind.clone())), old.cells.clone())
        }
        (outcome, _) => (outcome, cells),
    };
    let outcome = outcome.map(|outcome| {
        outcome.and_then(|kind| {
            cells.iter().find_map(|cell| refusal(&name, cell, cluster)).map_or(Ok(kind), Err)
        })
    });
    let declared = DeclaredTarget {
        requirement,
        declared_as,
        resolved: outcome,
        named,
        cells: cells.into_iter().map(|cell| cell.key).collect(),
        namespaces: namespaces.map(|cell| cell.key),
        serving: old.map(|old| old.serving.clone()),
        left_out: [].into(),
        limited,
        name,
    };
    (declared, holding)
}

/// Declares the target's cells without wanting them.
pub(super) fn planned(target: Resolved) -> DeclaredTarget {
    let Resolved { name, requirement, declared_as, outcome, cells, namespaces, named } = target;
    DeclaredTarget {
        requirement,
        declared_as,
        resolved: outcome,
        named,
        cells: cells.into_iter().map(|cell| cell.key).collect(),
        namespaces: namespaces.map(|cell| cell.key),
        serving: None,
        left_out: [].into(),
        limited: None,
        name,
    }
}

fn is_warm(key: &CellKey, cluster: &dyn Cluster) -> bool {
    cluster.report(key).is_some_and(|report| report.is_warm())
}

/// Whether the cells of a version that is no longer preferred still are the target: its author has
/// changed nothing, so it does not turn cold while the new version's cells warm up.
fn stands_in(
    old: &Answering,
    kind: &ResolvedTarget,
    new: &[CellSpec],
    generation: i64,
    cluster: &dyn Cluster,
) -> bool {
    let is_promising = |cell: &CellSpec| {
        let fault = cluster.report(&cell.key).and_then(|report| report.fault);
        fault.is_none_or(|fault| fault.attempts < PASSING_FAILURES)
    };
    old.serving.generation == generation
        && old.kind.resource.version() != kind.resource.version()
        && old.cells.iter().all(|cell| is_warm(&cell.key, cluster))
        && new.iter().all(is_promising)
}

/// What only the server can say, and only when it is asked: the cell runs on, so that it is
/// noticed when the answer changes.
fn refusal(target: &str, cell: &CellSpec, cluster: &dyn Cluster) -> Option<Refusal> {
    let fault = cluster.report(&cell.key)?.fault?;
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
