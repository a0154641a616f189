//! A row of `top`, and how rows are sorted and written.

use super::super::{
    table::table,
    text::{escape, grouped, span},
};
use crate::{
    api::mebibytes,
    cli::{Sort, What},
};
use jiff::Timestamp;
use std::{cmp::Reverse, time::Duration};

/// What is known of one thing; what nobody knows is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) objects: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) watches: Option<u64>,
    pub(super) requests: Option<u64>,
    pub(super) received: Option<u64>,
    pub(super) relists: Option<u64>,
    pub(super) since: Option<Timestamp>,
    pub(super) state: Option<String>,
}

/// The columns of a table, and which of them can be sorted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) title: &'static str,
    pub(super) head: &'static [&'static str],
    pub(super) sorts: &'static [Sort],
}

pub(super) const fn columns(what: What) -> Columns {
    use Sort::{Age, Memory, Name, Objects, Requests};
    match what {
        What::Profiles => Columns {
            title: "profiles",
            head: &["NAME", "OBJECTS", "MEMORY", "WATCHES", "AGE", "STATE"],
            sorts: &[Objects, Memory, Age, Name],
        },
        What::Targets => Columns {
            title: "targets",
            head: &["NAME", "OBJECTS", "MEMORY", "WATCHES", "STATE"],
            sorts: &[Objects, Memory, Name],
        },
        What::Cells => Columns {
            title: "cells",
            head: &["NAME", "OBJECTS", "MEMORY", "AGE", "STATE"],
            sorts: &[Objects, Memory, Age, Name],
        },
        What::Kinds => Columns {
            title: "kinds",
            head: &["NAME", "OBJECTS", "MEMORY", "WATCHES", "REQUESTS", "RECEIVED", "RELISTS"],
            sorts: &[Objects, Memory, Requests, Name],
        },
    }
}

impl Columns {
    /// What `--sort` takes, in words.
    pub(super) fn sort_names(&self) -> String {
        let word = |sort: &Sort| match sort {
            Sort::Objects => "objects",
            Sort::Memory => "memory",
            Sort::Requests => "requests",
            Sort::Age => "age",
            Sort::Name => "name",
        };
        self.sorts.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

/// The table, sorted; the first `limit` rows, or with 0 all. Equal ones stand in the order of names.
pub(super) fn printed(
    mut rows: Vec<Row>,
    sort: Sort,
    limit: usize,
    columns: &Columns,
    now: Timestamp,
) -> String {
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    match sort {
        Sort::Name => {}
        Sort::Objects => rows.sort_by_key(|row| Reverse(row.objects)),
        // Memory of a status is coarse: what has more objects has more of it.
        Sort::Memory => rows.sort_by_key(|row| Reverse((row.bytes, row.objects))),
        Sort::Requests => rows.sort_by_key(|row| Reverse(row.requests)),
        Sort::Age => rows.sort_by_key(|row| (row.since.is_none(), row.since)),
    }
    if limit > 0 {
        rows.truncate(limit);
    }
    let of = |row: &Row| columns.head.iter().map(|head| cell(row, head, now)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(of).collect();
    table(columns.head, &rows)
}

fn cell(row: &Row, head: &str, now: Timestamp) -> String {
    let count = |number: Option<u64>| {
        number.map(|number| grouped(i64::try_from(number).unwrap_or(i64::MAX)))
    };
    let text = match head {
        "NAME" => Some(escape(&row.name).into_owned()),
        "OBJECTS" => count(row.objects),
        "MEMORY" => row.bytes.map(mebibytes),
        "WATCHES" => count(row.watches),
        "REQUESTS" => count(row.requests),
        "RECEIVED" => row.received.map(mebibytes),
        "RELISTS" => count(row.relists),
        "AGE" => row.since.map(|since| age(span(since, now))),
        _ => row.state.as_deref().map(|state| escape(state).replace(' ', "-")),
    };
    text.unwrap_or_default()
}

/// As kubectl writes it, in one word: `45s`, `12m`, `3h`, `9d`.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::sample, *};

    fn row(name: &str, objects: u64, bytes: Option<u64>, requests: u64) -> Row {
        Row {
            name: name.to_owned(),
            objects: Some(objects),
            bytes,
            requests: Some(requests),
            ..Row::default()
        }
    }

    fn order(sort: Sort, limit: usize) -> Vec<String> {
        let rows = vec![
            row("b", 2, Some(1 << 20), 9),
            row("a", 2, None, 5),
            row("c", 7, Some(1 << 20), 1),
        ];
        let table = printed(rows, sort, limit, &columns(What::Kinds), sample::now());
        let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        table.lines().skip(1).map(first).collect()
    }

    #[test]
    fn the_largest_comes_first_and_what_is_not_known_last() {
        assert_eq!(order(Sort::Objects, 0), ["c", "a", "b"]);
        assert_eq!(order(Sort::Memory, 0), ["c", "b", "a"]);
        assert_eq!(order(Sort::Requests, 2), ["b", "a"]);
        assert_eq!(order(Sort::Name, 0), ["a", "b", "c"]);
    }

    #[test]
    fn an_age_is_one_word() {
        for (seconds, expected) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (172_800, "2d")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
