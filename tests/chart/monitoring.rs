//! The rules and the dashboard in the cluster are the files that promtool and Prometheus test.

use serde_json::Value;

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

/// The rules with a link to its section of the runbook for each alert.
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
fn rules_and_dashboard_are_the_files_with_links_to_the_runbook() -> Outcome {
    let values = file("charts/kubewarm/ci/rules-dashboard-values.yaml");
    for helm in helms()? {
        let rendered = render(&helm, &["--values", &values.to_string_lossy()])?;
        let spec = &rendered.only("PrometheusRule")?["spec"];
        assert_eq!(*spec, linked(rules()?), "{}", helm.name());
        let data = &rendered.only("ConfigMap/kubewarm-dashboard")?["data"]["kubewarm.json"];
        assert_eq!(data.as_str(), Some(text("dashboard.json")?.trim()), "{}", helm.name());
    }
    Ok(())
}

#[test]
fn without_the_address_of_the_runbook_there_are_no_links_to_it() -> Outcome {
    for helm in helms()? {
        let rendered = render(&helm, &["--set", RULES])?;
        assert_eq!(rendered.only("PrometheusRule")?["spec"], rules()?, "{}", helm.name());
        assert!(!rendered.text.contains("runbook_url"), "{}", helm.name());
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
