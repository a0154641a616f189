//! Whether a profile is ready, and what it lacks.

use super::text::escape;
use crate::api::{CacheProfile, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::process::ExitCode;

/// How a command ends; the number is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The newest generation is ready.
    Ready = 0,
    /// It is not, or kubewarm has not seen it yet.
    NotReady = 1,
    /// Only an edit of the profile helps: it is `Stalled`.
    Failed = 2,
    /// It was not ready in time.
    TimedOut = 3,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(verdict as u8)
    }
}

/// Judges the newest generation of `profile`: what was said of an older one does not count.
#[must_use]
pub fn verdict(profile: &CacheProfile) -> Verdict {
    let generation = profile.metadata.generation;
    let observed = profile.status.as_ref().and_then(|status| status.observed_generation);
    let holds = |type_| {
        condition(conditions(profile), type_).is_some_and(|condition| {
            condition.status == "True" && condition.observed_generation.or(observed) >= generation
        })
    };
    if holds("Stalled") {
        Verdict::Failed
    } else if holds("Ready") {
        Verdict::Ready
    } else {
        Verdict::NotReady
    }
}

/// The worst of `profiles`. None at all is [`Verdict::NotReady`]: what was never declared must not
/// look like everything ready.
#[must_use]
pub fn worst(profiles: &[CacheProfile]) -> Verdict {
    profiles.iter().map(verdict).max().unwrap_or(Verdict::NotReady)
}

/// Why `profile` is not ready, in lines for a person: the profile's own reason, then one line for
/// each target that is not warm, with its problems.
pub(super) fn lacking(profile: &CacheProfile) -> Vec<String> {
    let Some(status) = &profile.status else {
        return vec!["kubewarm has not looked at it yet; is the operator running?".to_owned()];
    };
    let mut lines = Vec::new();
    if status.observed_generation < profile.metadata.generation {
        lines.push("kubewarm has not looked at its newest generation yet".to_owned());
    }
    let own = ["Stalled", "Ready"].into_iter().find_map(|type_| {
        let bad = if type_ == "Stalled" { "True" } else { "False" };
        condition(&status.conditions, type_).filter(|condition| condition.status == bad)
    });
    lines.extend(own.map(sentence));
    for target in &status.targets {
        if unhealthy(target).is_none() {
            continue;
        }
        if let Some(condition) = untold(target) {
            let (reason, said) =
                (escape(&condition.reason), escape(own_message(target, condition)));
            lines.push(format!("{}: {reason}: {said}", escape(&target.name)));
        }
        for problem in &target.problems {
            lines.push(format!("{}: {}", escape(&target.name), self::problem(problem)));
        }
    }
    lines
}

/// The condition of `target` that a person should look at first, if any is not `True`.
pub(super) fn unhealthy(target: &TargetStatus) -> Option<&Condition> {
    ["Accepted", "Warm", "Fresh"].into_iter().find_map(|type_| {
        condition(&target.conditions, type_).filter(|condition| condition.status != "True")
    })
}

/// The same, unless a problem of the target has that reason: it says it again, with the server's words.
pub(super) fn untold(target: &TargetStatus) -> Option<&Condition> {
    let is_told = |reason: &str| target.problems.iter().any(|problem| problem.reason == reason);
    unhealthy(target).filter(|found| !is_told(&found.reason))
}

/// What `condition` says of `target`, whose name stands beside it already.
pub(super) fn own_message<'a>(target: &TargetStatus, condition: &'a Condition) -> &'a str {
    let message = condition.message.as_str();
    // Of what is wrong, and of a field.
    let prefixes = [format!("target {:?}: ", target.name), format!("targets[{}].", target.name)];
    prefixes.iter().find_map(|prefix| message.strip_prefix(prefix)).unwrap_or(message)
}

/// `Reason: message`.
pub(super) fn sentence(condition: &Condition) -> String {
    let reason = escape(&condition.reason);
    if condition.message.is_empty() {
        return reason.into_owned();
    }
    format!("{reason}: {}", escape(&condition.message))
}

/// `namespace: Reason: message`.
pub(super) fn problem(problem: &crate::api::Problem) -> String {
    let mut parts = Vec::new();
    if !problem.namespace.is_empty() {
        parts.push(escape(&problem.namespace));
    }
    parts.push(escape(&problem.reason));
    parts.extend(problem.object.as_deref().map(escape));
    parts.extend(problem.message.as_deref().filter(|text| !text.is_empty()).map(escape));
    parts.join(": ")
}

/// The condition of that type, if it has been written.
pub(super) fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// `namespace/name`, escaped.
pub(super) fn name(profile: &CacheProfile) -> String {
    let metadata = &profile.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    format!("{}/{}", escape(namespace), escape(name))
}

fn conditions(profile: &CacheProfile) -> &[Condition] {
    profile.status.as_ref().map_or(&[], |status| &status.conditions)
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    #[test]
    fn only_the_newest_generation_counts() {
        let mut profile = sample::ready();
        assert_eq!(verdict(&profile), Verdict::Ready);
        profile.metadata.generation = Some(99);
        assert_eq!(verdict(&profile), Verdict::NotReady);
        assert_eq!(lacking(&profile), ["kubewarm has not looked at its newest generation yet"]);
        profile.status = None;
        assert_eq!(verdict(&profile), Verdict::NotReady);
    }

    #[test]
    fn what_only_an_edit_helps_has_failed() {
        assert_eq!(verdict(&sample::stalled()), Verdict::Failed);
        assert_eq!(
            worst(&[sample::ready(), sample::stalled(), sample::warming()]),
            Verdict::Failed
        );
        assert_eq!(worst(&[sample::ready(), sample::warming()]), Verdict::NotReady);
    }

    #[test]
    fn no_profile_is_not_ready() {
        assert_eq!(worst(&[]), Verdict::NotReady);
    }

    #[test]
    fn what_is_lacking_names_target_namespace_and_cause() {
        let said = lacking(&sample::warming()).join("\n") + "\n";
        assert_eq!(said, include_str!("lacking.golden"), "said:\n{said}");
    }
}
