//! What a comparison came to, for people.

use super::rows::{Difference, Rows};
use crate::commands::{
    report::{Fact, Mark, Report, ReportRow, Section, Verdict},
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

/// Whether both servers say the same, each difference, and the latencies.
pub(super) fn comparison(ours: &Reading, theirs: &Reading, differences: &[Difference]) -> Report {
    let title = match differences.len() {
        0 => format!("equal: {}", objects(theirs.rows.count(), "no object at either")),
        some => format!("different: {}", objects(some, "")),
    };
    let mut rows: Vec<_> = differences.iter().take(MAX_NAMED).map(Difference::row).collect();
    if differences.len() > MAX_NAMED {
        let text = format!("and {} more", differences.len() - MAX_NAMED);
        rows.push(ReportRow::marked(Mark::Plain, text));
    }
    let head = ["OBJECTS", "FIRST BYTE", "END", "BYTES", "VERSION", "AGE"];
    let readings = vec![
        ReportRow::numbers("", head.map(str::to_owned)),
        reading("cache", ours),
        reading("API server", theirs),
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
        many => format!("{} objects", grouped(many)),
    }
}

/// A line of the table; programs get milliseconds.
fn reading(server: &str, reading: &Reading) -> ReportRow {
    let millis = |length: Duration| length.as_millis().to_string();
    let mut row = ReportRow::numbers(server, figures(reading));
    row.facts.extend([
        Fact::hidden("server", server),
        Fact::hidden("objects", reading.rows.count().to_string()),
        Fact::hidden("firstByteMilliseconds", millis(reading.first_byte)),
        Fact::hidden("endMilliseconds", millis(reading.whole)),
        Fact::hidden("bytes", reading.bytes.to_string()),
        Fact::hidden("resourceVersion", &reading.rows.version),
    ]);
    row.facts.extend(reading.freshness.map(|age| Fact::hidden("ageMilliseconds", millis(age))));
    row
}

fn figures(reading: &Reading) -> [String; 6] {
    [
        grouped(reading.rows.count()),
        length(reading.first_byte),
        length(reading.whole),
        grouped(reading.bytes),
        reading.rows.version.clone(),
        reading.freshness.map_or_else(|| "-".to_owned(), length),
    ]
}
