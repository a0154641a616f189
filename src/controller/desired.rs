//! All profiles' wishes for one cell become one spec. Pure.

use super::resolve::leaving;
use kubewarm_api::model::{CellKey, CellSpec, FieldPath, Mode, OnAccessLost, ProfileRef, Tuning};
use kubewarm_cache::{informer::Desired, store::INDEXES_PER_TABLE};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Declared indexes that a table has no room for, by the target that declares them.
pub(super) type LeftOut = BTreeMap<(ProfileRef, Arc<str>), BTreeSet<FieldPath>>;

/// What all targets wish for. Bounded by the cells that they declare.
#[derive(Debug, Default)]
pub(super) struct Wishes(BTreeMap<CellKey, Vec<Wish>>);

/// What one target wishes of a cell.
#[derive(Debug)]
struct Wish {
    spec: CellSpec,
    mode: Mode,
    /// The target, if the indexes are those that it declares; `None` for a cell that answers for it
    /// until what it declares is synced, and for one that finds namespaces.
    target: Option<Arc<str>>,
}

impl Wishes {
    /// Adds the wish of a target of the profile that `spec` is tuned for.
    ///
    /// To be called for profiles in the order of their precedence: where a table has no room for
    /// all indexes, the first come are served.
    pub(super) fn add(&mut self, spec: &CellSpec, mode: Mode, target: Option<&Arc<str>>) {
        let wish = Wish { spec: spec.clone(), mode, target: target.cloned() };
        self.0.entry(spec.key.clone()).or_default().push(wish);
    }

    /// One spec for each cell.
    ///
    /// - A cell watches while one active profile wishes for it, and while there is one, profiles
    ///   that are paused have no say in how it runs.
    /// - The staleness bound and the interval of comparisons are the smallest of all that have a say, and an uncertain namespace is
    ///   asked for if one of them asks.
    /// - What may not be read any more is kept as long as any of them wants, paused ones too.
    /// - Everything else (list slots, strategy, page size) comes from the profile with the highest priority,
    ///   of equals from the first in precedence.
    /// - Indexes are united, those of paused profiles too, since their tables are still read.
    pub(super) fn settle(self) -> (Desired, LeftOut) {
        let mut left_out = LeftOut::new();
        let settled = self.0.into_iter().filter_map(|(key, wishes)| {
            let mode = if wishes.iter().any(|wish| wish.mode == Mode::Active) {
                Mode::Active
            } else {
                Mode::Paused
            };
            let heard =
                wishes.iter().filter(|wish| wish.mode == mode).map(|wish| &wish.spec.tuning);
            let stale = OnAccessLost::ServeStale;
            let is_kept = wishes.iter().any(|wish| wish.spec.tuning.on_access_lost == stale);
            let on_access_lost = if is_kept { stale } else { OnAccessLost::Reject };
            let governed = govern(heard)?;
            let tuning = Tuning { on_access_lost, ..governed };
            let indexes = unite(&wishes, &mut left_out);
            Some((key.clone(), (CellSpec { key, tuning, indexes }, mode)))
        });
        (settled.collect(), left_out)
    }
}

fn govern<'a>(heard: impl Iterator<Item = &'a Tuning>) -> Option<Tuning> {
    let heard: Vec<_> = heard.collect();
    // Of equals the first.
    let first = *heard.iter().min_by_key(|tuning| Reverse(tuning.member_of.priority))?;
    Some(Tuning {
        max_staleness: heard.iter().map(|tuning| tuning.max_staleness).min()?,
        consistency_check_period: heard.iter().filter_map(|tuning| tuning.consistency_check_period).min(),
        namespace_check: heard.iter().map(|tuning| tuning.namespace_check).max()?,
        ..first.clone()
    })
}

/// The indexes of a table; those beyond what it takes go, not the cell. That by which namespaces are
/// found has its place before any that a target declares: without it, every look would read all bodies.
fn unite(wishes: &[Wish], left_out: &mut LeftOut) -> BTreeSet<FieldPath> {
    let finds = |path: &FieldPath| {
        wishes.iter().any(|wish| wish.target.is_none() && wish.spec.indexes.contains(path))
    };
    let mut united: BTreeSet<_> = leaving().filter(finds).into_iter().collect();
    for Wish { spec, target, .. } in wishes {
        for path in &spec.indexes {
            if united.contains(path) {
                continue;
            }
            if united.len() < INDEXES_PER_TABLE {
                united.insert(path.clone());
            } else if let Some(target) = target {
                let by = (spec.tuning.member_of.profile.clone(), Arc::clone(target));
                left_out.entry(by).or_default().insert(path.clone());
            }
        }
    }
    united
}
