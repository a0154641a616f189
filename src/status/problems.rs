//! `targets[].problems`: cells that are not healthy, and objects that could not be decoded.

use super::{
    cell::{Cell, CellState, Clock},
    figures, limit, sentence,
    target::Target,
    trouble::Voice,
};
use kubewarm_api::v1alpha1::Problem;
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// As many as the schema allows.
const MAX_PROBLEMS: usize = 16;
/// As long as the schema allows, in bytes.
const MAX_MESSAGE: usize = 512;
/// As long as the schema allows, in bytes.
const MAX_OBJECT: usize = 253;
const UNDECODABLE: &str = "Undecodable";

/// The gravest first; one for each pair of namespace and reason, which is what the API server
/// takes for the same entry.
pub(super) fn problems(target: &Target<'_>, voice: Voice<'_>, clock: Clock) -> Vec<Problem> {
    let mut found: BTreeMap<(CellState, &str, &'static str), Problem> = BTreeMap::new();
    for cell in target.all_cells() {
        let Some(problem) = of_cell(cell, voice) else { continue };
        let key = (cell.state, cell.namespace(), reason(cell));
        match found.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(problem);
            }
            Entry::Occupied(mut slot) => {
                let kept = slot.get_mut();
                let times = [kept.next_retry_time.take(), problem.next_retry_time];
                kept.next_retry_time = times.into_iter().flatten().min_by_key(|time| time.0);
            }
        }
    }
    let mut problems: Vec<_> = limited(target, clock).into_iter().collect();
    problems.extend(found.into_values());
    problems.extend(undecodable(target));
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert((problem.namespace.clone(), problem.reason.clone())));
    problems.truncate(MAX_PROBLEMS);
    problems
}

/// The limit that the target does not fit into.
fn limited(target: &Target<'_>, clock: Clock) -> Option<Problem> {
    let limited = target.declared.limited.as_ref()?;
    Some(Problem {
        namespace: String::new(),
        reason: limited.overrun.measure.as_str().to_owned(),
        message: Some(sentence::bounded(limit::exceeded(limited, clock), MAX_MESSAGE)),
        next_retry_time: limit::retry(limited.attempt, clock).map(figures::seconds),
        object: None,
    })
}

fn reason(cell: &Cell<'_>) -> &'static str {
    match (cell.fault(), cell.staleness) {
        (Some(fault), _) => fault.reason.as_str(),
        (None, Some(staleness)) => staleness.reason(),
        (None, None) => "Syncing",
    }
}

fn of_cell(cell: &Cell<'_>, voice: Voice<'_>) -> Option<Problem> {
    let message = match (cell.state, cell.fault(), cell.staleness) {
        (CellState::Synced | CellState::Syncing, ..) | (_, None, None) => return None,
        (_, Some(fault), _) => {
            // Ours says what to do, the server's own words say the rest.
            let ours = voice.fault(fault, &[cell]);
            if ours.contains(&*fault.message) {
                ours
            } else {
                format!("{ours} ({})", fault.message)
            }
        }
        (_, None, Some(staleness)) => super::target::stale(staleness, &[cell], voice),
    };
    Some(Problem {
        namespace: cell.namespace().to_owned(),
        reason: reason(cell).to_owned(),
        message: Some(sentence::bounded(message, MAX_MESSAGE)),
        next_retry_time: cell.fault().and_then(|fault| fault.next_retry).map(figures::seconds),
        object: None,
    })
}

/// One for each namespace, naming its first object.
fn undecodable(target: &Target<'_>) -> Vec<Problem> {
    let mut by_namespace: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for cell in &target.cells {
        for item in cell.report().into_iter().flat_map(|report| &*report.undecodable) {
            by_namespace.entry(cell.namespace()).or_default().push((&item.object, &item.problem));
        }
    }
    let problem = |(namespace, items): (&str, Vec<(&str, &str)>)| {
        let &(object, problem) = items.first()?;
        let message = match items.len() - 1 {
            0 => format!("{object} is not served: {problem}"),
            more => format!("{object} and {more} more are not served: {problem}"),
        };
        Some(Problem {
            namespace: namespace.to_owned(),
            reason: UNDECODABLE.to_owned(),
            message: Some(sentence::bounded(message, MAX_MESSAGE)),
            next_retry_time: None,
            object: Some(sentence::bounded(object.to_owned(), MAX_OBJECT)),
        })
    };
    by_namespace.into_iter().filter_map(problem).collect()
}
