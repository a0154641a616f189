//! One target of a profile: why it is not warm, the rule that is missing, and what to run next.

mod missing;

use super::{
    Error,
    paint::{Colour, Line, Tone},
    print::{print, terminal},
    text::{escape, grouped, length, plain, span, wrapped},
    verdict::{Verdict, condition, name, own_message, problem},
};
use crate::{
    api::{CacheProfile, CacheProfileStatus, CellCounts, TargetStatus},
    cli::program,
    model::GroupResource,
};
use jiff::Timestamp;
use missing::{granting, refused};

/// Columns of what stands before a text.
const LABEL: usize = 14;

/// Prints what the status of `profile`, called `title`, has of its target `target`.
///
/// # Errors
///
/// [`Error`] if the profile has no such target, or the output cannot be written.
pub(super) fn target(
    profile: &CacheProfile,
    target: &str,
    title: &str,
    now: Timestamp,
) -> Result<Verdict, Error> {
    let all: Vec<_> = profile.spec.targets.iter().map(|target| target.name.as_str()).collect();
    if !all.contains(&target) {
        return Err(Error::NoTarget {
            title: title.to_owned(),
            target: escape(target).into_owned(),
            has: escape(&all.join(", ")).into_owned(),
        });
    }
    let (width, colour) = terminal().map_or((0, Colour::Off), |found| (found.width, found.colour));
    let page = Page { profile, width, now, program: program() };
    let text: String = page.of(target).iter().map(|line| line.paint(0, colour)).collect();
    print(&text)?;
    Ok(verdict(profile, target))
}

/// Whether the target is warm and current, by a status of the newest generation.
fn verdict(profile: &CacheProfile, target: &str) -> Verdict {
    let status = profile.status.as_ref();
    let current = status.filter(|status| status.observed_generation >= profile.metadata.generation);
    let found = current.and_then(|status| status.targets.iter().find(|it| it.name == target));
    let is_well = found.is_some_and(|found| {
        ["Warm", "Fresh"].into_iter().all(|type_| is_true(Some(found), type_))
    });
    if is_well { Verdict::Ready } else { Verdict::NotReady }
}

fn is_true(target: Option<&TargetStatus>, type_: &str) -> bool {
    let found = target.and_then(|target| condition(&target.conditions, type_));
    found.is_some_and(|found| found.status == "True")
}

/// What a page is written from.
#[derive(Clone, Copy, Debug)]
struct Page<'a> {
    profile: &'a CacheProfile,
    /// Columns; 0: any.
    width: usize,
    now: Timestamp,
    /// What is typed for this program.
    program: &'a str,
}

impl Page<'_> {
    /// Of the target `target`, one of the spec's.
    fn of(&self, target: &str) -> Vec<Line> {
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
        let declared = self.profile.spec.targets.iter().find(|it| it.name == target);
        let of = declared
            .and_then(|it| GroupResource::new(&it.resource.group, &it.resource.resource).ok());
        if let Some(of) = of {
            lines.extend(self.missing(status, &of));
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

    /// What is not allowed, the rule that would allow it, and how to grant it.
    fn missing(&self, status: &CacheProfileStatus, of: &GroupResource) -> Vec<Line> {
        let Some(access) = &status.access else { return Vec::new() };
        let refused = refused(access, of);
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
            let text = format!("{verbs} on {of} in {place}, for {subject}");
            lines.extend(self.entry("missing", Tone::Bad, &escape(&text)));
        }
        for granting in granting(access, of) {
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
    match (is_true(found, "Warm"), is_true(found, "Fresh")) {
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

#[cfg(test)]
mod tests;
