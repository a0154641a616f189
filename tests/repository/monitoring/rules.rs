//! Tests `rules.yaml`: the form of each alert, and its section in the runbook.

use super::{promql, read};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

pub(crate) const FILE: &str = "charts/kubewarm/files/rules.yaml";
const TESTS: &str = "tests/rules";

#[derive(Debug, Deserialize)]
pub(crate) struct Rules {
    pub(crate) groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Group {
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The part of a promtool test file that these tests read.
#[derive(Deserialize)]
struct Tests {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
    #[serde(default)]
    promql_expr_test: Vec<ExpressionTest>,
}

#[derive(Deserialize)]
struct AlertTest {
    alertname: String,
    exp_alerts: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct ExpressionTest {
    expr: String,
}

impl Rules {
    pub(crate) fn read() -> Self {
        serde_saphyr::from_str(&read(FILE)).expect("rules")
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }

    fn alerts(&self) -> impl Iterator<Item = (&str, &Rule)> {
        self.all().filter_map(|rule| Some((rule.alert.as_deref()?, rule)))
    }

    pub(crate) fn recorded(&self) -> impl Iterator<Item = (&str, &Rule)> {
        self.all().filter_map(|rule| Some((rule.record.as_deref()?, rule)))
    }
}

/// The files with promtool's tests.
fn test_files() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(TESTS);
    let entries = fs::read_dir(folder).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    names.map(|name| format!("{TESTS}/{}", name.to_string_lossy())).collect()
}

#[test]
fn each_alert_fires_in_one_test_and_is_silent_in_one_and_each_record_has_a_value() {
    let (mut firing, mut silent, mut valued) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for file in test_files() {
        let tests: Tests = serde_saphyr::from_str(&read(&file)).expect("tests");
        for test in tests.tests {
            for alert in test.alert_rule_test {
                let set = if alert.exp_alerts.is_empty() { &mut silent } else { &mut firing };
                set.insert(alert.alertname);
            }
            valued.extend(test.promql_expr_test.into_iter().map(|test| test.expr));
        }
    }
    let rules = Rules::read();
    let alerts: BTreeSet<_> = rules.alerts().map(|(name, _)| name.to_owned()).collect();
    let records: BTreeSet<_> = rules.recorded().map(|(name, _)| name.to_owned()).collect();
    assert_eq!((&firing, &silent, &valued), (&alerts, &alerts, &records));
}

#[test]
fn each_alert_has_a_severity_its_object_and_a_next_command() {
    let rules = Rules::read();
    for (name, rule) in rules.alerts() {
        let severity = rule.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("warning" | "critical")), "{name}: {severity:?}");
        let said = |key: &str| rule.annotations.get(key).map_or("", String::as_str);
        assert!(said("summary").contains("$labels."), "{name}: the summary names no object");
        assert!(said("description").contains(": kubectl "), "{name}: no next command");
        // The file does not contain the address of the runbook, because only the chart knows it and
        // adds it.
        assert!(!rule.annotations.contains_key("runbook_url"), "{name}");
        assert!(name.starts_with("Kubewarm"), "{name}");
    }
}

#[test]
fn each_alert_has_a_section_in_the_runbook_and_each_section_an_alert() {
    let runbook = read("docs/runbook.md");
    let sections: Vec<_> = runbook.split("\n## ").skip(1).collect();
    let mut titles = BTreeSet::new();
    for section in sections {
        let (title, text) = section.split_once('\n').expect("a title and a text");
        for part in ["\n**Meaning:** ", "\n**Impact:** ", "\n**Diagnosis:** ", "\n**Fix:** "] {
            assert_eq!(text.matches(part).count(), 1, "{title}: {part}");
        }
        assert!(titles.insert(title), "{title} twice");
    }
    let rules = Rules::read();
    assert_eq!(titles, rules.alerts().map(|(name, _)| name).collect());
}

#[test]
fn each_recorded_series_is_explained_and_nothing_else() {
    let page = read("docs/monitoring.md");
    let explained: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `kubewarm:")?.split_once('`'))
        .map(|(name, _)| format!("kubewarm:{name}"))
        .collect();
    let rules = Rules::read();
    assert_eq!(explained, rules.recorded().map(|(name, _)| name.to_owned()).collect());
}

/// Prometheus evaluates the rules of one group in order, but different groups independently. So a
/// rule that uses the result of another rule must follow it in the same group.
#[test]
fn a_rule_follows_the_rules_that_it_uses_in_its_group() {
    for group in Rules::read().groups {
        let mut before = BTreeSet::new();
        for rule in group.rules {
            for selector in promql::names(&rule.expr).selectors {
                let metric = selector.metric;
                assert!(!metric.contains(':') || before.contains(&metric), "{metric}");
            }
            before.extend(rule.record);
        }
    }
}
