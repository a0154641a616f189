//! The section of docs/performance.md about growth: curves, their exponents, and what one replica
//! holds.

use super::chart::{ChartPanel, draw};
use crate::report::{Part, number};
use anyhow::{Context, Result};
use std::{fmt::Write as _, fs, path::Path};

/// The heading of the section, and the heading of the next one.
const HEADING: &str = "\n## Growth\n";
const NEXT: &str = "\n## How it is measured\n";
const INTRODUCTION: &str = "
`make bench-scale` starts an operator for each size, with raised limits. A scripted server replaces the API server. The
server generates pods without managedFields.

- *Objects*: one profile of all pods, then 500 changes a second. Each list by label returns 250 pods.
- *Watches*: each watch selects all 50,000 pods. At each size, the watches together receive 10,000 events a second.
- *Node-watches*: each watch selects the pods of one of 500 nodes, or of a node without pods, at 500 changes a second.
  From 500 watches on, each change is sent to one watch. What the watches cost at rest is subtracted.
- *Profiles*: each profile reads the 50 pods of its own namespace.

All axes are logarithmic. The number in parentheses is the exponent of the steepest step between two sizes. ✗ marks
exponents above 1.1. The last number of each line is computed from the largest size, for a replica with 4 cores and
8 GiB. This number ignores [limits](limits.md), such as 10,000 profiles.
";
/// The largest exponent that counts as linear growth. A measurement varies by a few percent.
const LINEAR: f64 = 1.1;
/// The memory of a replica with 8 GiB, in KiB. Stores get 75 % of it, and readers 15 %.
const MEMORY: f64 = 8.0 * 1024.0 * 1024.0;
const STORES: f64 = 0.75 * MEMORY;
const READERS: f64 = 0.15 * MEMORY;
/// What a replica with 4 cores has: their processor time in a second, in microseconds.
const CPU: f64 = 4e6;
/// What one connection has: one second of time in a second, in microseconds.
const CONNECTION: f64 = 1e6;
/// A placeholder for what a replica has: the largest size of the sweep, which is known only after
/// the run.
const SIZE: f64 = 0.0;

/// One figure of a sweep, with these parts:
///
/// 1. the name of its samples, without the name of the sweep in front
/// 2. its title
/// 3. the power of the size by which the sample is divided: 1 for a figure per object, 0 for other
///    figures
/// 4. what a replica has, for example memory, or [`SIZE`]
/// 5. a text with a number: what a replica has, divided by the figure
struct Growth(&'static str, &'static str, f64, f64, &'static str);

const OBJECTS: &[Growth] = &[
    Growth("kib", "memory per object, KiB", 1.0, STORES, "75 % of 8 GiB hold {} objects"),
    Growth("seconds", "time to synced, s", 0.0, SIZE, "an informer stores {} objects a second"),
    Growth(
        "list_us",
        "list of 250 by label, p50, µs",
        0.0,
        CONNECTION,
        "one connection lists {} times a second",
    ),
    Growth("event_us", "CPU per event, µs", 0.0, CPU, "4 cores store {} events a second"),
];
const WATCHES: &[Growth] = &[
    Growth("lag_s", "watch lag, p99, s", 0.0, SIZE, "a change reaches {} watches a second"),
    Growth("kib", "memory per watch, KiB", 1.0, READERS, "15 % of 8 GiB hold {} watches"),
    Growth("event_us", "CPU per sent event, µs", 1.0, CPU, "4 cores send {} events a second"),
];
const NODE_WATCHES: &[Growth] = &[Growth(
    "change_us",
    "CPU per change, µs",
    0.0,
    CPU,
    "4 cores store and send {} changes a second",
)];
const PROFILES: &[Growth] = &[
    Growth("seconds", "time to synced, s", 0.0, SIZE, "an operator syncs {} profiles a second"),
    Growth("kib", "memory per profile, KiB", 1.0, STORES, "75 % of 8 GiB hold {} profiles"),
    Growth("rest_us", "CPU at rest per profile, µs/s", 1.0, CPU, "4 cores hold {} profiles"),
];

/// Writes the charts next to the document `out`, and the section into it.
pub(crate) fn write(part: &Part, out: &Path) -> Result<()> {
    let (commit, date, machine) = (&part.origin.commit, &part.origin.date, &part.origin.machine);
    let mut text =
        format!("{HEADING}{INTRODUCTION}\nCommit {commit}, {date}. Machine: {machine}.\n");
    for (sizes, curves) in [
        ("objects", OBJECTS),
        ("watches", WATCHES),
        ("node-watches", NODE_WATCHES),
        ("profiles", PROFILES),
    ] {
        let samples = |name: &str| part.plain.values(&format!("{sizes}.{name}")).iter().copied();
        let Some(last) = samples("size").last() else { continue };
        let file = format!("scale-{sizes}.svg");
        write!(text, "\n![Growth with the number of {sizes}]({file})\n\n")?;
        let (mut panels, mut head) = (Vec::new(), format!("| {sizes} |"));
        for &Growth(name, title, divided, has, holds) in curves {
            let points: Vec<_> = samples("size").zip(samples(name)).collect();
            let (_, value) = points.last().context("a curve without values")?;
            let exponent = divided + exponent(&points);
            let growth = match exponent {
                none if none < 0.1 => "does not grow",
                less if less < 0.9 => "grows less than linearly",
                linear if linear <= LINEAR => "grows linearly",
                _ => "grows more than linearly ✗",
            };
            let has = if has > SIZE { has } else { last };
            let holds = holds.replace("{}", &about(has / value));
            let factor = if divided > 0.0 { format!(", times {sizes}") } else { String::new() };
            writeln!(text, "- *{title}*{factor}: {growth} ({exponent:.2}); {holds}.")?;
            write!(head, " {title} |")?;
            panels.push(ChartPanel { title, points });
        }
        fs::write(out.with_file_name(&file), draw(sizes, &panels))?;
        writeln!(text, "\n{head}\n|---|{}", "---|".repeat(panels.len()))?;
        for (at, size) in samples("size").enumerate() {
            let values = panels.iter().filter_map(|panel| panel.points.get(at));
            let values: Vec<_> = values.map(|(_, value)| number(*value)).collect();
            writeln!(text, "| {size} | {} |", values.join(" | "))?;
        }
    }
    let old = fs::read_to_string(out).with_context(|| format!("cannot read {}", out.display()))?;
    Ok(fs::write(out, with_section(&old, &text))?)
}

/// Rounds `value` to two digits.
fn about(value: f64) -> String {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    let rounded = (value / unit).round() * unit;
    if rounded < 1e6 { format!("{rounded:.0}") } else { format!("{} million", rounded / 1e6) }
}

/// The largest slope between neighbouring points in a chart with logarithmic axes; 0 for a single
/// point.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let steps = points.iter().zip(points.iter().skip(1));
    let slopes = steps.map(|(from, to)| (to.1 / from.1).ln() / (to.0 / from.0).ln());
    slopes.reduce(f64::max).unwrap_or_default()
}

