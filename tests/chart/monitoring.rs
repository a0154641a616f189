//! Tests that the rules and the dashboards that the chart installs are the files that promtool and
//! Prometheus test.

use serde_json::{Value, json};

use crate::cluster::{Failure, Outcome, file, helms};
use crate::render::render;

const RUNBOOK: &str = "https://wiki.example.com/kubewarm/runbook";
const RULES: &str = "metrics.renderMode=always,metrics.prometheusRule.enabled=true";

fn text(name: &str) -> std::io::Result<String> {
    std::fs::read_to_string(file("charts/kubewarm/files").join(name))
}

fn rules() -> Result<Value, Failure> {
    Ok(serde_saphyr::from_str(&text("rules.yaml")?)?)
}

fn dashboard(name: &str) -> Result<Value, Failure> {
    Ok(serde_json::from_str(&text(&format!("dashboard-{name}.json"))?)?)
}

/// The rules of the file, completed as the chart completes them: each alert gets a link to its
/// section of the runbook.
fn linked(mut rules: Value) -> Value {
    let groups = rules["groups"].as_array_mut().into_iter().flatten();
    let all = groups.filter_map(|group| group["rules"].as_array_mut()).flatten();
    for rule in all {
        if let Some(section) = rule["alert"].as_str().map(str::to_lowercase) {
            rule["annotations"]["runbook_url"] = format!("{RUNBOOK}#{section}").into();
        }
    }
    rules
}

#[test]
fn rules_and_dashboards_are_the_files_with_links_to_the_runbook() -> Outcome {
    let values = file("charts/kubewarm/ci/rules-dashboard-values.yaml");
    let link = json!({"type": "link", "title": "Runbook", "url": RUNBOOK, "icon": "doc", "targetBlank": true});
    for helm in helms()? {
        let rendered = render(&helm, &["--values", &values.to_string_lossy()])?;
        let spec = &rendered.only("PrometheusRule")?["spec"];
        assert_eq!(*spec, linked(rules()?), "{}", helm.name());
        let data = rendered.only("ConfigMap/kubewarm-dashboards")?["data"].as_object();
        let data = data.ok_or("no data")?;
        assert_eq!(data.len(), 3, "{}", helm.name());
        for name in ["overview", "reads", "upstream"] {
            let mut expected = dashboard(name)?;
            expected["links"].as_array_mut().ok_or("no links")?.push(link.clone());
            let text = data[&format!("kubewarm-{name}.json")].as_str().unwrap_or_default();
            assert_eq!(serde_json::from_str::<Value>(text)?, expected, "{}: {name}", helm.name());
        }
    }
    Ok(())
}

#[test]
fn without_the_address_of_the_runbook_there_are_no_links_to_it() -> Outcome {
    for helm in helms()? {
        let set = format!("{RULES},grafanaDashboard.enabled=true");
        let rendered = render(&helm, &["--set", &set])?;
        assert_eq!(rendered.only("PrometheusRule")?["spec"], rules()?, "{}", helm.name());
        assert!(!rendered.text.contains("runbook_url"), "{}", helm.name());
        let data = &rendered.only("ConfigMap/kubewarm-dashboards")?["data"];
        for name in ["overview", "reads", "upstream"] {
            let text = data[format!("kubewarm-{name}.json")].as_str().unwrap_or_default();
            let rendered: Value = serde_json::from_str(text)?;
            assert_eq!(rendered, dashboard(name)?, "{}: {name}", helm.name());
        }
    }
    Ok(())
}

#[test]
fn commands_in_alerts_name_the_namespace_and_the_account_of_the_release() -> Outcome {
    for helm in helms()? {
        let set = format!("{RULES},serviceAccount.name=warm");
        let rendered = render(&helm, &["--namespace", "tools", "--set", &set])?;
        let spec = rendered.only("PrometheusRule")?["spec"].to_string();
        assert!(!spec.contains("kubewarm-system"), "{}", helm.name());
        for command in [
            "--as=system:serviceaccount:tools:warm",
            "kubectl rollout restart deployment -n tools -l app.kubernetes.io/name=kubewarm",
        ] {
            assert!(spec.contains(command), "{}: {command}", helm.name());
        }
    }
    Ok(())
}
