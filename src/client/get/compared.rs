//! What a comparison came to, for people.

use super::rows::{Difference, Rows};
use crate::client::{
    table::table,
    text::{escape, grouped, length},
};
use std::{fmt::Write as _, time::Duration};

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

/// The verdict, each difference, and the latencies.
pub(super) fn told(both: &Both, differences: &[Difference]) -> String {
    let mut text = match differences.len() {
        0 => format!("equal: {}\n", objects(&both.theirs.rows)),
        1 => "different: 1 object\n".to_owned(),
        many => format!("different: {} objects\n", grouped(many.try_into().unwrap_or(i64::MAX))),
    };
    for difference in differences.iter().take(MAX_NAMED) {
        let _infallible = writeln!(text, "  {difference}");
    }
    if differences.len() > MAX_NAMED {
        let _infallible = writeln!(text, "  and {} more", differences.len() - MAX_NAMED);
    }
    let head = ["", "OBJECTS", "FIRST BYTE", "END", "BYTES", "VERSION", "AGE"];
    let rows = [row("cache", &both.ours), row("API server", &both.theirs)];
    text + "\n" + &table(&head, &rows)
}

fn objects(rows: &Rows) -> String {
    match rows.count() {
        0 => "no object at either".to_owned(),
        1 => "1 object".to_owned(),
        many => format!("{} objects", grouped(many.try_into().unwrap_or(i64::MAX))),
    }
}

fn row(name: &str, reading: &Reading) -> Vec<String> {
    let number = |number: usize| grouped(number.try_into().unwrap_or(i64::MAX));
    vec![
        name.to_owned(),
        number(reading.rows.count()),
        length(reading.first_byte),
        length(reading.whole),
        number(reading.bytes),
        escape(&reading.rows.version).into_owned(),
        reading.freshness.map_or_else(String::new, length),
    ]
}
