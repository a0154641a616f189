//! Decides whether a profile is ready, and returns the reasons if it is not. The reasons can
//! contain control characters from the cluster.

use super::{
    report::CommandExitCode,
    text::{length, span},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kubewarm_api::{
    model::without_next_step,
    v1alpha1::{CacheProfile, CacheProfileStatus, GROUP, TargetProblem, TargetStatus},
};
use std::time::Duration;

/// Reason of the condition `Ready` if the profile's identity lacks a permission.
pub(super) const PERMISSIONS_MISSING: &str = "PermissionsMissing";
/// Reasons of problems in the status that a missing permission causes. The output explains such
/// problems by the missing permission.
const DENIED: [&str; 2] = ["Forbidden", "TokenRequestDenied"];

pub(super) const NO_STATUS: &str = "no status yet";
/// Within this time, a running operator writes the first status of a new profile.
const FIRST_STATUS: Duration = Duration::from_secs(30);

/// Returns the message for a profile that has no status. For a profile older than 30 s, the message
/// adds that the operator possibly does not run.
pub(super) fn no_status(profile: &CacheProfile, now: Timestamp) -> &'static str {
    let created = profile.metadata.creation_timestamp.as_ref();
    if created.is_some_and(|created| span(created.0, now) > FIRST_STATUS) {
        return "no status yet: is the operator running?";
    }
    NO_STATUS
}

/// Returns the exit code for the newest generation of `profile`. Ignores conditions that describe
/// an earlier generation.
pub(super) fn verdict(profile: &CacheProfile) -> CommandExitCode {
    if holds(profile, "Stalled", "True") {
        CommandExitCode::Failed
    } else if holds(profile, "Ready", "True") {
        CommandExitCode::Good
    } else {
        CommandExitCode::Bad
    }
}

/// Whether the condition `type_` has `status` and describes the newest generation of `profile`.
pub(super) fn holds(profile: &CacheProfile, type_: &str, status: &str) -> bool {
    let Some(CacheProfileStatus { conditions, observed_generation, .. }) = &profile.status else {
        return false;
    };
    condition(conditions, type_).is_some_and(|condition| {
        let observed = condition.observed_generation.or(*observed_generation);
        condition.status == status && observed >= profile.metadata.generation
    })
}

/// Returns the worst exit code of `profiles`. Returns [`CommandExitCode::Bad`] if `profiles` is
/// empty, because missing profiles must not look ready.
pub(super) fn worst(profiles: &[CacheProfile]) -> CommandExitCode {
    profiles.iter().map(verdict).max().unwrap_or(CommandExitCode::Bad)
}

/// Returns why `profile` is not ready: a line for the profile's condition, then lines for each
/// unhealthy target and the target's problems.
pub(super) fn lacking(profile: &CacheProfile, now: Timestamp) -> Vec<String> {
    let Some(status) = &profile.status else { return vec![no_status(profile, now).to_owned()] };
    let mut lines = Vec::new();
    if status.observed_generation < profile.metadata.generation {
        lines.push("kubewarm has not processed its newest generation yet".to_owned());
    }
    let unready = stalled_or_unready(status);
    lines.extend(unready.map(sentence));
    let is_denied = unready.is_some_and(|condition| condition.reason == PERMISSIONS_MISSING);
    for target in status.targets.iter().filter(|target| unhealthy(target).is_some()) {
        if let Some(condition) = unreported(target) {
            let message = own_message(target, condition);
            lines.push(format!("{}: {}: {message}", target.name, condition.reason));
        }
        // If the profile's condition already reports missing permissions, the lines of the targets
        // do not repeat these permissions.
        let is_new = |problem: &&TargetProblem| !is_denied || missing_permission(problem).is_none();
        let problems = target.problems.iter().filter(is_new).map(format_problem);
        lines.extend(problems.map(|problem| format!("{}: {problem}", target.name)));
    }
    lines
}

/// Returns the condition `Stalled` if it is `True`. Otherwise returns the condition `Ready` if it
/// is not `True`.
pub(super) fn stalled_or_unready(status: &CacheProfileStatus) -> Option<&Condition> {
    let is = |type_, bad: fn(&str) -> bool| {
        condition(&status.conditions, type_).filter(|condition| bad(&condition.status))
    };
    is("Stalled", |status| status == "True").or_else(|| is("Ready", |status| status != "True"))
}

/// Returns the first of the target's conditions `Accepted`, `Warm` and `Fresh` that is not `True`.
/// Each condition depends on the previous condition in this order, so the first condition shows the
/// cause.
pub(super) fn unhealthy(target: &TargetStatus) -> Option<&Condition> {
    ["Accepted", "Warm", "Fresh"].into_iter().find_map(|type_| {
        condition(&target.conditions, type_).filter(|condition| condition.status != "True")
    })
}

/// Returns the result of [`unhealthy`], or `None` if one of the target's problems has the same
/// reason as this condition. The problem then describes the condition with more detail.
pub(super) fn unreported(target: &TargetStatus) -> Option<&Condition> {
    // A target can have problems with both reasons in `DENIED`, but its condition `Warm` contains
    // only one reason. A problem with either reason therefore describes the same failure as the
    // condition.
    let is_same = |reason: &str, problem: &TargetProblem| {
        problem.reason == reason
            || DENIED.contains(&reason) && DENIED.contains(&problem.reason.as_str())
    };
    let is_repeated = |reason: &str| target.problems.iter().any(|problem| is_same(reason, problem));
    unhealthy(target).filter(|condition| !is_repeated(&condition.reason))
}

