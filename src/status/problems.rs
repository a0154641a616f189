//! Fills `targets[].problems`: informers that are not healthy, and objects that could not be
//! decoded.

use super::{
    cell::{Cell, CellState, Clock, Staleness, grouped},
    figures, limit, sentence,
    target::{Target, stale},
    trouble::Voice,
};
use kubewarm_api::v1alpha1::Problem;
use std::collections::BTreeSet;

/// Maximum number of problems that the schema allows.
const MAX_PROBLEMS: usize = 16;
/// Maximum length that the schema allows, in bytes.
const MAX_MESSAGE: usize = 512;
/// Maximum length that the schema allows, in bytes.
const MAX_OBJECT: usize = 253;
const UNDECODABLE: &str = "Undecodable";

/// Returns the most severe problems first.
///
/// There is one entry per namespace and reason, because those two fields are the list's merge key.
pub(super) fn problems(target: &Target<'_>, voice: Voice<'_>, clock: Clock) -> Vec<Problem> {
    let groups =
        grouped(target.all_cells(), |cell| Some((cell.state, cell.namespace(), reason(cell)?)));
    let of_cells = groups.into_iter().filter_map(|((_, namespace, reason), cells)| {
        let retries = cells.iter().filter_map(|cell| cell.fault()?.next_retry);
        let message = message(cells.first()?, voice)?;
        let next_retry_time = retries.min().map(figures::seconds);
        Some(Problem { next_retry_time, ..problem(namespace, reason, message) })
    });
    let all = limited(target, clock).into_iter().chain(of_cells).chain(undecodable(target));
    let mut seen = BTreeSet::new();
    all.filter(|problem| seen.insert((problem.namespace.clone(), problem.reason.clone())))
        .take(MAX_PROBLEMS)
        .collect()
}

fn problem(namespace: &str, reason: &str, message: String) -> Problem {
    Problem {
        namespace: namespace.to_owned(),
        reason: reason.to_owned(),
        message: Some(sentence::bounded(message, MAX_MESSAGE)),
        ..Problem::default()
    }
}

/// Returns the problem of a target that a limit stops.
fn limited(target: &Target<'_>, clock: Clock) -> Option<Problem> {
    let limited = target.declared.limited.as_ref()?;
    let next_retry_time = limit::retry(limited, clock).map(figures::seconds);
    let (reason, message) = (limited.overrun.measure.as_str(), limit::exceeded(limited, clock));
    Some(Problem { next_retry_time, ..problem("", reason, message) })
}

/// Why an informer is not healthy, or `None` if it is healthy or in its first sync.
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
    // The message contains the next step and the API server's own error message.
    let ours = voice.fault(&[cell])?;
    let has_words = ours.contains(&*fault.message);
    Some(if has_words { ours } else { format!("{ours} ({})", fault.message) })
}

/// Returns one problem per namespace, which names the first object.
fn undecodable(target: &Target<'_>) -> Vec<Problem> {
    let groups = grouped(&target.cells, |cell| Some(cell.namespace()));
    let of_namespace = |(namespace, cells): (&str, Vec<&Cell<'_>>)| {
        let reports = cells.into_iter().filter_map(Cell::report);
        let mut items = reports.flat_map(|report| &*report.undecodable);
        let first = items.next()?;
        let object = &first.object;
        let message = match items.count() {
            0 => format!("{object} is not served: {}", first.problem),
            more => format!("{object} and {more} more are not served: {}", first.problem),
        };
        let object = Some(sentence::bounded(object.to_string(), MAX_OBJECT));
        Some(Problem { object, ..problem(namespace, UNDECODABLE, message) })
    };
    groups.into_iter().filter_map(of_namespace).collect()
}
