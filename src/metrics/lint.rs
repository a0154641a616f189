//! Whether an exposition is what `docs/metrics.md` promises: its format, its names and labels, and how many
//! series it has.

use super::{
    descriptor::{Descriptor, Keyed, Kind, all},
    markdown::most_series,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the prometheus crate names by itself.
const PROCESS: &str = "process_";
/// What a histogram's series are called after its name.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];
/// Faults that are told: the first ones say what is wrong.
const MAX_FAULTS: usize = 16;

/// What was found in an exposition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linted {
    /// Metrics, each with a HELP and a TYPE line.
    pub metrics: usize,
    /// Series.
    pub series: usize,
    /// As many series as its resources and profiles may make.
    pub most_series: usize,
    /// What is wrong, a line each: at most 16.
    pub faults: Vec<String>,
}

/// One series of a metric.
struct Sample<'a> {
    /// With what a histogram's series have after its name.
    name: &'a str,
    /// By name.
    labels: BTreeMap<&'a str, String>,
    value: f64,
}

/// The metric whose lines are being read.
struct Metric<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    samples: Vec<Sample<'a>>,
}

/// Reads an exposition in Prometheus' text format, as this version of kubewarm writes it.
#[must_use]
pub fn lint(text: &str) -> Linted {
    let mut lint = Lint::default();
    let mut metric: Option<Metric<'_>> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            lint.end(metric.take());
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.trim().is_empty() {
                lint.fault(format!("{name}: its HELP line says nothing"));
            }
            metric = Some(Metric { name, kind: None, samples: Vec::new() });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            match &mut metric {
                Some(metric) if metric.name == name && metric.kind.is_none() => {
                    metric.kind = Some(kind);
                }
                _ => lint.fault(format!("{name}: a TYPE line without a HELP line right above it")),
            }
        } else {
            let sample = sample(line);
            match (&mut metric, sample) {
                (_, None) => lint.fault(format!("this is no series: {line}")),
                (Some(metric), Some(sample)) if is_of(metric, sample.name) => {
                    metric.samples.push(sample);
                }
                (_, Some(sample)) => {
                    lint.fault(format!("{}: a series without HELP and TYPE above it", sample.name));
                }
            }
        }
    }
    lint.end(metric.take());
    if !text.ends_with('\n') {
        lint.fault("the last line has no end".to_owned());
    }
    lint.found()
}

/// What has been read.
#[derive(Default)]
struct Lint<'a> {
    linted: Linted,
    names: BTreeSet<&'a str>,
    /// Group, version and name.
    resources: BTreeSet<[String; 3]>,
    /// Namespace and name.
    profiles: BTreeSet<[String; 2]>,
}

impl<'a> Lint<'a> {
    fn fault(&mut self, fault: String) {
        if self.linted.faults.len() < MAX_FAULTS {
            self.linted.faults.push(fault);
        }
    }

    /// Looks at a metric that is complete.
    fn end(&mut self, metric: Option<Metric<'a>>) {
        let Some(metric) = metric else { return };
        let name = metric.name;
        if !self.names.insert(name) {
            self.fault(format!("{name}: there twice"));
        }
        self.linted.metrics += 1;
        self.linted.series += metric.samples.len();
        match all().iter().find(|descriptor| descriptor.name == name) {
            Some(descriptor) => self.described(descriptor, &metric),
            None if name.starts_with(PROCESS) => {}
            None => self.fault(format!("{name}: no metric of this version of kubewarm")),
        }
        let mut seen = BTreeSet::new();
        for sample in &metric.samples {
            if !seen.insert((sample.name, &sample.labels)) {
                self.fault(format!("{}: a series is there twice", sample.name));
            }
            let only_grows = metric.kind == Some("counter") || sample.name != name;
            if only_grows
                && (sample.value.is_nan() || sample.value < 0.0)
                && !sample.name.ends_with("_sum")
            {
                self.fault(format!("{}: {} of what only grows", sample.name, sample.value));
            }
        }
        if metric.kind == Some("histogram") {
            for fault in torn(&metric) {
                self.fault(fault);
            }
        }
    }

    /// Holds a metric against its description.
    fn described(&mut self, descriptor: &Descriptor, metric: &Metric<'_>) {
        let name = metric.name;
        if metric.kind != Some(descriptor.kind.as_str()) {
            self.fault(format!("{name}: not of type {}", descriptor.kind.as_str()));
        }
        let labels: BTreeSet<_> = descriptor.all_labels().into_iter().collect();
        for sample in &metric.samples {
            let is_bucket = matches!(descriptor.kind, Kind::Histogram(_))
                && sample.name.strip_prefix(name) == Some("_bucket");
            let found = sample.labels.keys().copied();
            let found: BTreeSet<_> = found.filter(|label| !(is_bucket && *label == "le")).collect();
            if found != labels {
                self.fault(format!("{}: labels {found:?}, not {labels:?}", sample.name));
            }
            let of = |label| sample.labels.get(label).cloned().unwrap_or_default();
            match descriptor.keyed {
                Keyed::Process => {}
                Keyed::Profile => {
                    self.profiles.insert(["namespace", "profile"].map(of));
                }
                Keyed::Resource | Keyed::Scope => {
                    self.resources.insert(["group", "version", "resource"].map(of));
                }
            }
        }
    }

    /// The whole, once every line has been read.
    fn found(mut self) -> Linted {
        self.linted.most_series = most_series(self.resources.len(), self.profiles.len());
        let (series, most) = (self.linted.series, self.linted.most_series);
        if series > most {
            self.fault(format!(
                "{series} series of {} resources and {} profiles, which may make {most}",
                self.resources.len(),
                self.profiles.len()
            ));
        }
        self.linted
    }
}

