//! Rows for the problems of a target in the output of `status`.

use super::{
    advice::{address, program},
    profile_readiness::{is_permission_missing, missing_permission, problem_and_next_try},
    report::{ReportFact, ReportRow, RowMark, TextTone},
};
use jiff::Timestamp;
use kubewarm_api::v1alpha1::{CacheProfile, CacheProfileStatus, TargetProblem, TargetStatus};

/// Returns a row for each problem of `target`. Each row contains `keys`, the `key=value` pairs that
/// name the target for programs. Missing permissions that differ only in their namespace share one
/// visible text. If `target` is the last target with a missing permission, one more row contains
/// the command that shows which permissions to grant.
pub(super) fn problem_rows(
    profile: &CacheProfile,
    status: &CacheProfileStatus,
    target: &TargetStatus,
    keys: &[ReportFact],
    operator_namespace: &str,
    now: Timestamp,
) -> Vec<ReportRow> {
    let problems = &target.problems;
    let text = |at, problem| match DenialText::of(problem) {
        None => Some(problem_and_next_try(problem, now)),
        Some(denial) => {
            let is_first = !problems.iter().take(at).any(|other| denial.covers(other));
            is_first.then(|| denial.text(problems))
        }
    };
    let facts = |(at, problem)| {
        let text = text(at, problem).map(|text| ReportFact::new(TextTone::Bad, text));
        keys.iter().cloned().chain(text).chain(for_programs(problem)).collect()
    };
    let mut rows: Vec<_> = problems.iter().enumerate().map(facts).map(ReportRow::of).collect();
    let last = status.targets.iter().rfind(|target| is_permission_missing(target));
    if last.is_some_and(|last| last.name == target.name) {
        let at = problems.iter().rposition(|problem| missing_permission(problem).is_some());
        let rbac = format!("{} rbac {}", program(), address(profile));
        let command =
            format!("see what to grant: {rbac} --operator-namespace {operator_namespace} --diff");
        let row = ReportRow::marked(RowMark::Plain, command);
        rows.insert(at.map_or(rows.len(), |at| at + 1), row);
    }
    rows
}

fn for_programs(problem: &TargetProblem) -> Vec<ReportFact> {
    let next = problem.next_retry_time.as_ref().map(|next| next.0.to_string());
    let pairs = [
        ("problemNamespace", Some(problem.namespace.clone())),
        ("reason", Some(problem.reason.clone())),
        ("object", Some(&problem.object).filter(|object| !object.is_empty()).cloned()),
        ("message", problem.message.clone()),
        ("nextRetryTime", next),
    ];
    pairs.into_iter().filter_map(|(key, value)| Some(ReportFact::hidden(key, value?))).collect()
}

/// The message of a problem with a missing permission, split before and after the namespace.
/// Messages that differ only in their namespace have equal parts, so their problems can share one
/// row.
#[derive(PartialEq, Eq)]
struct DenialText<'a> {
    reason: &'a str,
    /// The text of the message before the namespace.
    before: &'a str,
    /// The text after the namespace. `None` if the text contains no namespace.
    after: Option<&'a str>,
}

impl<'a> DenialText<'a> {
    fn of(problem: &'a TargetProblem) -> Option<Self> {
        let permission = missing_permission(problem)?;
        let namespace = format!("namespace {:?}", problem.namespace);
        let (before, after) = match permission.split_once(&namespace) {
            Some((before, after)) => (before, Some(after)),
            None => (permission, None),
        };
        Some(Self { reason: &problem.reason, before, after })
    }

    fn covers(&self, problem: &TargetProblem) -> bool {
        DenialText::of(problem).is_some_and(|other| other == *self)
    }

    /// Returns the text of the missing permission. The text lists the namespaces of all `problems`
    /// whose messages differ only in the namespace.
    fn text(&self, problems: &[TargetProblem]) -> String {
        let Self { reason, before, after } = self;
        let Some(after) = after else { return format!("{reason}: {before}") };
        let covered = problems.iter().filter(|problem| self.covers(problem));
        let names: Vec<_> = covered.map(|problem| format!("{:?}", problem.namespace)).collect();
        let noun = if names.len() == 1 { "namespace" } else { "namespaces" };
        format!("{reason}: {before}{noun} {}{after}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures, *};

    /// Returns the rows of a target that lacks the same permission in each of `namespaces` and has
    /// two other problems.
    fn texts(namespaces: &[&str]) -> Vec<String> {
        let profile = fixtures::warming();
        let status = profile.status.as_ref().unwrap();
        let mut target = status.targets[1].clone();
        let [denied, stock, payments] = &target.problems[..] else {
            panic!("the target does not have three problems")
        };
        let problem = |namespace: &&str| TargetProblem {
            namespace: (*namespace).to_owned(),
            message: denied
                .message
                .as_ref()
                .map(|text| text.replace("shop\" as", &format!("{namespace}\" as"))),
            ..denied.clone()
        };
        let (stock, payments) = (stock.clone(), payments.clone());
        target.problems = namespaces.iter().map(problem).chain([stock, payments]).collect();
        let rows = problem_rows(&profile, status, &target, &[], "NAMESPACE", fixtures::now());
        rows.iter().map(ReportRow::text).collect()
    }

    #[test]
    fn a_permission_that_is_missing_in_several_namespaces_has_one_text() {
        let texts = texts(&["shop", "billing", "orders"]);
        let expected = "Forbidden: not allowed to watch deployments.apps in namespaces \"shop\", \"billing\", \
                        \"orders\" as system:serviceaccount:shop:cache-reader";
        assert_eq!(texts[..3], [expected, "", ""]);
        assert_eq!(
            texts[3],
            "see what to grant: kubewarm rbac orders -n shop --operator-namespace NAMESPACE --diff"
        );
        assert!(texts[4].starts_with("stock: TimedOut: "), "{texts:?}");
    }

    #[test]
    fn the_text_has_neither_the_next_step_nor_the_api_servers_message() {
        let expected = "Forbidden: not allowed to watch deployments.apps in namespace \"shop\" as \
                        system:serviceaccount:shop:cache-reader";
        assert_eq!(texts(&["shop"])[0], expected);
    }
}
