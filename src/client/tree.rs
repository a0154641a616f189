//! Profiles drawn for a person at a terminal: a tree with progress bars.

use super::{
    paint::{Colour, Line, Tone},
    text::{escape, grouped, length, span},
    verdict::{
        Verdict, condition, name, own_message, problem, sentence, unhealthy, untold, verdict,
    },
};
use crate::api::{CacheProfile, CacheProfileStatus, CellCounts, TargetStatus};
use jiff::Timestamp;
use std::time::Duration;

/// From this width on bars are 20 columns, below it 10.
const WIDE: usize = 80;
/// A relist is shown for so long.
const RECENT: Duration = Duration::from_mins(10);

/// How to draw.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns; longer lines are cut. 0: no limit.
    pub width: usize,
    /// Whether with colours.
    pub colour: Colour,
    /// The clock, for what is told relative to it.
    pub now: Timestamp,
}

/// Draws `profiles` in their order. Every line ends with a line feed and fits `look.width`; text of
/// the cluster is escaped.
#[must_use]
pub fn tree(profiles: &[CacheProfile], look: &Look) -> String {
    let mut lines = Vec::new();
    for profile in profiles {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        draw(profile, look, &mut lines);
    }
    lines.iter().map(|line| line.paint(look.width, look.colour)).collect()
}

fn draw(profile: &CacheProfile, look: &Look, lines: &mut Vec<Line>) {
    let mut head = Line::default();
    head.push(Tone::Strong, name(profile));
    let Some(status) = &profile.status else {
        head.push(Tone::Warning, "  no status yet: is the operator running?");
        lines.push(head);
        return;
    };
    headline(profile, status, &mut head);
    lines.push(head);
    for type_ in ["Stalled", "Ready"] {
        let bad = if type_ == "Stalled" { "True" } else { "False" };
        if let Some(found) = condition(&status.conditions, type_).filter(|c| c.status == bad) {
            let tone = if type_ == "Stalled" { Tone::Bad } else { Tone::Warning };
            lines.extend(Line::hanging("  ", tone, &sentence(found), look.width));
            break;
        }
    }
    let columns = Columns::of(&status.targets);
    for (at, target) in status.targets.iter().enumerate() {
        let is_last = at + 1 == status.targets.len();
        lines.push(target_line(target, is_last, &columns, look));
        let rail = if is_last { "    " } else { "│   " };
        for (tone, note) in notes(target, status, look.now) {
            lines.extend(Line::hanging(rail, tone, &note, look.width));
        }
    }
}

fn headline(profile: &CacheProfile, status: &CacheProfileStatus, head: &mut Line) {
    match verdict(profile) {
        Verdict::Ready => head.push(Tone::Good, "  ready"),
        Verdict::Failed => head.push(Tone::Bad, "  needs an edit"),
        Verdict::NotReady | Verdict::TimedOut => head.push(Tone::Warning, "  not ready"),
    }
    if status.observed_generation < profile.metadata.generation {
        head.push(Tone::Warning, "  newest generation not seen yet");
    }
    if let Some(warm) = &status.warm_targets {
        head.push(Tone::Plain, format!("  {} warm", escape(warm)));
    }
    match condition(&status.conditions, "Fresh").map(|fresh| fresh.status.as_str()) {
        Some("True") => head.push(Tone::Plain, "  fresh"),
        Some("False") => head.push(Tone::Warning, "  not fresh"),
        _ => {}
    }
    if let Some(objects) = status.objects {
        head.push(Tone::Plain, format!("  {} objects", grouped(objects)));
    }
    if let Some(memory) = &status.memory {
        head.push(Tone::Plain, format!("  {}", escape(memory)));
    }
    let took = status.time_to_warm_milliseconds.and_then(|millis| u64::try_from(millis).ok());
    if let Some(millis) = took {
        let took = length(Duration::from_millis(millis));
        head.push(Tone::Plain, format!("  warm after {took}"));
    }
    let missed = condition(&status.conditions, "WarmupObjectiveMet")
        .is_some_and(|objective| objective.status == "False");
    if let (true, Some(seconds)) = (missed, profile.spec.warmup.target_seconds) {
        head.push(Tone::Warning, format!("  (objective {seconds} s missed)"));
    }
}

/// Widths of the columns that line targets up.
struct Columns {
    name: usize,
    cells: usize,
    objects: usize,
}

impl Columns {
    fn of(targets: &[TargetStatus]) -> Self {
        let widest = |text: fn(&TargetStatus) -> String| {
            targets.iter().map(|target| text(target).chars().count()).max().unwrap_or(0)
        };
        Self {
            name: widest(|target| escape(&target.name).into_owned()),
            cells: widest(cells_text),
            objects: widest(objects_text),
        }
    }
}

fn target_line(target: &TargetStatus, is_last: bool, columns: &Columns, look: &Look) -> Line {
    let mut line = Line::of(Tone::Quiet, if is_last { "└── " } else { "├── " }.to_owned());
    line.push(Tone::Plain, format!("{:<1$}  ", escape(&target.name), columns.name));
    bar(target, if look.width == 0 || look.width >= WIDE { 20 } else { 10 }, &mut line);
    line.push(Tone::Plain, format!("  {:>1$}", cells_text(target), columns.cells));
    line.push(Tone::Plain, format!("  {:>1$}", objects_text(target), columns.objects));
    if let Some(memory) = &target.memory {
        line.push(Tone::Plain, format!("  {:>6}", escape(memory)));
    }
    match unhealthy(target) {
        Some(condition) => line.push(Tone::Warning, format!("  {}", escape(&condition.reason))),
        None if target.conditions.is_empty() => {}
        None => line.push(Tone::Good, "  warm"),
    }
    line
}

