//! Sums the forwarded reads of all replicas by kind and user.

use crate::commands::{
    report::{
        CommandExitCode, CommandReport, ReportFact, ReportRow, ReportSection, RowMark, TextTone,
    },
    text::{causes, length, span},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

/// The forwarded reads from the replicas that the command could read, and the replicas that it
/// could not read.
#[derive(Default)]
pub(in crate::commands) struct ForwardedSummary {
    entries: BTreeMap<ForwardedBy, ForwardedReadSum>,
    /// Lists and watches that kubewarm served, by user.
    served: BTreeMap<String, u64>,
    /// The pods whose forwarded reads the command could not read, with the reasons.
    unread: BTreeMap<String, String>,
}

/// The kind of a forwarded read, and the user who sent it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct ForwardedBy {
    group: String,
    version: String,
    resource: String,
    user: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForwardedReadSum {
    gets: u64,
    lists: u64,
    watches: u64,
    last_time: Timestamp,
}

/// An entry of the response of `/debug/forwarded`: how often a user reads a kind that no profile
/// declares.
#[derive(Serialize, Deserialize)]
struct ForwardedEntry {
    #[serde(flatten)]
    by: ForwardedBy,
    #[serde(flatten)]
    reads: ForwardedReadSum,
}

/// The response of `/debug/forwarded`.
#[derive(Deserialize)]
struct ForwardedList {
    forwarded: Vec<ForwardedEntry>,
    /// Replicas of an earlier version do not have it.
    #[serde(default)]
    served: Vec<ServedReads>,
}

/// The lists and watches of one user that a replica served from its stores.
#[derive(Deserialize)]
struct ServedReads {
    user: String,
    lists: u64,
    watches: u64,
}

impl ForwardedSummary {
    /// Adds the response of the replica `pod` to the sums.
    pub(super) fn add(&mut self, pod: &str, body: &[u8]) {
        let list: ForwardedList = match serde_json::from_slice(body) {
            Ok(list) => list,
            Err(error) => return self.add_unread(pod, &error),
        };
        for ForwardedEntry { by, reads } in list.forwarded {
            self.entries
                .entry(by)
                .and_modify(|sum| {
                    sum.gets = sum.gets.saturating_add(reads.gets);
                    sum.lists = sum.lists.saturating_add(reads.lists);
                    sum.watches = sum.watches.saturating_add(reads.watches);
                    sum.last_time = sum.last_time.max(reads.last_time);
                })
                .or_insert(reads);
        }
        for ServedReads { user, lists, watches } in list.served {
            let sum = self.served.entry(user).or_default();
            *sum = sum.saturating_add(lists).saturating_add(watches);
        }
    }

    /// The kinds whose lists and watches kubewarm forwarded for `user`, as kubectl writes them.
    pub(in crate::commands) fn kinds_of(&self, user: &str) -> BTreeSet<String> {
        let is_listed = |(by, sum): &(&ForwardedBy, &ForwardedReadSum)| {
            by.user == user && sum.lists_and_watches() > 0
        };
        self.entries.iter().filter(is_listed).map(|(by, _)| by.kind()).collect()
    }

    /// How many lists and watches of `user` kubewarm served, and how many it forwarded.
    pub(in crate::commands) fn share(&self, user: &str) -> (u64, u64) {
        let forwarded = self.entries.iter().filter(|(by, _)| by.user == user);
        let served = self.served.get(user).copied().unwrap_or_default();
        (served, forwarded.map(|(_, sum)| sum.lists_and_watches()).sum())
    }

    /// Adds a replica that could not be read, with the reason.
    pub(super) fn add_unread(&mut self, pod: &str, error: &dyn Error) {
        self.unread.insert(pod.to_owned(), causes(error));
    }

    /// Returns the report, with the kinds that cost the API server most first.
    pub(super) fn report(&self, now: Timestamp) -> CommandReport {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.lists_and_watches(), sum.gets)));
        let mut rows: Vec<_> = entries.iter().map(|(by, sum)| sum.row(by, now)).collect();
        if rows.is_empty() && self.unread.is_empty() {
            rows.push(ReportRow::good("no ready replica has forwarded reads of undeclared objects since its start; without --forward, such reads get 421"));
        } else if !rows.is_empty() {
            rows.insert(0, head());
        }
        let unread = self.unread.iter().map(|(pod, reason)| {
            ReportRow::marked(RowMark::Bad, format!("pod {pod} was not read: {reason}"))
        });
        let sections = [rows, unread.collect()]
            .map(|rows| ReportSection { rows, ..ReportSection::default() })
            .to_vec();
        let kinds: BTreeSet<_> = self.entries.keys().map(ForwardedBy::kind).collect();
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(by, reads)| ForwardedEntry { by: by.clone(), reads: reads.clone() })
            .collect();
        let data = json!({
            "forwarded": entries, "served": self.served, "unread": self.unread,
        });
        let verdict =
            if self.unread.is_empty() { CommandExitCode::Good } else { CommandExitCode::Bad };
        CommandReport { sections, verdict, data, names: Some(kinds.into_iter().collect()) }
    }
}

