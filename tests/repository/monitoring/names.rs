//! Tests that every metric, label and label value in the rules and the dashboards exists.

use super::{dashboard::Dashboard, promql, promql::Selector, read, rules::Rules};
use crate::metrics::{Family, described};
use kubewarm::metrics::{BuildInfo, MetricsRegistry};
use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus and its administrators add to every series, so kubewarm does not export
/// them.
const OF_TARGETS: &[&str] = &["job", "instance", "pod", "cluster"];
/// The metric that Prometheus exports about alerts, and its labels.
const ALERTS: (&str, &[&str]) = ("ALERTS", &["alertname", "alertstate", "severity"]);

/// The expressions of the rules and the dashboards.
fn expressions(rules: &Rules) -> impl Iterator<Item = String> {
    let dashboards = Dashboard::all().into_iter();
    let of_dashboards: Vec<_> =
        dashboards.flat_map(|dashboard| dashboard.expressions().collect::<Vec<_>>()).collect();
    rules.all().map(|rule| rule.expr.clone()).chain(of_dashboards)
}

/// The labels of each exported or recorded series, without the labels that a scrape adds.
fn series(rules: &Rules) -> BTreeMap<String, BTreeSet<String>> {
    let owned = |labels: &[&str]| labels.iter().copied().map(str::to_owned).collect();
    let mut known = BTreeMap::from([(ALERTS.0.to_owned(), owned(ALERTS.1))]);
    for Family { name, kind, labels, .. } in described() {
        let mut labels: BTreeSet<_> = labels.into_iter().collect();
        if kind == "histogram" {
            for suffix in ["_sum", "_count"] {
                known.insert(format!("{name}{suffix}"), labels.clone());
            }
            labels.insert("le".to_owned());
            known.insert(format!("{name}_bucket"), labels);
        } else {
            known.insert(name, labels);
        }
    }
    known.extend(of_the_process().into_iter().map(|name| (name, BTreeSet::new())));
    for (record, rule) in rules.recorded() {
        let selectors = promql::names(&rule.expr).selectors;
        let labels = selectors.iter().filter_map(|selector| known.get(&selector.metric));
        let labels = labels.flatten().cloned().collect();
        known.insert(record.to_owned(), labels);
    }
    known
}

/// The metrics of the process, whose names the crate prometheus chooses.
fn of_the_process() -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let build = BuildInfo { version: "1.2.3", revision: "abc", rustc: "1.95" };
    let metrics = MetricsRegistry::new(&build).expect("names and labels are sound");
    metrics.observe_process(runtime.handle().clone()).expect("once");
    let text = metrics.render().expect("it renders");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("process_")).collect()
}

/// The closed sets of label values by metric and label, read from docs/metrics.md.
fn closed_sets() -> BTreeMap<(String, String), BTreeSet<String>> {
    let page = read("docs/metrics.md");
    let (_, list) = page.split_once("## Label values").expect("the section");
    let words = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut sets = BTreeMap::new();
    for (head, values) in list.lines().filter_map(|line| line.split_once(": ")) {
        let head = words(head);
        let (label, metrics) = head.split_first().expect("a label");
        for metric in metrics {
            sets.insert((metric.clone(), label.clone()), words(values).into_iter().collect());
        }
    }
    sets
}

/// The reason why the label never has this value, for example a typo. `None` if it can have the
/// value.
fn impossible(selector: &Selector, label: &str, value: &str) -> Option<String> {
    if value.contains(['$', '.', '+']) {
        return None;
    }
    let possible = |word: &str| match label {
        "condition" => read("docs/reference/conditions.md").contains(&format!("`{word}`")),
        _ => closed_sets()
            .get(&(selector.metric.clone(), label.to_owned()))
            .is_none_or(|set| set.contains(word)),
    };
    let bad = value.split('|').find(|word| !possible(word));
    bad.map(|word| format!("{} never has {label}={word:?}", selector.metric))
}

fn faults(expression: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let is_of_target = |label: &str| OF_TARGETS.contains(&label);
    let names = promql::names(expression);
    let (mut faults, mut labels) = (Vec::new(), BTreeSet::new());
    for selector in &names.selectors {
        let Some(metric_labels) = known.get(&selector.metric) else {
            faults.push(format!("there is no {}", selector.metric));
            continue;
        };
        labels.extend(metric_labels);
        for (label, value) in &selector.matchers {
            if !metric_labels.contains(label) && !is_of_target(label) {
                faults.push(format!("{} has no label {label}", selector.metric));
            }
            faults.extend(impossible(selector, label, value));
        }
    }
    let is_unknown = |label: &&String| !labels.contains(label) && !is_of_target(label);
    faults.extend(names.labels.iter().filter(is_unknown).map(|label| format!("no label {label}")));
    if names.selectors.is_empty() {
        faults.push("no metric in it".to_owned());
    }
    faults
}

#[test]
fn everything_that_rules_and_dashboards_name_exists() {
    let rules = Rules::read();
    let known = series(&rules);
    let all: Vec<_> = expressions(&rules)
        .flat_map(|expression| {
            let faults = faults(&expression, &known);
            faults.into_iter().map(move |fault| format!("{fault}: {expression}"))
        })
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn every_metric_is_used() {
    let rules = Rules::read();
    let used: BTreeSet<_> = expressions(&rules)
        .flat_map(|expression| promql::names(&expression).selectors)
        .map(|selector| selector.metric)
        .collect();
    let forms = |name: &str| ["", "_bucket", "_count"].map(|suffix| format!("{name}{suffix}"));
    let is_used = |name: &str| forms(name).iter().any(|form| used.contains(form));
    let names = described().into_iter().map(|family| family.name);
    let unused: Vec<_> = names.filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "no rule or panel uses {unused:?}");
    let recorded = rules.recorded().map(|(name, _)| name);
    let unused: Vec<_> = recorded.filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "no rule or panel uses the recorded {unused:?}");
}

#[test]
fn unknown_metrics_and_labels_are_reported() {
    let known = series(&Rules::read());
    for (expression, fault) in [
        ("kubewarm_object", "there is no kubewarm_object"),
        (r#"kubewarm_objects{kind="x"}"#, "kubewarm_objects has no label kind"),
        ("sum by (kind) (kubewarm_objects)", "no label kind"),
        (
            r#"kubewarm_profile_targets{state=~"synced|lost"}"#,
            r#"kubewarm_profile_targets never has state="lost""#,
        ),
        (
            r#"kubewarm_profile_condition{condition="Redy"}"#,
            r#"kubewarm_profile_condition never has condition="Redy""#,
        ),
        ("vector(0)", "no metric in it"),
    ] {
        assert_eq!(faults(expression, &known), [fault], "{expression}");
    }
}
