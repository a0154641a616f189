//! The rules and the dashboard in the cluster are the files that promtool and Prometheus test.

use serde_json::Value;

use crate::cluster::{Outcome, file, helms};
use crate::render::render;

fn text(path: &str) -> std::io::Result<String> {
    std::fs::read_to_string(file("charts/kubewarm/files").join(path))
}

#[test]
fn rules_and_dashboard_are_the_files_but_for_the_links() -> Outcome {
    let values = file("charts/kubewarm/ci/rules-dashboard-values.yaml");
    let rules = text("rules.yaml")?;
    let there = "runbook_url: https://wiki.example.com/kubewarm/runbook#";
    let linked = rules.replace("runbook_url: docs/runbook.md#", there);
    assert_eq!(linked.matches(there).count(), rules.matches("alert: ").count());
    for helm in helms()? {
        let rendered = render(&helm, &["--values", &values.to_string_lossy()])?;
        let spec = &rendered.only("PrometheusRule")?["spec"];
        assert_eq!(*spec, serde_saphyr::from_str::<Value>(&linked)?, "{}", helm.name());
        let data = &rendered.only("ConfigMap/kubewarm-dashboard")?["data"]["kubewarm.json"];
        assert_eq!(data.as_str(), Some(text("dashboard.json")?.trim()), "{}", helm.name());

        let plain = ["--set", "metrics.renderMode=always,metrics.prometheusRule.enabled=true"];
        let spec = render(&helm, &plain)?.only("PrometheusRule")?["spec"].clone();
        assert_eq!(spec, serde_saphyr::from_str::<Value>(&rules)?, "{}", helm.name());
    }
    Ok(())
}
