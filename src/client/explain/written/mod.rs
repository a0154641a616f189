//! What is known of a target, in lines.

use super::{
    super::{
        cells::{Cell, of_target},
        paint::{Line, Tone},
        text::{escape, grouped, length, plain, span, wrapped},
        verdict::{condition, name, own_message, problem},
    },
    missing::{granting, refused},
};
use crate::{
    api::{CacheProfile, CacheProfileStatus, CellCounts, TargetStatus},
    model::{Target, TargetScope, ValidatedProfile},
};
use jiff::Timestamp;
use std::fmt::Write as _;

/// Columns of what stands before a text.
const LABEL: usize = 14;
/// Most cells that are shown, the troubled ones first.
const MAX_CELLS: usize = 20;

/// What is told from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story<'a> {
    pub(super) profile: &'a CacheProfile,
    /// Those of a replica, if one was asked.
    pub(super) cells: Option<&'a [Cell]>,
    /// Columns; 0: any.
    pub(super) width: usize,
    pub(super) now: Timestamp,
    /// What is typed for this program.
    pub(super) program: &'a str,
}

impl Story<'_> {
    /// Of the target `target`, one of the spec's.
    pub(super) fn of(&self, target: &str) -> Vec<Line> {
        let title = format!("{}/{}", name(self.profile), escape(target));
        let mut lines = Vec::new();
        let Some(status) = &self.profile.status else {
            let mut head = Line::of(Tone::Strong, title);
            head.push(Tone::Warning, "  no status yet: is the operator running?");
            lines.push(head);
            lines.push(command(&format!("{} check", self.program)));
            return lines;
        };
        let found = status.targets.iter().find(|it| it.name == target);
        lines.push(headline(title, found));
        if status.observed_generation < self.profile.metadata.generation {
            let text =
                "kubewarm has not looked at the newest generation yet; this is of an older one";
            lines.extend(self.entry("generation", Tone::Warning, text));
        }
        if let Some(found) = found {
            lines.extend(self.state(found));
        }
        // What the schema lets through, and the checks here too: else only the status speaks.
        let parsed = ValidatedProfile::parse(self.profile).ok();
        let declared = parsed.as_ref().and_then(|parsed| {
            Some((parsed, parsed.targets.iter().find(|it| *it.name == *target)?))
        });
        if let Some((parsed, declared)) = declared {
            lines.extend(self.of_cells(status, parsed, declared, found));
            lines.extend(self.missing(status, declared));
        }
        lines
    }

    /// What the status says.
    fn state(&self, target: &TargetStatus) -> Vec<Line> {
        let mut lines = self.entry("cells", Tone::Plain, &cells_text(target));
        for found in &target.conditions {
            let is_good = found.status == "True";
            let ago = length(span(found.last_transition_time.0, self.now));
            let said = own_message(target, found);
            let colon = if said.is_empty() { "" } else { ": " };
            let text = format!("{}, {}, for {ago}{colon}{said}", found.status, found.reason);
            let tone = if is_good { Tone::Plain } else { Tone::Warning };
            lines.extend(self.entry(&escape(&found.type_), tone, &escape(&text)));
        }
        for found in &target.problems {
            let next = found.next_retry_time.as_ref().map_or_else(String::new, |next| {
                format!("; next try in {}", length(span(self.now, next.0)))
            });
            lines.extend(self.entry("problem", Tone::Bad, &format!("{}{next}", problem(found))));
        }
        lines
    }

    /// What a replica says of each cell, or how to ask one.
    fn of_cells(
        &self,
        status: &CacheProfileStatus,
        parsed: &ValidatedProfile,
        declared: &Target,
        found: Option<&TargetStatus>,
    ) -> Vec<Line> {
        let Some(all) = self.cells else {
            let is_tried = found
                .is_some_and(|found| found.problems.iter().any(|problem| problem.object.is_none()));
            if !is_tried {
                return Vec::new();
            }
            let text = "how often each has been tried only a replica of kubewarm knows; add --operator \
                        http://localhost:9090 beside";
            let mut lines = self.entry("attempts", Tone::Quiet, text);
            lines.push(command("kubectl -n kubewarm-system port-forward deploy/kubewarm 9090"));
            return lines;
        };
        let mut cells = of_target(all, parsed, declared, &selected(status, declared));
        cells.sort_by_key(|cell| (cell.last_error.is_none(), cell.synced_time.is_some()));
        let mut lines: Vec<_> =
            cells.iter().take(MAX_CELLS).flat_map(|cell| self.of_cell(cell)).collect();
        if cells.is_empty() {
            let text = "this replica has none of them";
            lines.extend(self.entry("cell", Tone::Warning, text));
        }
        if cells.len() > MAX_CELLS {
            let text = format!("{} more, all in better shape", cells.len() - MAX_CELLS);
            lines.extend(self.entry("", Tone::Quiet, &text));
        }
        lines
    }

    fn of_cell(&self, cell: &Cell) -> Vec<Line> {
        let place = cell.namespace.as_deref().unwrap_or(match cell.scope.as_str() {
            "Cluster" => "the cluster",
            _ => "all namespaces",
        });
        let ago = |since: Option<Timestamp>| {
            since
                .map_or_else(String::new, |since| format!(" for {}", length(span(since, self.now))))
        };
        let objects = i64::try_from(cell.objects).unwrap_or(i64::MAX);
        let mut text =
            format!("{place}: {}{}, {} objects", cell.state, ago(cell.since), grouped(objects));
        if let (true, Some(expected)) = (cell.listed > 0, cell.expected) {
            let _infallible = write!(text, ", {} of {expected} listed", cell.listed);
        }
        let mut tone = Tone::Plain;
        if let Some(error) = &cell.last_error {
            tone = Tone::Bad;
            let times = if error.attempts == 1 { "once" } else { "times" };
            let count = if error.attempts == 1 {
                times.to_owned()
            } else {
                format!("{} {times}", error.attempts)
            };
            let _infallible = write!(text, "; {} failed {count}", error.verb);
            if let Some(since) = error.since {
                let _infallible = write!(text, " in {}", length(span(since, self.now)));
            }
            match cell.next_retry {
                Some(next) => {
                    let _infallible =
                        write!(text, ", next try in {}", length(span(self.now, next)));
                }
                None if cell.state == "Fenced" => {
                    text.push_str(", tried again when access is there");
                }
                None => text.push_str(", a try is under way"),
            }
            let _infallible = write!(text, "; last with {}: {}", error.reason, error.message);
        }
        self.entry("cell", tone, &escape(&text))
    }

    /// What is not allowed, the rule that would allow it, and how to grant it.
    fn missing(&self, status: &CacheProfileStatus, declared: &Target) -> Vec<Line> {
        let Some(access) = &status.access else { return Vec::new() };
        let refused = refused(access, &declared.of);
        if refused.is_empty() {
            return Vec::new();
        }
        let subject = access.subject.as_deref().unwrap_or("kubewarm");
        let mut lines = Vec::new();
        for (verbs, namespace) in refused {
            let place = match namespace.as_str() {
                "" => "the whole cluster".to_owned(),
                namespace => format!("namespace {namespace}"),
            };
            let text = format!("{verbs} on {} in {place}, for {subject}", declared.of);
            lines.extend(self.entry("missing", Tone::Bad, &escape(&text)));
        }
        for granting in granting(access, &declared.of) {
            lines.extend(self.entry("granted by", Tone::Plain, &escape(&granting.role)));
            lines.extend(granting.rule.iter().map(|rule| command(rule)));
        }
        let metadata = &self.profile.metadata;
        let (own, namespace) =
            (plain(metadata.name.as_deref()), plain(metadata.namespace.as_deref()));
        let generation = metadata.generation.unwrap_or_default();
        let rbac = format!("{} rbac {own} -n {namespace}", self.program);
        lines.extend(self.entry(
            "to grant it",
            Tone::Plain,
            "all that the profile needs, after a look",
        ));
        lines.push(command(&format!("{rbac} --diff --generation={generation} &&")));
        lines.push(command(&format!("  {rbac} --generation={generation} | kubectl apply -f -")));
        lines
    }

    /// A label, and a text that fits beside it.
    fn entry(&self, label: &str, tone: Tone, text: &str) -> Vec<Line> {
        let room = self.width.saturating_sub(LABEL + 2);
        let line = |(at, text): (usize, String)| {
            let label = if at == 0 { label } else { "" };
            let mut line = Line::of(Tone::Quiet, format!("  {label:<LABEL$}"));
            line.push(tone, text);
            line
        };
        wrapped(text, room).into_iter().enumerate().map(line).collect()
    }
}