fn cells_text(target: &TargetStatus) -> String {
    let CellCounts { total, synced, stale, .. } = target.cells.clone().unwrap_or_default();
    format!("{}/{total} cells", synced.saturating_add(stale))
}

fn objects_text(target: &TargetStatus) -> String {
    format!("{} objects", grouped(target.objects.unwrap_or(0)))
}

/// `█` for cells that are synced and current, `▓` for those that are synced but not current, `░`
/// for the rest. Full only if all are synced. A warm target without cells is full.
fn bar(target: &TargetStatus, width: usize, line: &mut Line) {
    let counts = target.cells.clone().unwrap_or_default();
    let of = |cells: i32| usize::try_from(cells).unwrap_or(0);
    let is_warm = condition(&target.conditions, "Warm").is_some_and(|warm| warm.status == "True");
    let (synced, stale, total) = (of(counts.synced), of(counts.stale), of(counts.total));
    let (full, half) = match total {
        0 if is_warm => (width, 0),
        0 => (0, 0),
        _ => {
            let columns = |cells: usize| cells.min(total).saturating_mul(width) / total;
            (columns(synced), columns(synced.saturating_add(stale)) - columns(synced))
        }
    };
    line.push(Tone::Good, "█".repeat(full));
    line.push(Tone::Warning, "▓".repeat(half));
    line.push(Tone::Quiet, "░".repeat(width.saturating_sub(full + half)));
}

/// What else there is to say of a target, below its line.
fn notes(
    target: &TargetStatus,
    profile: &CacheProfileStatus,
    now: Timestamp,
) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    if let Some(found) = untold(target) {
        let said = own_message(target, found);
        notes.extend((!said.is_empty()).then(|| (Tone::Warning, escape(said).into_owned())));
    }
    for found in &target.problems {
        let next = found.next_retry_time.as_ref().map_or_else(String::new, |next| {
            format!("; next try in {}", length(span(now, next.0)))
        });
        notes.push((Tone::Bad, format!("{}{next}", problem(found))));
    }
    let behind = target
        .serving_generation
        .filter(|serving| profile.observed_generation.is_some_and(|observed| *serving < observed));
    if let Some(generation) = behind {
        notes.push((Tone::Quiet, format!("generation {generation} answers until this is warm")));
    }
    let recent = target.last_relist.as_ref().filter(|last| span(last.time.0, now) <= RECENT);
    if let Some(relist) = recent {
        notes.push((
            Tone::Quiet,
            format!(
                "relisted {} ago ({}): {} replaced, {} deleted in the gap",
                length(span(relist.time.0, now)),
                escape(&relist.reason),
                grouped(relist.replaced_objects),
                grouped(relist.deleted_in_gap),
            ),
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    fn plain(width: usize) -> Look {
        Look { width, colour: Colour::Off, now: sample::now() }
    }

    #[test]
    fn a_profile_is_a_tree_with_bars() {
        let drawn = tree(&[sample::ready(), sample::warming()], &plain(100));
        assert_eq!(drawn, include_str!("tree.golden"), "drawn:\n{drawn}");
    }

    #[test]
    fn every_line_fits_the_terminal() {
        let profiles = [sample::ready(), sample::warming(), sample::stalled()];
        for width in 1..100 {
            for line in tree(&profiles, &plain(width)).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn messages_cannot_steer_the_terminal() {
        let drawn = tree(&[sample::stalled()], &plain(0));
        assert_eq!(drawn, "shop/broken  needs an edit\n  InvalidSpec: targets[0]: \\u{1b}[2Jbad\n");
    }

    #[test]
    fn nobody_has_looked_at_a_new_profile() {
        let drawn = tree(&[sample::untouched()], &plain(80));
        assert_eq!(drawn, "shop/new  no status yet: is the operator running?\n");
    }

    #[test]
    fn a_missed_objective_is_said() {
        let mut profile = sample::ready();
        for condition in &mut profile.status.as_mut().unwrap().conditions {
            if condition.type_ == "WarmupObjectiveMet" {
                condition.status = "False".to_owned();
            }
        }
        assert!(tree(&[profile], &plain(0)).contains("(objective 10 s missed)"));
    }

    #[test]
    fn colours_only_add_to_the_text() {
        let look = Look { colour: Colour::On, ..plain(100) };
        let coloured = tree(&[sample::warming()], &look);
        assert!(coloured.contains("\u{1b}[32m"));
        let mut stripped = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            stripped.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        stripped.push_str(rest);
        assert_eq!(stripped, tree(&[sample::warming()], &plain(100)));
    }

    #[test]
    fn a_bar_is_full_only_when_every_cell_is_synced() {
        let bar_of = |total, synced| {
            let cells = Some(CellCounts { total, synced, ..CellCounts::default() });
            let mut line = Line::default();
            bar(&TargetStatus { cells, ..TargetStatus::default() }, 10, &mut line);
            line.paint(0, Colour::Off)
        };
        assert_eq!(bar_of(1000, 999), "█████████░\n");
        assert_eq!(bar_of(3, 3), "██████████\n");
        assert_eq!(bar_of(0, 0), "░░░░░░░░░░\n");
        assert_eq!(bar_of(3, -1), "░░░░░░░░░░\n");
    }
}
