//! Profiles as plain lines of `key=value`, for logs, pipes and programs.

use super::{
    text::field,
    verdict::{condition, unhealthy},
};
use crate::api::{CacheProfile, CellCounts, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// One line for each profile, each target and each problem, in their order. Nothing in them is
/// relative to the clock: a line changes only if the status does. Text of the cluster is escaped.
#[must_use]
pub fn lines(profiles: &[CacheProfile]) -> Vec<String> {
    let mut lines = Vec::new();
    for profile in profiles {
        let metadata = &profile.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default());
        lines.push(profile_line(&name, profile));
        for target in profile.status.iter().flat_map(|status| &status.targets) {
            let target_name = format!("{name}/{}", target.name);
            lines.push(target_line(&target_name, target));
            lines.extend(problem_lines(&target_name, target));
        }
    }
    lines
}

fn profile_line(name: &str, profile: &CacheProfile) -> String {
    let mut line = String::new();
    field(&mut line, "profile", name);
    let Some(status) = &profile.status else {
        field(&mut line, "ready", "Unknown");
        field(&mut line, "message", "no status yet: is the operator running?");
        return line;
    };
    let ready = condition(&status.conditions, "Ready");
    field(&mut line, "ready", ready.map_or("Unknown", |ready| ready.status.as_str()));
    let said = condition(&status.conditions, "Stalled")
        .filter(|stalled| stalled.status == "True")
        .inspect(|_| field(&mut line, "stalled", "True"))
        .or_else(|| ready.filter(|ready| ready.status != "True"));
    let fresh = condition(&status.conditions, "Fresh");
    field(&mut line, "fresh", fresh.map_or("Unknown", |fresh| fresh.status.as_str()));
    number(&mut line, "generation", profile.metadata.generation);
    number(&mut line, "observedGeneration", status.observed_generation);
    if let Some(warm) = &status.warm_targets {
        field(&mut line, "warm", warm);
    }
    number(&mut line, "objects", status.objects);
    if let Some(memory) = &status.memory {
        field(&mut line, "memory", memory);
    }
    number(&mut line, "timeToWarmMilliseconds", status.time_to_warm_milliseconds);
    cause(&mut line, said);
    line
}

fn target_line(name: &str, target: &TargetStatus) -> String {
    let mut line = String::new();
    field(&mut line, "target", name);
    for (key, type_) in [("warm", "Warm"), ("fresh", "Fresh")] {
        let found = condition(&target.conditions, type_);
        field(&mut line, key, found.map_or("Unknown", |found| found.status.as_str()));
    }
    let CellCounts { total, synced, stale, .. } = target.cells.clone().unwrap_or_default();
    field(&mut line, "cells", &format!("{}/{total}", synced.saturating_add(stale)));
    number(&mut line, "objects", target.objects);
    if let Some(memory) = &target.memory {
        field(&mut line, "memory", memory);
    }
    cause(&mut line, unhealthy(target));
    line
}

fn problem_lines(target: &str, status: &TargetStatus) -> Vec<String> {
    let problems = status.problems.iter().map(|problem| {
        let mut line = String::new();
        field(&mut line, "problem", target);
        field(&mut line, "namespace", &problem.namespace);
        field(&mut line, "reason", &problem.reason);
        if let Some(object) = &problem.object {
            field(&mut line, "object", object);
        }
        if let Some(message) = &problem.message {
            field(&mut line, "message", message);
        }
        if let Some(next) = &problem.next_retry_time {
            field(&mut line, "nextRetryTime", &next.0.to_string());
        }
        line
    });
    problems.collect()
}

fn number(line: &mut String, key: &str, value: Option<i64>) {
    if let Some(value) = value {
        field(line, key, &value.to_string());
    }
}

fn cause(line: &mut String, condition: Option<&Condition>) {
    if let Some(condition) = condition {
        field(line, "reason", &condition.reason);
        field(line, "message", &condition.message);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    #[test]
    fn a_profile_is_a_line_for_itself_each_target_and_each_problem() {
        let profiles = [sample::ready(), sample::warming(), sample::stalled(), sample::untouched()];
        let text = lines(&profiles).join("\n") + "\n";
        assert_eq!(text, include_str!("lines.golden"), "written:\n{text}");
    }
}
