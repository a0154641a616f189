//! The report of the command `status`: a section for each profile, a row for each target, a remark
//! for each problem.

use super::{
    problems::problem_rows,
    profile_readiness::{
        NO_STATUS, PERMISSIONS_MISSING, condition, is_permission_missing, is_true, name,
        name_and_namespace, no_status, object_name, own_message, sentence, stalled_or_unready,
        unhealthy, unreported, verdict, worst,
    },
    report::{
        CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, RowMark, TextTone,
    },
    text::{grouped, length, span},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubewarm_api::v1alpha1::{
    CacheProfile, CacheProfileSpec, CacheProfileStatus, InformerCounts, LatencyStatus,
    QuantilesStatus, TargetStatus,
};
use std::time::Duration;

/// Maximum age of a target's last relist that `status` prints, because an old relist explains no
/// current problem.
const RECENT: Duration = Duration::from_mins(10);

/// Returns the report on `profiles`, in the same order. The text for people contains durations
/// until `now`. The `key=value` lines change only with the status. Commands in the report name
/// `operator_namespace`.
pub fn overview(
    profiles: &[CacheProfile],
    operator_namespace: &str,
    now: Timestamp,
) -> CommandReport {
    let section = |profile| section(profile, operator_namespace, now);
    let sections = profiles.iter().map(section).collect();
    let names = Some(profiles.iter().map(object_name).collect());
    CommandReport { sections, verdict: worst(profiles), names, ..CommandReport::default() }
}

fn section(profile: &CacheProfile, operator_namespace: &str, now: Timestamp) -> ReportSection {
    let (profile_name, namespace) = name_and_namespace(profile);
    let head = ReportFact::new(TextTone::Strong, name(profile)).named("profile", profile_name);
    let mut head = vec![head, ReportFact::hidden("namespace", namespace)];
    let Some(status) = &profile.status else {
        head.push(ReportFact::hidden("ready", "Unknown"));
        head.push(
            ReportFact::new(TextTone::Warning, no_status(profile, now)).named("message", NO_STATUS),
        );
        return ReportSection { head: ReportRow::of(head), rows: Vec::new() };
    };
    readiness(profile, status, &mut head);
    figures(profile, status, &mut head);
    let condition = stalled_or_unready(status);
    cause(condition, &mut head);
    let is_repeated = |condition: &Condition| {
        condition.reason == PERMISSIONS_MISSING && status.targets.iter().any(is_permission_missing)
    };
    let remark = condition.filter(|condition| !is_repeated(condition)).map(|condition| {
        let tone = if condition.type_ == "Stalled" { TextTone::Bad } else { TextTone::Warning };
        ReportRow::of(vec![ReportFact::new(tone, sentence(condition))])
    });
    let head = ReportRow { details: remark.into_iter().collect(), ..ReportRow::of(head) };
    let row = |target| row(profile, target, status, operator_namespace, now);
    let rows = status.targets.iter().map(row).collect();
    ReportSection { head, rows }
}

fn readiness(profile: &CacheProfile, status: &CacheProfileStatus, facts: &mut Vec<ReportFact>) {
    let ready = condition(&status.conditions, "Ready");
    let reason = ready.map(|ready| ready.reason.as_str()).unwrap_or_default();
    let (tone, word) = match (verdict(profile), reason) {
        (CommandExitCode::Good, _) => (TextTone::Good, "ready"),
        (CommandExitCode::Failed, _) => (TextTone::Bad, "needs an edit"),
        (CommandExitCode::Bad | CommandExitCode::TimedOut, "Paused") => (TextTone::Plain, "paused"),
        (CommandExitCode::Bad | CommandExitCode::TimedOut, "Plan") => (TextTone::Plain, "planned"),
        (CommandExitCode::Bad | CommandExitCode::TimedOut, _) => (TextTone::Warning, "not ready"),
    };
    facts.push(ReportFact::new(tone, word).named("ready", state(ready)));
    if is_true(&status.conditions, "Stalled") {
        facts.push(ReportFact::hidden("stalled", "True"));
    }
    let fresh = state(condition(&status.conditions, "Fresh"));
    facts.push(match fresh {
        "True" => ReportFact::new(TextTone::Plain, "fresh").named("fresh", fresh),
        "False" => ReportFact::new(TextTone::Warning, "not fresh").named("fresh", fresh),
        _ => ReportFact::hidden("fresh", fresh),
    });
    let generation = profile.metadata.generation;
    if status.observed_generation < generation {
        facts.push(ReportFact::new(TextTone::Warning, "newest generation not seen yet"));
    }
    let numbers = [("generation", generation), ("observedGeneration", status.observed_generation)];
    let number = |(key, number): (&'static str, Option<i64>)| {
        number.map(|number| ReportFact::hidden(key, number))
    };
    facts.extend(numbers.into_iter().filter_map(number));
}

fn figures(profile: &CacheProfile, status: &CacheProfileStatus, facts: &mut Vec<ReportFact>) {
    if let Some(warm) = &status.warm_targets {
        facts.push(
            ReportFact::new(TextTone::Plain, format!("{warm} warm")).named("warm", warm.as_str()),
        );
    }
    if let Some(objects) = status.objects {
        let text = format!("{} objects", grouped(objects));
        facts.push(ReportFact::new(TextTone::Plain, text).named("objects", objects));
    }
    if let Some(memory) = &status.memory {
        facts.push(ReportFact::new(TextTone::Plain, memory).named("memory", memory.as_str()));
    }
    if let Some(millis) = status.time_to_warm_milliseconds {
        let took = length(Duration::from_millis(millis.try_into().unwrap_or_default()));
        let text = format!("warm after {took}");
        let fact = ReportFact::new(TextTone::Plain, text);
        facts.push(fact.named("timeToWarmMilliseconds", millis));
    }
    let missed = condition(&status.conditions, "WarmupDeadlineMet")
        .is_some_and(|condition| condition.status == "False");
    if let (true, Some(seconds)) = (missed, profile.spec.warmup.deadline_seconds) {
        facts.push(ReportFact::new(TextTone::Warning, format!("(deadline {seconds} s missed)")));
    }
    let CacheProfileSpec { mode, service_account_name, .. } = &profile.spec;
    facts.push(ReportFact::new(TextTone::Plain, format!("mode {}", mode.as_ref())).wide());
    if let Some(account) = service_account_name {
        facts.push(ReportFact::new(TextTone::Plain, format!("ServiceAccount {account}")).wide());
    }
}

fn row(
    profile: &CacheProfile,
    target: &TargetStatus,
    status: &CacheProfileStatus,
    operator_namespace: &str,
    now: Timestamp,
) -> ReportRow {
    let InformerCounts { total, synced, stale, .. } = target.informers.clone().unwrap_or_default();
    let informers = format!("{}/{total}", synced.saturating_add(stale));
    let objects = ReportFact::number(format!("{} objects", grouped(target.objects.unwrap_or(0))));
    let memory = ReportFact::number(target.memory.as_deref().unwrap_or_default());
    let is = |type_| state(condition(&target.conditions, type_));
    let mut facts = keys(profile, target);
    facts.extend([
        ReportFact::new(TextTone::Plain, &target.name),
        ReportFact::bar(bar(target)),
        ReportFact::hidden("warm", is("Warm")),
        ReportFact::hidden("fresh", is("Fresh")),
        ReportFact::number(format!("{informers} informers")).named("informers", informers),
        match target.objects {
            Some(number) => objects.named("objects", number),
            None => objects,
        },
        match &target.memory {
            Some(size) => memory.named("memory", size.as_str()),
            None => memory,
        },
        p99(target, "events", |latency| latency.event.as_ref()),
        p99(target, "reads", |latency| latency.read.as_ref()),
    ]);
    let wrong = unhealthy(target);
    cause(wrong, &mut facts);
    let confirmed = target.last_confirmed_time.as_ref();
    facts.extend(confirmed.map(|at| ReportFact::hidden("lastConfirmedTime", at.0.to_string())));
    match wrong {
        Some(condition) => facts.push(ReportFact::new(TextTone::Warning, &condition.reason)),
        None if target.conditions.is_empty() => {}
        None => facts.push(ReportFact::new(TextTone::Good, "warm")),
    }
    let details = details(profile, target, status, operator_namespace, now);
    ReportRow { mark: RowMark::Branch, details, ..ReportRow::of(facts) }
}

fn keys(profile: &CacheProfile, target: &TargetStatus) -> Vec<ReportFact> {
    let (name, namespace) = name_and_namespace(profile);
    let keys = [("profile", name), ("namespace", namespace), ("target", &*target.name)];
    keys.into_iter().map(|(key, value)| ReportFact::hidden(key, value)).collect()
}

/// Returns a column of the wide format with the 99th percentile of one of the target's latencies,
/// in milliseconds.
fn p99(
    target: &TargetStatus,
    name: &str,
    latency: impl Fn(&LatencyStatus) -> Option<&QuantilesStatus>,
) -> ReportFact {
    let quantiles = target.latency_milliseconds.as_ref().and_then(latency);
    let text =
        quantiles.map_or_else(|| "-".to_owned(), |quantiles| format!("{} ms", quantiles.p99));
    ReportFact::number(format!("{name} p99 {text}")).wide()
}

/// Returns the counts of informers by state, for the target's progress bar. A target is also warm
/// if its selector matches no namespace. Such a target has no informers, but gets a full bar.
fn bar(target: &TargetStatus) -> InformerCounts {
    let counts = target.informers.clone().unwrap_or_default();
    match counts.total {
        0 if is_true(&target.conditions, "Warm") => {
            InformerCounts { synced: 1, total: 1, ..InformerCounts::default() }
        }
        _ => counts,
    }
}

/// Returns the remarks below a target's row: its condition, its problems and its last relist, if
/// that was less than 10 minutes ago. A remark also names the earlier profile generation whose
/// informers still serve an edited target.
fn details(
    profile: &CacheProfile,
    target: &TargetStatus,
    status: &CacheProfileStatus,
    operator_namespace: &str,
    now: Timestamp,
) -> Vec<ReportRow> {
    let remark = |tone, text: String| ReportRow::of(vec![ReportFact::new(tone, text)]);
    let mut details = Vec::new();
    if let Some(condition) = unreported(target) {
        let message = own_message(target, condition);
        details
            .extend((!message.is_empty()).then(|| remark(TextTone::Warning, message.to_owned())));
    }
    if let Some(confirmed) = &target.last_confirmed_time {
        let text = format!("not confirmed for {}", length(span(confirmed.0, now)));
        details.push(remark(TextTone::Warning, text));
    }
    details.extend(problem_rows(
        profile,
        status,
        target,
        &keys(profile, target),
        operator_namespace,
        now,
    ));
    let behind = target
        .serving_generation
        .filter(|serving| status.observed_generation.is_some_and(|observed| *serving < observed));
    if let Some(generation) = behind {
        let text = format!("generation {generation} answers until this is warm");
        details.push(remark(TextTone::Quiet, text));
    }
    let recent = target.last_relist.as_ref().filter(|last| span(last.time.0, now) <= RECENT);
    if let Some(relist) = recent {
        let text = format!(
            "relisted {} ago ({}): {} replaced, {} deleted",
            length(span(relist.time.0, now)),
            relist.reason,
            grouped(relist.replaced_objects),
            grouped(relist.deleted_objects),
        );
        details.push(remark(TextTone::Quiet, text));
    }
    details
}

fn cause(condition: Option<&Condition>, facts: &mut Vec<ReportFact>) {
    if let Some(condition) = condition {
        facts.push(ReportFact::hidden("reason", condition.reason.as_str()));
        facts.push(ReportFact::hidden("message", condition.message.as_str()));
    }
}

fn state(condition: Option<&Condition>) -> &str {
    condition.map_or("Unknown", |condition| condition.status.as_str())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fixtures,
            report::{ReportFormat, TerminalLayout, render},
        },
        *,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn drawn(profiles: &[CacheProfile], width: usize) -> String {
        let terminal = TerminalLayout { width, ..TerminalLayout::default() };
        render(&overview(profiles, "NAMESPACE", fixtures::now()), ReportFormat::Text(terminal))
            .unwrap()
    }

    #[test]
    fn a_profile_is_drawn_as_a_tree_with_bars() {
        let drawn = drawn(&[fixtures::ready(), fixtures::warming()], 100);
        assert_eq!(drawn, include_str!("tree.golden"), "drawn:\n{drawn}");
    }

    #[test]
    fn a_missing_permission_is_printed_once() {
        let drawn = drawn(&[fixtures::warming()], 0);
        assert_eq!(drawn.matches("not allowed").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("kubewarm rbac orders -n shop --").count(), 1, "{drawn}");
    }

    #[test]
    fn the_lines_format_has_one_line_per_profile_target_and_problem() {
        let profiles =
            [fixtures::ready(), fixtures::warming(), fixtures::stalled(), fixtures::untouched()];
        let text = render(&overview(&profiles, "NAMESPACE", fixtures::now()), ReportFormat::Lines)
            .unwrap();
        assert_eq!(text, include_str!("lines.golden"), "written:\n{text}");
    }

    #[test]
    fn the_wide_format_adds_mode_and_latencies() {
        let mut profile = fixtures::ready();
        profile.spec.service_account_name = Some("cache-reader".to_owned());
        let latency = LatencyStatus {
            event: Some(QuantilesStatus { p50: 1, p99: 7 }),
            ..LatencyStatus::default()
        };
        profile.status.as_mut().unwrap().targets[0].latency_milliseconds = Some(latency);
        let wide = render(
            &overview(&[profile.clone()], "NAMESPACE", fixtures::now()),
            ReportFormat::Wide(TerminalLayout::default()),
        );
        let wide = wide.unwrap();
        for part in
            ["mode Active  ServiceAccount cache-reader", "events p99 7 ms  reads p99 -  warm"]
        {
            assert!(wide.contains(part), "no {part} in {wide}");
        }
        assert!(!drawn(&[profile], 0).contains("p99"));
    }

    #[test]
    fn every_line_fits_the_terminal() {
        let profiles = [fixtures::ready(), fixtures::warming(), fixtures::stalled()];
        for width in 1..100 {
            for line in drawn(&profiles, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn control_characters_in_messages_are_escaped() {
        let drawn = drawn(&[fixtures::stalled()], 0);
        assert_eq!(
            drawn,
            "broken -n shop  needs an edit\n  InvalidSpec: targets[0]: \\u{1b}[2Jbad\n"
        );
    }

    #[test]
    fn a_profile_without_status_has_a_remark() {
        let drawn = drawn(&[fixtures::untouched()], 80);
        assert_eq!(drawn, "new -n shop  no status yet: is the operator running?\n");
    }

    #[test]
    fn paused_and_planned_profiles_are_called_so() {
        for (reason, word) in [("Paused", "paused"), ("Plan", "planned")] {
            let mut profile = fixtures::ready();
            let conditions = &mut profile.status.as_mut().unwrap().conditions;
            let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
            "Unknown".clone_into(&mut ready.status);
            reason.clone_into(&mut ready.reason);
            let drawn = drawn(&[profile], 0);
            assert!(drawn.starts_with(&format!("checkout -n shop  {word}  ")), "{drawn}");
        }
    }

    #[test]
    fn a_missed_deadline_is_shown() {
        let mut profile = fixtures::ready();
        for condition in &mut profile.status.as_mut().unwrap().conditions {
            if condition.type_ == "WarmupDeadlineMet" {
                condition.status = "False".to_owned();
            }
        }
        assert!(drawn(&[profile], 0).contains("(deadline 10 s missed)"));
    }

    #[test]
    fn a_stale_target_shows_since_when() {
        let mut profile = fixtures::ready();
        let confirmed = fixtures::now() - jiff::SignedDuration::from_secs(245);
        let target = &mut profile.status.as_mut().unwrap().targets[0];
        target.last_confirmed_time = Some(Time(confirmed));
        let profiles = [profile];
        let drawn = drawn(&profiles, 0);
        assert!(drawn.contains("not confirmed for 4 min 5 s\n"), "{drawn}");
        let lines = render(&overview(&profiles, "NAMESPACE", fixtures::now()), ReportFormat::Lines)
            .unwrap();
        assert!(lines.contains("lastConfirmedTime=2026-03-01T11:55:55Z"), "{lines}");
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let terminal = TerminalLayout { width: 100, height: 0, has_colours: true };
        let report = overview(&[fixtures::warming()], "NAMESPACE", fixtures::now());
        let coloured = render(&report, ReportFormat::Text(terminal)).unwrap();
        assert!(coloured.contains("\u{1b}[32m"));
        let mut stripped = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            stripped.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        stripped.push_str(rest);
        assert_eq!(stripped, drawn(&[fixtures::warming()], 100));
    }

    #[test]
    fn a_bar_is_full_only_when_all_informers_are_synced() {
        let bar = |total, synced| {
            let mut profile = fixtures::ready();
            let target = &mut profile.status.as_mut().unwrap().targets[0];
            target.conditions.clear();
            target.informers = Some(InformerCounts { total, synced, ..InformerCounts::default() });
            let drawn = drawn(&[profile], 40);
            drawn.chars().filter(|c| "█░".contains(*c)).collect::<String>()
        };
        assert_eq!(bar(1000, 999), "█████████░");
        assert_eq!(bar(3, 3), "██████████");
        assert_eq!(bar(0, 0), "░░░░░░░░░░");
        assert_eq!(bar(3, -1), "░░░░░░░░░░");
    }
}
