//! `targets[].problems`: cells that are not healthy, and objects that could not be decoded.

use super::{
    cell::{Cell, CellState, Clock, Staleness, grouped},
    figures, limit, sentence,
    target::{Target, stale},
    trouble::Voice,
};
use kubewarm_api::v1alpha1::Problem;
use std::collections::{BTreeMap, BTreeSet};

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
    let groups =
        grouped(target.all_cells(), |cell| Some((cell.state, cell.namespace(), reason(cell)?)));
    let of_cells = groups.into_iter().filter_map(|((_, namespace, reason), cells)| {
        let retries = cells.iter().filter_map(|cell| cell.fault()?.next_retry);
        let message = message(cells.first()?, voice)?;
        Some(Problem {
            namespace: namespace.to_owned(),
            reason: reason.to_owned(),
            message: Some(sentence::bounded(message, MAX_MESSAGE)),
            next_retry_time: retries.min().map(figures::seconds),
            object: None,
        })
    });
    let all = limited(target, clock).into_iter().chain(of_cells).chain(undecodable(target));
    let mut seen = BTreeSet::new();
    all.filter(|problem| seen.insert((problem.namespace.clone(), problem.reason.clone())))
        .take(MAX_PROBLEMS)
        .collect()
}

/// The limit that the target does not fit into.
fn limited(target: &Target<'_>, clock: Clock) -> Option<Problem> {
    let limited = target.declared.limited.as_ref()?;
    Some(Problem {
        namespace: String::new(),
        reason: limited.overrun.measure.as_str().to_owned(),
        message: Some(sentence::bounded(limit::exceeded(limited, clock), MAX_MESSAGE)),
        next_retry_time: limit::retry(limited, clock).map(figures::seconds),
        object: None,
    })
}

/// Why a cell is not healthy; `None` if it is, or if it is only not synced yet.
fn reason(cell: &Cell<'_>) -> Option<&'static str> {
    if matches!(cell.state, CellState::Synced | CellState::Syncing) {
        return None;
    }
    let fault = cell.fault().map(|fault| fault.reason.as_str());
    fault.or_else(|| cell.staleness.map(Staleness::reason))
}

fn message(cell: &Cell<'_>, voice: Voice<'_>) -> Option<String> {
    let Some(fault) = cell.fault() else {
        return Some(stale(cell.staleness?, &[cell], voice));
    };
    // Ours says what to do, the server's own words say the rest.
    let ours = voice.fault(&[cell])?;
    let has_words = ours.contains(&*fault.message);
    Some(if has_words { ours } else { format!("{ours} ({})", fault.message) })
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