fn head() -> ReportRow {
    let titles = ["KIND", "USER", "GETS", "LISTS", "WATCHES", "LAST READ"];
    ReportRow::of(titles.map(|title| ReportFact::new(TextTone::Strong, title)).to_vec())
}

impl ForwardedBy {
    /// Returns the plural name and the group as kubectl writes them, such as `deployments.apps`.
    fn kind(&self) -> String {
        let Self { group, resource, .. } = self;
        if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") }
    }
}

impl ForwardedReadSum {
    fn lists_and_watches(&self) -> u64 {
        self.lists.saturating_add(self.watches)
    }

    fn row(&self, by: &ForwardedBy, now: Timestamp) -> ReportRow {
        let ago = format!("{} ago", length(span(self.last_time, now)));
        let count = |number: u64| ReportFact::number(number.to_string());
        ReportRow::of(vec![
            ReportFact::new(TextTone::Plain, by.kind()),
            ReportFact::new(TextTone::Plain, &by.user),
            count(self.gets),
            count(self.lists),
            count(self.watches),
            ReportFact::new(TextTone::Quiet, ago),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{
        CommandError,
        report::{ReportFormat, TerminalLayout, render},
    };

    fn entry(resource: &str, user: &str, lists: u64, last_time: &str) -> String {
        json!({ "forwarded": [{
            "group": if resource == "pods" { "" } else { "apps" }, "version": "v1", "resource": resource,
            "user": user, "gets": 1, "lists": lists, "watches": 2, "lastTime": last_time,
        }] })
        .to_string()
    }

    fn printed(summary: &ForwardedSummary, format: ReportFormat) -> String {
        render(&summary.report("2026-03-01T12:00:00Z".parse().unwrap()), format).unwrap()
    }

    const TEXT: ReportFormat =
        ReportFormat::Text(TerminalLayout { width: 0, height: 0, has_colours: false });

    #[test]
    fn replicas_are_summed_and_the_dearest_kinds_come_first() {
        let mut summary = ForwardedSummary::default();
        summary.add("a", entry("pods", "jane", 3, "2026-03-01T11:59:00Z").as_bytes());
        summary.add("b", entry("pods", "jane", 4, "2026-03-01T11:59:48Z").as_bytes());
        summary.add("b", entry("deployments", "john", 30, "2026-03-01T11:00:00Z").as_bytes());
        let report = summary.report("2026-03-01T12:00:00Z".parse().unwrap());
        assert_eq!(report.verdict, CommandExitCode::Good);
        let text = printed(&summary, TEXT);
        let lines: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["KIND", "USER", "GETS", "LISTS", "WATCHES", "LAST", "READ"]);
        assert_eq!(lines[1][..5], ["deployments.apps", "john", "1", "30", "2"]);
        assert_eq!(lines[2], ["pods", "jane", "2", "7", "4", "12", "s", "ago"]);
        assert_eq!(printed(&summary, ReportFormat::Names), "deployments.apps\npods\n");
        let data = &report.data["forwarded"];
        assert_eq!((&data[1]["lists"], &data[1]["user"]), (&json!(7), &json!("jane")));
    }

    #[test]
    fn a_replica_that_was_not_read_is_named_and_changes_the_exit_code() {
        let mut summary = ForwardedSummary::default();
        assert!(printed(&summary, TEXT).contains("no ready replica has forwarded"));
        summary.add("a", b"{}");
        summary.add_unread("b", &CommandError::caused("no stream", std::io::Error::other("why")));
        let text = printed(&summary, TEXT);
        assert!(text.contains("pod a was not read: missing field `forwarded`"), "{text}");
        assert!(text.contains("pod b was not read: no stream: why"), "{text}");
        assert_eq!(summary.report(Timestamp::UNIX_EPOCH).verdict, CommandExitCode::Bad);
    }
}
