//! `dashboard.json`: what Grafana needs of it, and what people need of a panel.

use super::{promql, read};
use serde_json::Value;
use std::collections::BTreeSet;

const FILE: &str = "charts/kubewarm/files/dashboard.json";
/// The one of Grafana 10.2.
const SCHEMA: u64 = 38;
const COLUMNS: u64 = 24;
const ROWS: &[&str] =
    &["Overview", "Warm-up", "Freshness", "Access", "Cost to the API server", "Reads", "Process"];
/// What Grafana itself knows.
const BUILT_IN: &str = "__rate_interval";

pub(crate) struct Dashboard(Value);

impl Dashboard {
    pub(crate) fn read() -> Self {
        Self(serde_json::from_str(&read(FILE)).expect("JSON"))
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.0.pointer(pointer).and_then(Value::as_array).expect("a list")
    }

    fn panels(&self) -> impl Iterator<Item = &Value> {
        self.list("/panels").iter().filter(|panel| panel["type"] != "row")
    }

    fn variables(&self) -> &[Value] {
        self.list("/templating/list")
    }

    /// What panels and variables ask for.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = String> {
        let targets = self.panels().flat_map(|panel| panel["targets"].as_array().expect("a list"));
        let asked = targets.map(|target| text(&target["expr"]).to_owned());
        let of_variables = self.variables().iter().filter(|it| it["type"] == "query").map(|it| {
            let query = text(&it["query"]["query"]);
            let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
            let (selector, label) = inner.and_then(|it| it.rsplit_once(", ")).expect(query);
            format!("group by ({label}) ({selector})")
        });
        asked.chain(of_variables)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn it_is_what_grafana_10_reads() {
    let dashboard = Dashboard::read();
    assert!(dashboard.0["schemaVersion"].as_u64() >= Some(SCHEMA));
    assert_eq!(dashboard.0["tags"], serde_json::json!(["kubewarm"]));
    assert!(dashboard.0.get("id").is_none(), "an id is of one Grafana");
    let is_source = |variable: &&Value| variable["type"] == "datasource";
    let source = dashboard.variables().iter().find(is_source).expect("a choice of data sources");
    assert_eq!((&source["name"], &source["query"]), (&"datasource".into(), &"prometheus".into()));
    let variables = dashboard.variables().iter().filter(|it| !is_source(it));
    let targets = dashboard.panels().flat_map(|panel| panel["targets"].as_array().expect("a list"));
    for one in dashboard.panels().chain(variables).chain(targets) {
        assert_eq!(one["datasource"]["uid"], "${datasource}", "{one}");
    }
    let ids: BTreeSet<_> = dashboard.list("/panels").iter().map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids.len(), dashboard.list("/panels").len(), "an id occurs twice");
}

#[test]
fn each_row_is_there_and_each_panel_says_what_it_shows() {
    let dashboard = Dashboard::read();
    let rows = dashboard.list("/panels").iter().filter(|panel| panel["type"] == "row");
    assert_eq!(rows.map(|row| text(&row["title"])).collect::<Vec<_>>(), ROWS);
    for panel in dashboard.panels() {
        let (title, told) = (text(&panel["title"]), text(&panel["description"]));
        assert!(!title.is_empty() && told.ends_with('.'), "{title}: {told}");
        assert!(panel.pointer("/fieldConfig/defaults/unit").is_some(), "{title}: no unit");
    }
}

#[test]
fn panels_lie_side_by_side() {
    let dashboard = Dashboard::read();
    let mut taken = BTreeSet::new();
    for panel in dashboard.list("/panels") {
        let of = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        assert!(of("x") + of("w") <= COLUMNS, "{}", panel["title"]);
        let lines = of("y")..of("y") + of("h");
        let columns = of("x")..of("x") + of("w");
        for place in columns.flat_map(|x| lines.clone().map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} lies upon another", panel["title"]);
        }
    }
}

#[test]
fn every_variable_that_is_used_is_defined_and_every_other_is_used() {
    let dashboard = Dashboard::read();
    let defined: BTreeSet<_> = dashboard.variables().iter().map(|it| text(&it["name"])).collect();
    let mut used = BTreeSet::from(["datasource".to_owned()]);
    for expression in dashboard.expressions() {
        for selector in promql::names(&expression).selectors {
            let values = selector.matchers.iter().map(|(_, value)| value);
            used.extend(values.filter_map(|value| value.strip_prefix('$')).map(str::to_owned));
        }
        for word in expression.split('[').skip(1).filter_map(|rest| rest.strip_prefix('$')) {
            assert!(word.starts_with(BUILT_IN), "{expression}");
        }
    }
    assert_eq!(used, defined.into_iter().map(str::to_owned).collect());
}
