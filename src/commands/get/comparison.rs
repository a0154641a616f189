//! The report of `get --compare`.

use super::response_objects::{ObjectDifference, ResponseObjects};
use crate::commands::{
    report::{CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, RowMark},
    text::{grouped, length},
};
use std::time::Duration;

/// Maximum number of differing objects that the output names, so that the output stays readable.
const MAX_NAMED: usize = 50;

/// The objects in a server's response, with the latencies of the response.
#[derive(Debug)]
pub(super) struct TimedResponse {
    pub(super) rows: ResponseObjects,
    /// Time from the request to the first byte of the response.
    pub(super) first_byte: Duration,
    /// Time from the request to the end of the response.
    pub(super) whole: Duration,
    /// Size of the response body.
    pub(super) bytes: usize,
    /// Time since kubewarm last confirmed that its data is current. `None` for the API server.
    pub(super) freshness: Option<Duration>,
}

/// Returns the report: a row for each difference, and a row of counts and latencies for the cache
/// and for the API server.
pub(super) fn comparison(
    ours: &TimedResponse,
    theirs: &TimedResponse,
    differences: &[ObjectDifference],
) -> CommandReport {
    let title = match differences.len() {
        0 => format!("equal: {}", objects(theirs.rows.count(), "no object at either")),
        some => format!("different: {}", objects(some, "")),
    };
    let mut rows: Vec<_> = differences.iter().take(MAX_NAMED).map(ObjectDifference::row).collect();
    if differences.len() > MAX_NAMED {
        let text = format!("and {} more", differences.len() - MAX_NAMED);
        rows.push(ReportRow::marked(RowMark::Plain, text));
    }
    let head = ["OBJECTS", "FIRST BYTE", "END", "BYTES", "VERSION", "AGE"];
    let readings = vec![
        ReportRow::numbers("", head.map(str::to_owned)),
        reading("cache", ours),
        reading("API server", theirs),
    ];
    CommandReport {
        sections: vec![
            ReportSection::new(title, rows),
            ReportSection { rows: readings, ..ReportSection::default() },
        ],
        verdict: if differences.is_empty() { CommandExitCode::Good } else { CommandExitCode::Bad },
        ..CommandReport::default()
    }
}

fn objects(count: usize, none: &str) -> String {
    match count {
        0 => none.to_owned(),
        1 => "1 object".to_owned(),
        many => format!("{} objects", grouped(many)),
    }
}

/// Returns a row with the counts and latencies of a server's response. Programs also get the
/// latencies in milliseconds, which people do not see.
fn reading(server: &str, reading: &TimedResponse) -> ReportRow {
    let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let mut row = ReportRow::numbers(server, figures(reading));
    row.facts.extend([
        ReportFact::hidden("server", server),
        ReportFact::hidden("objects", reading.rows.count()),
        ReportFact::hidden("firstByteMilliseconds", millis(reading.first_byte)),
        ReportFact::hidden("endMilliseconds", millis(reading.whole)),
        ReportFact::hidden("bytes", reading.bytes),
        ReportFact::hidden("resourceVersion", reading.rows.version.as_str()),
    ]);
    row.facts
        .extend(reading.freshness.map(|age| ReportFact::hidden("ageMilliseconds", millis(age))));
    row
}

fn figures(reading: &TimedResponse) -> [String; 6] {
    [
        grouped(reading.rows.count()),
        length(reading.first_byte),
        length(reading.whole),
        grouped(reading.bytes),
        reading.rows.version.clone(),
        reading.freshness.map_or_else(|| "-".to_owned(), length),
    ]
}