fn headline(title: String, found: Option<&TargetStatus>) -> Line {
    let mut head = Line::of(Tone::Strong, title);
    let is = |type_: &str| {
        let condition = found.and_then(|found| condition(&found.conditions, type_));
        condition.is_some_and(|condition| condition.status == "True")
    };
    match (is("Warm"), is("Fresh")) {
        (true, true) => head.push(Tone::Good, "  warm"),
        (true, false) => head.push(Tone::Warning, "  warm, but not known to be current"),
        (false, _) => head.push(Tone::Warning, "  not warm"),
    }
    head
}

/// A line to be copied, which is never broken.
fn command(text: &str) -> Line {
    Line::of(Tone::Strong, format!("    {}", escape(text)))
}

/// `1 of 4 synced: 2 syncing, 1 forbidden`.
fn cells_text(target: &TargetStatus) -> String {
    let CellCounts { total, synced, syncing, stale, forbidden, missing, limited, failing } =
        target.cells.clone().unwrap_or_default();
    let others = [
        (stale, "stale"),
        (syncing, "syncing"),
        (forbidden, "forbidden"),
        (missing, "missing"),
        (limited, "limited"),
        (failing, "failing"),
    ];
    let told: Vec<_> = others
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let colon = if told.is_empty() { "" } else { ": " };
    let objects = grouped(target.objects.unwrap_or(0));
    format!("{synced} of {total} synced{colon}{}; {objects} objects", told.join(", "))
}

/// The namespaces that a selector finds, as far as the status names them: those that roles are for.
fn selected(status: &CacheProfileStatus, declared: &Target) -> Vec<String> {
    if !matches!(declared.scope, TargetScope::NamespaceSelector(_)) {
        return Vec::new();
    }
    let roles = status.access.iter().flat_map(|access| &access.roles);
    let of_it = roles.filter(|place| {
        place.rules.iter().any(|rule| {
            rule.api_groups.iter().any(|group| group == declared.of.group())
                && rule.resources.iter().any(|resource| resource == declared.of.resource())
        })
    });
    of_it.map(|place| place.namespace.clone()).collect()
}

#[cfg(test)]
mod tests;
