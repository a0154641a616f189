//! Computes the problems of indexes that select nothing, usually because of a typo in `fieldPath`.

use super::{informer::ObservedInformer, problems::problem, sentence, target::ObservedTarget};
use kubewarm_api::{
    model::{IndexDefinition, ResourceInfo},
    v1alpha1::TargetProblem,
};
use kubewarm_cache::informer::InformerReport;
use kubewarm_wire::protobuf::{can_have_value, message_of_kind};

pub(super) const UNKNOWN_FIELD: &str = "UnknownField";
pub(super) const INDEX_WITHOUT_VALUES: &str = "IndexWithoutValues";
/// Minimum number of a target's objects from which an index without values counts as a problem.
/// With fewer objects, an optional field is often empty in all of them, which is no sign of a typo.
const MIN_OBJECTS: u64 = 100;

/// Returns one problem for the indexes on fields that the target's kind lacks, and one for the
/// other indexes without values.
pub(super) fn index_problems(target: &ObservedTarget<'_>) -> Vec<TargetProblem> {
    let indexes = &target.declared.named;
    if indexes.is_empty() {
        return Vec::new();
    }
    let reports: Vec<_> = target.informers.iter().filter_map(ObservedInformer::report).collect();
    let message = target.resolved().and_then(|ResourceInfo { resource, kind, .. }| {
        message_of_kind(&resource.api_version(), kind)
    });
    let objects = reports.iter().map(|report| report.usage.objects).fold(0, u64::saturating_add);
    let has_enough = target.is_warm() && objects >= MIN_OBJECTS;
    let (unknown, known): (Vec<_>, Vec<_>) = indexes.iter().partition(|index| {
        message.is_some_and(|message| !can_have_value(message, &index.path))
            && reports.iter().all(|report| may_lack(report, index))
    });
    let has_no_value = |index: &&IndexDefinition| {
        reports.iter().all(|report| report.paths_without_values.contains(&index.path))
    };
    let empty = known.into_iter().filter(|index| has_enough && has_no_value(index)).collect();
    let all = [
        (
            UNKNOWN_FIELD,
            "kubewarm knows no value of the kind at this path, and no object has one, so selectors \
             for a value find nothing; check the spelling, upper and lower case, and [*] after each \
             list",
            unknown,
        ),
        (
            INDEX_WITHOUT_VALUES,
            "no object has a value at this path, so selectors for a value find nothing; check the \
             spelling, or ignore this problem if the field is empty on purpose",
            empty,
        ),
    ];
    let reported = all.into_iter().filter(|(.., indexes)| !indexes.is_empty());
    let problems = reported.map(|(reason, text, indexes)| {
        let name = |index: &&IndexDefinition| format!("index {:?} ({})", index.name, index.path);
        problem("", reason, format!("{text}: {}", sentence::listed(&indexes, name)))
    });
    problems.collect()
}

/// Whether the kind can lack the field of `index`, according to an informer's report. A newer API
/// server can have fields that kubewarm's field tables lack. So the field exists if an object has a
/// value, and it can exist if kubewarm reads the kind as JSON.
fn may_lack(report: &InformerReport, index: &IndexDefinition) -> bool {
    let has_value = report.usage.objects > 0 && !report.paths_without_values.contains(&index.path);
    report.json_fallback.is_none() && !has_value
}
