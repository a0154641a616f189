//! Tests the dashboards: the form that Grafana requires, and titles, descriptions and units of each
//! panel.

use super::{promql, read};
use serde_json::Value;
use std::collections::BTreeSet;

/// Each file, with the titles of its rows.
const DASHBOARDS: [(&str, &[&str]); 3] = [
    ("charts/kubewarm/files/dashboard-overview.json", &[]),
    (
        "charts/kubewarm/files/dashboard-reads.json",
        &["Traffic", "Client watches", "Access and limits"],
    ),
    (
        "charts/kubewarm/files/dashboard-upstream.json",
        &["Lists and warm-up", "Watches", "Freshness", "Access", "Process"],
    ),
];
/// The schema version of Grafana 10.2.
const SCHEMA: u64 = 38;
const COLUMNS: u64 = 24;
const MAX_OVERVIEW_PANELS: usize = 12;
/// A variable that Grafana defines itself, so no dashboard declares it.
const BUILT_IN: &str = "__rate_interval";

pub(crate) struct Dashboard {
    file: &'static str,
    rows: &'static [&'static str],
    json: Value,
}

impl Dashboard {
    pub(crate) fn all() -> [Self; 3] {
        DASHBOARDS.map(|(file, rows)| {
            let json = serde_json::from_str(&read(file)).expect("JSON");
            Self { file, rows, json }
        })
    }

    fn list(&self, pointer: &str) -> &[Value] {
        list(self.json.pointer(pointer).expect(pointer))
    }

    /// Rows and panels. Grafana keeps the panels of a collapsed row inside the row.
    fn elements(&self) -> impl Iterator<Item = &Value> {
        self.list("/panels").iter().flat_map(with_inner)
    }

    fn panels(&self) -> impl Iterator<Item = &Value> {
        self.elements().filter(|element| element["type"] != "row")
    }

    fn targets(&self) -> impl Iterator<Item = &Value> {
        self.panels().flat_map(|panel| list(&panel["targets"]))
    }

    fn variables(&self) -> &[Value] {
        self.list("/templating/list")
    }

    /// The queries of panels, annotations and variables.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = String> {
        let panels = self.targets().map(|target| text(&target["expr"]).to_owned());
        let annotations = self
            .list("/annotations/list")
            .iter()
            .filter_map(|annotation| annotation["expr"].as_str());
        let variables = self.variables().iter().filter(|variable| variable["type"] == "query");
        let queries = variables.map(|variable| {
            let query = text(&variable["query"]["query"]);
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect(query);
            format!("group by ({label}) ({selector})")
        });
        panels.chain(annotations.map(str::to_owned)).chain(queries)
    }
}

fn with_inner(row: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(row).chain(row["panels"].as_array().into_iter().flatten())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn each_dashboard_has_the_form_that_grafana_10_requires() {
    let mut uids = BTreeSet::new();
    for dashboard in Dashboard::all() {
        let (file, json) = (dashboard.file, &dashboard.json);
        assert!(json["schemaVersion"].as_u64() >= Some(SCHEMA), "{file}");
        assert_eq!(json["tags"], serde_json::json!(["kubewarm"]), "{file}");
        assert!(json.get("id").is_none(), "{file}: an id belongs to one Grafana");
        assert!(uids.insert(text(&json["uid"]).to_owned()), "{file}: the uid occurs twice");
        let is_source = |variable: &&Value| variable["type"] == "datasource";
        let source = dashboard.variables().iter().find(is_source).expect("a data source variable");
        assert_eq!(
            (&source["name"], &source["query"]),
            (&"datasource".into(), &"prometheus".into())
        );
        let variables = dashboard.variables().iter().filter(|variable| !is_source(variable));
        for one in dashboard.panels().chain(variables).chain(dashboard.targets()) {
            assert_eq!(one["datasource"]["uid"], "${datasource}", "{file}: {one}");
        }
        let ids: BTreeSet<_> = dashboard.elements().map(|element| element["id"].as_u64()).collect();
        assert_eq!(ids.len(), dashboard.elements().count(), "{file}: an id occurs twice");
        let link = &dashboard.list("/links")[0];
        assert_eq!((&link["type"], &link["tags"]), (&"dashboards".into(), &json["tags"]), "{file}");
    }
}

#[test]
fn each_row_exists_and_each_panel_has_a_title_a_description_and_a_unit() {
    for dashboard in Dashboard::all() {
        let rows = dashboard.elements().filter(|element| element["type"] == "row");
        assert_eq!(rows.map(|row| text(&row["title"])).collect::<Vec<_>>(), dashboard.rows);
        for panel in dashboard.panels() {
            let (title, description) = (text(&panel["title"]), text(&panel["description"]));
            assert!(!title.is_empty() && description.ends_with('.'), "{title}: {description}");
            assert!(panel.pointer("/fieldConfig/defaults/unit").is_some(), "{title}: no unit");
        }
    }
}

#[test]
fn the_overview_has_at_most_12_panels() {
    let [overview, ..] = Dashboard::all();
    assert!(overview.panels().count() <= MAX_OVERVIEW_PANELS);
}

#[test]
fn panels_do_not_overlap() {
    for dashboard in Dashboard::all() {
        let mut taken = BTreeSet::new();
        for panel in dashboard.elements() {
            let number = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
            assert!(number("x") + number("w") <= COLUMNS, "{}", panel["title"]);
            let lines = number("y")..number("y") + number("h");
            let columns = number("x")..number("x") + number("w");
            for position in columns.flat_map(|x| lines.clone().map(move |y| (x, y))) {
                assert!(taken.insert(position), "{} overlaps another panel", panel["title"]);
            }
        }
    }
}

#[test]
fn each_query_selects_the_cluster() {
    let cluster = ("cluster".to_owned(), "$cluster".to_owned());
    for dashboard in Dashboard::all() {
        for expression in dashboard.expressions() {
            for selector in promql::names(&expression).selectors {
                // Without label matchers, this metric is the right side of `and on (cluster, …)`,
                // or a variable's query that finds the clusters. So it must select all clusters.
                let is_for_all =
                    selector.metric == "kubewarm_build_info" && selector.matchers.is_empty();
                let is_selected = selector.matchers.contains(&cluster);
                assert!(is_selected || is_for_all, "{}: {expression}", dashboard.file);
            }
        }
    }
}

#[test]
fn variables_that_are_used_are_defined_and_others_do_not_exist() {
    for dashboard in Dashboard::all() {
        let defined: BTreeSet<_> = dashboard
            .variables()
            .iter()
            .map(|variable| text(&variable["name"]).to_owned())
            .collect();
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
        assert_eq!(used, defined, "{}", dashboard.file);
    }
}
