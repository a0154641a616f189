//! Computes the field `targets[].problems` of a status: exceeded limits, informers that are not
//! healthy, objects that kubewarm could not decode, kinds with unknown fields, and indexes without
//! values.

use super::{
    index_problems::index_problems,
    informer::{ClockReading, InformerState, ObservedInformer, group_by},
    messages::MessageContext,
    quantities, sentence,
    target::{ObservedTarget, stale},
    within_limits,
};
use kubewarm_api::v1alpha1::TargetProblem;
use std::collections::BTreeSet;

/// Maximum number of problems of one target that the CRD's schema allows.
const MAX_PROBLEMS: usize = 16;
/// Maximum length of a problem's `message` that the CRD's schema allows, in bytes.
const MAX_MESSAGE: usize = 512;
/// Maximum length of a problem's `object` that the CRD's schema allows, in bytes.
const MAX_OBJECT: usize = 253;
pub(super) const UNDECODABLE: &str = "Undecodable";
pub(super) const READ_AS_JSON: &str = "ReadAsJson";

/// Returns the target's problems, the most severe problem first, at most [`MAX_PROBLEMS`]. Returns
/// only one problem per namespace, reason and object, because these three fields are the list map
/// key in the CRD.
pub(super) fn problems(
    target: &ObservedTarget<'_>,
    context: MessageContext<'_>,
    clock: ClockReading,
) -> Vec<TargetProblem> {
    let groups = group_by(target.all_informers(), |informer| {
        Some((informer.state, informer.namespace(), reason(informer)?))
    });
    let for_informers = groups.into_iter().filter_map(|((_, namespace, reason), informers)| {
        let retries = informers.iter().filter_map(|informer| informer.fault()?.next_retry);
        let message = message(informers.first()?, context)?;
        let next_retry_time = retries.min().map(quantities::seconds);
        Some(TargetProblem { next_retry_time, ..problem(namespace, reason, message) })
    });
    let all = limited(target, clock)
        .into_iter()
        .chain(for_informers)
        .chain(undecodable(target))
        .chain(read_as_json(target))
        .chain(index_problems(target));
    let mut seen = BTreeSet::new();
    let key = |problem: &TargetProblem| {
        (problem.namespace.clone(), problem.reason.clone(), problem.object.clone())
    };
    all.filter(|problem| seen.insert(key(problem))).take(MAX_PROBLEMS).collect()
}

pub(super) fn problem(namespace: &str, reason: &str, message: String) -> TargetProblem {
    TargetProblem {
        namespace: namespace.to_owned(),
        reason: reason.to_owned(),
        message: Some(sentence::bounded(message, MAX_MESSAGE)),
        ..TargetProblem::default()
    }
}

fn limited(target: &ObservedTarget<'_>, clock: ClockReading) -> Option<TargetProblem> {
    let limited = target.declared.limited.as_ref()?;
    let next_retry_time = within_limits::retry(limited, clock).map(quantities::seconds);
    let (reason, message) =
        (limited.overrun.measure.as_str(), within_limits::exceeded(limited, clock));
    Some(TargetProblem { next_retry_time, ..problem("", reason, message) })
}

/// Returns the reason of the informer's problem, or `None` if the informer is healthy or its first
/// list is in progress.
fn reason(informer: &ObservedInformer<'_>) -> Option<&'static str> {
    if matches!(informer.state, InformerState::Synced | InformerState::Syncing) {
        return None;
    }
    let fault = informer.fault().map(|fault| fault.reason.as_str());
    fault.or_else(|| informer.staleness.map(|staleness| staleness.reason().as_str()))
}

fn message(informer: &ObservedInformer<'_>, context: MessageContext<'_>) -> Option<String> {
    let Some(fault) = informer.fault() else {
        return Some(stale(informer.staleness?, &[informer], context));
    };
    // `ours` is kubewarm's own message with the next step. The result also contains the API
    // server's error message, unless `ours` already quotes it.
    let ours = context.fault(&[informer])?;
    let has_words = ours.contains(&*fault.message);
    Some(if has_words { ours } else { format!("{ours} ({})", fault.message) })
}

/// Returns a problem if kubewarm cannot read the kind in protobuf and reads it as JSON instead,
/// because clients that accept only protobuf then get 406.
fn read_as_json(target: &ObservedTarget<'_>) -> Option<TargetProblem> {
    let reports = target.informers.iter().filter_map(ObservedInformer::report);
    let cause = reports.into_iter().find_map(|report| report.json_fallback.as_deref())?;
    Some(problem("", READ_AS_JSON, format!("read as JSON, not as protobuf: {cause}")))
}

/// Returns one problem for each object that the informers could not decode.
fn undecodable(target: &ObservedTarget<'_>) -> impl Iterator<Item = TargetProblem> {
    let reports = target
        .informers
        .iter()
        .filter_map(|informer| Some((informer.namespace(), informer.report()?)));
    reports.flat_map(|(namespace, report)| {
        report.undecodable.iter().map(move |entry| TargetProblem {
            object: sentence::bounded(entry.object.to_string(), MAX_OBJECT),
            ..problem(
                namespace,
                UNDECODABLE,
                format!("lists that would contain it get 500: {}", entry.problem),
            )
        })
    })
}
