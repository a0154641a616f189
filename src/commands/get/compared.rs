//! What a comparison came to, for people.

use super::rows::{Difference, Rows};
use crate::commands::{
    report::{Fact, Mark, Report, ReportRow, Section, Tone, Verdict},
    text::{grouped, length},
};
use std::time::Duration;

/// Differences that are named one by one.
const MAX_NAMED: usize = 50;

/// What a server said, and how soon.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) rows: Rows,
    /// From the request on.
    pub(super) first_byte: Duration,
    pub(super) whole: Duration,
    /// Of the body.
    pub(super) bytes: usize,
    /// How long ago it was known to be current, if that is said.
    pub(super) freshness: Option<Duration>,
}

/// Of both servers.
#[derive(Debug)]
pub(super) struct Both {
    pub(super) ours: Reading,
    pub(super) theirs: Reading,
}

/// Whether both say the same, each difference, and the latencies.
pub(super) fn comparison(both: &Both, differences: &[Difference]) -> Report {
    let title = match differences.len() {
        0 => format!("equal: {}", objects(both.theirs.rows.count(), "no object at either")),
        some => format!("different: {}", objects(some, "")),
    };
    let mut rows: Vec<_> = differences.iter().take(MAX_NAMED).map(Difference::row).collect();
    if differences.len() > MAX_NAMED {
        let text = format!("and {} more", differences.len() - MAX_NAMED);
        rows.push(ReportRow::marked(Mark::Plain, text));
    }
    let head = ["", "OBJECTS", "FIRST BYTE", "END", "BYTES", "VERSION", "AGE"];
    let readings = vec![
        row(head.map(str::to_owned)),
        row(figures("cache", &both.ours)),
        row(figures("API server", &both.theirs)),
    ];
    Report {
        sections: vec![Section::new(title, rows), Section { rows: readings, ..Section::default() }],
        verdict: if differences.is_empty() { Verdict::Good } else { Verdict::Bad },
        ..Report::default()
    }
}

fn objects(count: usize, none: &str) -> String {
    match count {
        0 => none.to_owned(),
        1 => "1 object".to_owned(),
        many => format!("{} objects", number(many)),
    }
}

fn row([name, figures @ ..]: [String; 7]) -> ReportRow {
    let figures = figures.into_iter().map(Fact::number);
    ReportRow::of([Fact::new(Tone::Plain, name)].into_iter().chain(figures).collect())
}

fn figures(name: &str, reading: &Reading) -> [String; 7] {
    [
        name.to_owned(),
        number(reading.rows.count()),
        length(reading.first_byte),
        length(reading.whole),
        number(reading.bytes),
        reading.rows.version.clone(),
        reading.freshness.map_or_else(|| "-".to_owned(), length),
    ]
}

fn number(number: usize) -> String {
    grouped(number.try_into().unwrap_or(i64::MAX))
}