/// Whether a problem of `target` reports a missing permission.
pub(super) fn is_permission_missing(target: &TargetStatus) -> bool {
    target.problems.iter().any(|problem| missing_permission(problem).is_some())
}

/// Returns the part of the message of `problem` that names the missing permission, without the next
/// step and the API server's message. Returns `None` if `problem` reports no missing permission.
pub(super) fn missing_permission(problem: &TargetProblem) -> Option<&str> {
    let message =
        problem.message.as_deref().filter(|_| DENIED.contains(&problem.reason.as_str()))?;
    Some(without_next_step(message))
}

/// Returns the message of `condition` without the prefix that names `target`, because the output
/// already contains the target's name.
pub(super) fn own_message<'a>(target: &TargetStatus, condition: &'a Condition) -> &'a str {
    let message = condition.message.as_str();
    // The message of a problem begins with the first prefix, and the message of an invalid field
    // with the second prefix.
    let prefixes = [format!("target {:?}: ", target.name), format!("targets[{}].", target.name)];
    prefixes.iter().find_map(|prefix| message.strip_prefix(prefix)).unwrap_or(message)
}

/// Formats a condition as `Reason: message`.
pub(super) fn sentence(condition: &Condition) -> String {
    joined([&condition.reason, &condition.message])
}

/// Formats a problem of a target as `namespace: Reason: object: message`, without empty parts.
fn format_problem(problem: &TargetProblem) -> String {
    let TargetProblem { namespace, reason, object, message, .. } = problem;
    joined([&**namespace, reason, object, message.as_deref().unwrap_or_default()])
}

/// Formats `problem` as [`format_problem`] does, and adds the time until the operator's next
/// attempt.
pub(super) fn problem_and_next_try(problem: &TargetProblem, now: Timestamp) -> String {
    let next = problem
        .next_retry_time
        .as_ref()
        .map_or_else(String::new, |next| format!("; next try in {}", length(span(now, next.0))));
    format_problem(problem) + &next
}

fn joined<const N: usize>(parts: [&str; N]) -> String {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

pub(super) fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub(super) fn is_true(conditions: &[Condition], type_: &str) -> bool {
    condition(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Formats `profile` as `NAME -n NAMESPACE`.
pub(super) fn name(profile: &CacheProfile) -> String {
    let (name, namespace) = name_and_namespace(profile);
    title(name, namespace)
}

/// Formats name and namespace as `NAME -n NAMESPACE`.
pub(super) fn title(name: &str, namespace: &str) -> String {
    format!("{name} -n {namespace}")
}

/// Returns name and namespace of `profile`, or an empty text for a missing one.
pub(super) fn name_and_namespace(profile: &CacheProfile) -> (&str, &str) {
    let ObjectMeta { name, namespace, .. } = &profile.metadata;
    (name.as_deref().unwrap_or_default(), namespace.as_deref().unwrap_or_default())
}

/// Formats `profile` as `cacheprofile.kubewarm.io/NAME`, as kubectl does.
pub(super) fn object_name(profile: &CacheProfile) -> String {
    let name = profile.metadata.name.as_deref().unwrap_or_default();
    format!("cacheprofile.{GROUP}/{name}")
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures, *};
    use jiff::SignedDuration;

    #[test]
    fn only_conditions_of_the_newest_generation_count() {
        let mut profile = fixtures::ready();
        assert_eq!(verdict(&profile), CommandExitCode::Good);
        profile.metadata.generation = Some(99);
        assert_eq!(verdict(&profile), CommandExitCode::Bad);
        let lines = lacking(&profile, fixtures::now());
        assert_eq!(lines, ["kubewarm has not processed its newest generation yet"]);
        profile.status = None;
        assert_eq!(verdict(&profile), CommandExitCode::Bad);
    }

    #[test]
    fn a_stalled_profile_has_failed() {
        assert_eq!(verdict(&fixtures::stalled()), CommandExitCode::Failed);
        assert_eq!(
            worst(&[fixtures::ready(), fixtures::stalled(), fixtures::warming()]),
            CommandExitCode::Failed
        );
        assert_eq!(worst(&[fixtures::ready(), fixtures::warming()]), CommandExitCode::Bad);
    }

    #[test]
    fn an_empty_list_of_profiles_is_not_ready() {
        assert_eq!(worst(&[]), CommandExitCode::Bad);
    }

    #[test]
    fn only_a_profile_older_than_30_seconds_has_a_question_about_the_operator() {
        let profile = fixtures::untouched();
        let created = profile.metadata.creation_timestamp.as_ref().unwrap().0;
        let after = |seconds| lacking(&profile, created + SignedDuration::from_secs(seconds));
        assert_eq!(after(30), [NO_STATUS]);
        assert_eq!(after(31), ["no status yet: is the operator running?"]);
    }

    #[test]
    fn reasons_contain_target_namespace_and_cause() {
        let lines = lacking(&fixtures::warming(), fixtures::now()).join("\n") + "\n";
        assert_eq!(lines, include_str!("lacking.golden"), "printed:\n{lines}");
    }
}