/// The document `new` with the growth section of `old`, the same document from an earlier run.
pub(crate) fn with_section(new: &str, old: &str) -> String {
    let before = new.split(HEADING).next().unwrap_or_default();
    let before = before.split(NEXT).next().unwrap_or_default();
    let section = old.split_once(HEADING).map_or("", |(_, behind)| behind);
    let section = section.split(NEXT).next().unwrap_or_default();
    let rest = new.split_once(NEXT).map_or("", |(_, behind)| behind);
    let heading = if section.is_empty() { "" } else { HEADING };
    format!("{before}{heading}{section}{NEXT}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_the_power_of_the_size_in_the_steepest_step() {
        for (power, values) in [
            (0.0, [3.0, 3.0, 3.0]),
            (1.0, [2.0, 20.0, 200.0]),
            (2.0, [1.0, 100.0, 10_000.0]),
            (1.5, [1.0, 1.0, 1_000_f64.sqrt()]),
            (1.5, [1.0, 1_000_f64.sqrt(), 1.0]),
        ] {
            let actual = exponent(&[(10.0, values[0]), (100.0, values[1]), (1_000.0, values[2])]);
            assert!((actual - power).abs() < 1e-9, "{actual}");
        }
        assert!(exponent(&[(10.0, 3.0)]).abs() < f64::EPSILON);
    }

    #[test]
    fn a_capacity_has_two_digits() {
        for (value, text) in [
            (294.1, "290"),
            (52_886.0, "53000"),
            (999_999.0, "1 million"),
            (1_270_000.0, "1.3 million"),
            (13_300_000.0, "13 million"),
        ] {
            assert_eq!(about(value), text);
        }
    }

    #[test]
    fn a_new_document_keeps_the_section_and_a_new_section_replaces_it() {
        let document = |growth: &str| format!("# Title\n\n| table |\n{growth}{NEXT}\n- notes\n");
        let grown = document(&format!("{HEADING}\n1\n"));
        assert_eq!(with_section(&document(""), &grown), grown);
        assert_eq!(with_section(&document(""), &document("")), document(""));
        assert_eq!(with_section(&grown, &format!("{HEADING}\n2\n")), grown.replace('1', "2"));
    }
}