/// Whether a series of this name is one of the metric.
fn is_of(metric: &Metric<'_>, name: &str) -> bool {
    match metric.kind {
        Some("histogram") => {
            name.strip_prefix(metric.name).is_some_and(|part| PARTS.contains(&part))
        }
        Some(_) => name == metric.name,
        None => false,
    }
}

/// What is wrong with a histogram's buckets, sums and counts.
fn torn(metric: &Metric<'_>) -> Vec<String> {
    /// What there is by one set of labels.
    #[derive(Default)]
    struct Parts {
        buckets: Vec<(f64, f64)>,
        has_sum: bool,
        count: Option<f64>,
    }
    let mut all: BTreeMap<Vec<(&str, &str)>, Parts> = BTreeMap::new();
    for sample in &metric.samples {
        let own = sample.labels.iter().filter(|(label, _)| **label != "le");
        let parts = all.entry(own.map(|(label, value)| (*label, value.as_str())).collect());
        let parts = parts.or_default();
        match sample.name.strip_prefix(metric.name) {
            Some("_sum") => parts.has_sum = true,
            Some("_count") => parts.count = Some(sample.value),
            _ => {
                let bound = sample.labels.get("le").and_then(|bound| bound.parse().ok());
                parts.buckets.push((bound.unwrap_or(f64::NAN), sample.value));
            }
        }
    }
    let is_whole = |parts: &Parts| {
        let rises = parts.buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
        let last = parts.buckets.last();
        let is_counted = last.is_some_and(|(bound, value)| {
            bound.is_infinite() && parts.count.is_some_and(|count| count.total_cmp(value).is_eq())
        });
        rises && parts.has_sum && is_counted
    };
    let torn = all.iter().filter(|(_, parts)| !is_whole(parts));
    torn.map(|(labels, _)| format!("{}: not a whole histogram of {labels:?}", metric.name))
        .collect()
}

/// A line `name{label="value",…} value`. kubewarm writes no time after it.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"")?;
            let (value, after) = quoted(value)?;
            if !is_name(label) || labels.insert(label, value).is_some() {
                return None;
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then_some(Sample { name, labels, value })
}

/// The text up to the closing quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# HELP kubewarm_list_duration_seconds Seconds.
# TYPE kubewarm_list_duration_seconds histogram
kubewarm_list_duration_seconds_bucket{group=\"\",outcome=\"success\",resource=\"pods\",version=\"v1\",le=\"1\"} 1
kubewarm_list_duration_seconds_bucket{group=\"\",outcome=\"success\",resource=\"pods\",version=\"v1\",le=\"+Inf\"} 2
kubewarm_list_duration_seconds_sum{group=\"\",outcome=\"success\",resource=\"pods\",version=\"v1\"} 1.5
kubewarm_list_duration_seconds_count{group=\"\",outcome=\"success\",resource=\"pods\",version=\"v1\"} 2
# HELP kubewarm_profile_info Always 1.
# TYPE kubewarm_profile_info gauge
kubewarm_profile_info{mode=\"Active\",namespace=\"shop\",profile=\"a\\\"b\\\\\"} 1
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 12
";

    #[test]
    fn what_kubewarm_writes_is_well() {
        let found = lint(GOOD);
        assert_eq!(found.faults, [""; 0]);
        assert_eq!((found.metrics, found.series), (3, 6));
        assert_eq!(found.most_series, most_series(1, 1));
    }

    #[test]
    fn whatever_is_wrong_is_named() {
        for (from, to, said) in [
            ("# HELP process_open_fds Files.\n", "", "TYPE line without a HELP line"),
            ("# HELP process_open_fds Files.", "# HELP process_open_fds ", "says nothing"),
            ("# TYPE process_open_fds gauge\n", "", "a series without HELP and TYPE"),
            ("process_open_fds 12", "process_open_fds twelve", "this is no series"),
            ("process_open_fds 12", "process_open_fds{a=\"b} 12", "this is no series"),
            (
                "process_open_fds 12",
                "process_open_fds 12\nprocess_open_fds 13",
                "a series is there twice",
            ),
            ("process_open_fds", "kubewarm_open_fds", "no metric of this version"),
            ("profile_info gauge", "profile_info counter", "not of type gauge"),
            ("{mode=\"Active\",", "{", "labels {\"namespace\", \"profile\"}"),
            (
                "{mode=",
                "{pod=\"x\",mode=",
                "labels {\"mode\", \"namespace\", \"pod\", \"profile\"}",
            ),
            ("le=\"+Inf\"} 2", "le=\"+Inf\"} 3", "not a whole histogram"),
            ("le=\"+Inf\"} 2", "le=\"+Inf\"} 0", "not a whole histogram"),
            ("le=\"1\"} 1", "le=\"1\"} -1", "-1 of what only grows"),
            ("process_open_fds 12\n", "process_open_fds 12", "the last line has no end"),
        ] {
            let text = GOOD.replacen(from, to, if from == "process_open_fds" { 9 } else { 1 });
            assert_ne!(text, GOOD, "{from}");
            let found = lint(&text).faults;
            assert!(found.iter().any(|fault| fault.contains(said)), "{said}: {found:?}");
        }
        let twice = format!("{GOOD}{GOOD}");
        assert!(lint(&twice).faults.iter().any(|fault| fault.ends_with(": there twice")));
    }

    #[test]
    fn more_series_than_there_is_reason_for_are_too_many() {
        let mut text = GOOD.replace("process_open_fds 12\n", "");
        for number in 0..=most_series(1, 1) {
            text += &["process_open_fds{number=\"", &number.to_string(), "\"} 1\n"].concat();
        }
        let found = lint(&text).faults;
        assert!(
            found.iter().any(|fault| fault.contains("1 resources and 1 profiles")),
            "{found:?}"
        );
    }
}
