//! All profiles' wishes for one cell become one spec. Pure.

use crate::{
    informer::Desired,
    model::{CellSpec, FieldPath, Mode, Tuning},
};
use std::{collections::BTreeSet, collections::btree_map::Entry};

/// Most declared indexes of one table: what is beyond goes, not the cell.
const MAX_INDEXES: usize = 32;

/// Adds one profile's wish.
///
/// A cell watches while one active profile declares it. Of several: the staleness bound is the
/// smallest, an uncertain namespace is asked for, and list slots are those of the profile with the
/// highest priority, then the first by name.
pub(super) fn want(desired: &mut Desired, spec: CellSpec, mode: Mode) {
    match desired.entry(spec.key.clone()) {
        Entry::Vacant(vacant) => {
            vacant.insert((spec, mode));
        }
        Entry::Occupied(mut occupied) => {
            let (known, known_mode) = occupied.get_mut();
            if mode == Mode::Active {
                *known_mode = Mode::Active;
            }
            known.tuning = stricter(known.tuning.clone(), spec.tuning);
            unite(&mut known.indexes, spec.indexes);
        }
    }
}

fn stricter(a: Tuning, b: Tuning) -> Tuning {
    let max_staleness = a.max_staleness.min(b.max_staleness);
    let namespace_check = a.namespace_check.max(b.namespace_check);
    let rank = |t: &Tuning| (std::cmp::Reverse(t.member_of.priority), t.member_of.profile.clone());
    let first = if rank(&b) < rank(&a) { b } else { a };
    Tuning { max_staleness, namespace_check, ..first }
}

fn unite(known: &mut BTreeSet<FieldPath>, more: BTreeSet<FieldPath>) {
    for path in more {
        if known.len() < MAX_INDEXES {
            known.insert(path);
        } else if !known.contains(&path) {
            tracing::warn!(%path, "left out: a table has at most {MAX_INDEXES} declared indexes");
        }
    }
}
