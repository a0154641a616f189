//! The report of `status --target`: conditions, problems, missing rules and the next command.

mod missing_permissions;

use super::{
    CommandError,
    advice::{grant, program},
    profile_readiness::{is_true, name, no_status, object_name, own_message, problem_and_next_try},
    report::{CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, TextTone},
    text::{grouped, length, place, span},
};
use jiff::Timestamp;
use kubewarm_api::{
    model::GroupResource,
    v1alpha1::{AccessStatus, CacheProfile, InformerCounts, TargetStatus},
};
use missing_permissions::{granting, refused};

/// # Errors
///
/// [`CommandError`] if `profile` has no target with the name `target`.
pub(super) fn target(
    profile: &CacheProfile,
    target: &str,
    operator_namespace: &str,
    now: Timestamp,
) -> Result<CommandReport, CommandError> {
    let targets = &profile.spec.targets;
    let Some(declared) = targets.iter().find(|spec| spec.name == target) else {
        let all: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
        let (title, all) = (name(profile), all.join(", "));
        let text = format!("CacheProfile {title} has no target {target}; it has {all}");
        return Err(CommandError::new(text));
    };
    let title = ReportFact::new(TextTone::Strong, format!("{} --target {target}", name(profile)));
    let names = Some(vec![object_name(profile)]);
    let Some(status) = &profile.status else {
        let head =
            ReportRow::of(vec![title, ReportFact::new(TextTone::Warning, no_status(profile, now))]);
        let rows = vec![ReportRow::default().next(format!("{} check", program()))];
        return Ok(CommandReport {
            sections: vec![ReportSection { head, rows }],
            verdict: CommandExitCode::Bad,
            names,
            ..CommandReport::default()
        });
    };
    let entry = status.targets.iter().find(|entry| entry.name == target);
    let is = |type_| entry.is_some_and(|entry| is_true(&entry.conditions, type_));
    let state = match (is("Warm"), is("Fresh")) {
        (true, true) => ReportFact::new(TextTone::Good, "warm"),
        (true, false) => ReportFact::new(TextTone::Warning, "warm, but not known to be current"),
        (false, _) => ReportFact::new(TextTone::Warning, "not warm"),
    };
    // A status of an older generation does not show that the target is warm and fresh.
    let is_current = status.observed_generation >= profile.metadata.generation;
    let is_well = is_current && is("Warm") && is("Fresh");
    let mut rows = Vec::new();
    if !is_current {
        let text = "kubewarm has not processed the newest generation yet; this status is of an older generation";
        rows.push(ReportRow::labelled("generation", TextTone::Warning, text));
    }
    let resource = GroupResource::new(&declared.group, &declared.resource).ok();
    let missing = match (resource, &status.access) {
        (Some(resource), Some(access)) => {
            missing_rules(profile, access, &resource, operator_namespace)
        }
        (None, _) | (_, None) => Vec::new(),
    };
    rows.extend(entry.into_iter().flat_map(|entry| details(entry, &missing, now)));
    rows.extend(missing);
    let head = ReportRow::of(vec![title, state]);
    let verdict = if is_well { CommandExitCode::Good } else { CommandExitCode::Bad };
    Ok(CommandReport {
        sections: vec![ReportSection { head, rows }],
        verdict,
        names,
        ..CommandReport::default()
    })
}

/// Returns rows for the conditions and problems in the target's status. If `missing`, the rows of
/// the missing permissions, is not empty, the row of the condition `Warm` omits the message about
/// permissions.
fn details(target: &TargetStatus, missing: &[ReportRow], now: Timestamp) -> Vec<ReportRow> {
    let mut rows = vec![ReportRow::labelled("informers", TextTone::Plain, informers_text(target))];
    for condition in &target.conditions {
        let ago = length(span(condition.last_transition_time.0, now));
        let is_repeated =
            !missing.is_empty() && condition.type_ == "Warm" && condition.reason == "Forbidden";
        let message = if is_repeated { "" } else { own_message(target, condition) };
        let colon = if message.is_empty() { "" } else { ": " };
        let text = format!("{}, {}, for {ago}{colon}{message}", condition.status, condition.reason);
        let tone = if condition.status == "True" { TextTone::Plain } else { TextTone::Warning };
        rows.push(ReportRow::labelled(&condition.type_, tone, text));
    }
    let problems = target.problems.iter().map(|problem| {
        ReportRow::labelled("problem", TextTone::Bad, problem_and_next_try(problem, now))
    });
    rows.extend(problems);
    rows
}

/// Returns a row for each missing permission and for each rule that grants missing permissions, and
/// a row with the commands that grant all permissions of the profile.
fn missing_rules(
    profile: &CacheProfile,
    access: &AccessStatus,
    resource: &GroupResource,
    operator_namespace: &str,
) -> Vec<ReportRow> {
    let refused = refused(access, resource);
    if refused.is_empty() {
        return Vec::new();
    }
    let subject = access.subject.as_deref().unwrap_or("kubewarm");
    let mut rows = Vec::new();
    for (verbs, namespace) in refused {
        let place = place(Some(&*namespace).filter(|namespace| !namespace.is_empty()));
        let text = format!("{verbs} on {resource} in {place}, for {subject}");
        rows.push(ReportRow::labelled("missing", TextTone::Bad, text));
    }
    rows.extend(granting(access, resource));
    rows.push(ReportRow {
        next: grant(profile, operator_namespace).into(),
        ..ReportRow::labelled(
            "to grant it",
            TextTone::Plain,
            "these commands print and apply all permissions of the profile",
        )
    });
    rows
}

/// Returns a text with the numbers of informers by state and of objects, such as
/// `1 of 4 synced: 2 syncing, 1 forbidden; 300 objects`.
fn informers_text(target: &TargetStatus) -> String {
    let InformerCounts { total, synced, syncing, stale, forbidden, missing, limited, failing } =
        target.informers.clone().unwrap_or_default();
    let others = [
        (stale, "stale"),
        (syncing, "syncing"),
        (forbidden, "forbidden"),
        (missing, "missing"),
        (limited, "limited"),
        (failing, "failing"),
    ];
    let states: Vec<_> = others
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let colon = if states.is_empty() { "" } else { ": " };
    let objects = grouped(target.objects.unwrap_or(0));
    format!("{synced} of {total} synced{colon}{}; {objects} objects", states.join(", "))
}

#[cfg(test)]
mod tests;
