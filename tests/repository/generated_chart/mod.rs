//! Tests that the chart's generated files match their sources. `BLESS=1` rewrites them.

#![expect(clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod copies;
mod schema;
mod values;

use clap::CommandFactory as _;
use kubewarm::cli::Cli;
use kubewarm_api::{model::ValidatedProfile, v1alpha1::CacheProfile};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A chart with more values would be too long to read.
const MAX_VALUES: usize = 200;

fn in_chart(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/kubewarm").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(in_chart(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails unless the chart's committed file equals `generated`. With `BLESS=1`, writes the file
/// instead.
#[track_caller]
fn assert_committed(path: &str, generated: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(in_chart(path), generated).expect("the file can be written");
    }
    assert!(
        fs::read_to_string(in_chart(path)).unwrap_or_default() == generated,
        "charts/kubewarm/{path} is stale; run `make generate` and commit the result"
    );
}

#[test]
fn the_charts_crd_matches_the_programs_crd() {
    assert_committed("templates/crd.yaml", &copies::crd());
}

#[test]
fn the_account_policy_of_the_chart_is_the_shipped_one() {
    assert_committed("templates/account-policy.yaml", &copies::account_policy());
}

#[test]
fn the_injecting_policy_of_the_chart_is_the_shipped_one() {
    assert_committed("templates/inject-policy.yaml", &copies::inject_policy());
}

#[test]
fn the_charts_rules_match_kubewarm_rbac() {
    assert_committed("files/operator.yaml", &copies::operator());
}

#[test]
fn the_schema_and_the_page_match_the_values() {
    let (values, rows) = (yaml("values.yaml"), values::rows(&read("values.yaml")));
    let schema = schema::complete(&read("values.schema.json"), &values, &rows);
    assert_committed("values.schema.json", &schema);
    let page = values::page(&read("README.md"), &values, &rows);
    assert_committed("README.md", &page);
}

#[test]
fn every_value_is_described_and_checked() {
    let (values, rows) = (yaml("values.yaml"), values::rows(&read("values.yaml")));
    let paths: Vec<_> = rows.iter().map(|row| row.path.as_str()).collect();
    let leaves = values::leaves(&values, &paths);
    let undescribed: Vec<_> = leaves.iter().filter(|leaf| !paths.contains(&&***leaf)).collect();
    assert!(undescribed.is_empty(), "no comment above {undescribed:?} in values.yaml");
    assert!(leaves.len() <= MAX_VALUES, "{} values", leaves.len());
    let schema = serde_json::from_str(&read("values.schema.json")).expect("it is JSON");
    assert_eq!(schema::differences(&schema, &values, &paths), [] as [String; 0]);
}

/// The environment variable and the default of each argument of `kubewarm run`.
fn flags() -> Vec<(String, Option<String>)> {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").expect("there is one");
    let flags = run.get_arguments().filter_map(|flag| {
        let name = flag.get_env()?.to_str()?.to_owned();
        let default = flag.get_default_values().first().and_then(|value| value.to_str());
        Some((name, default.map(str::to_owned)))
    });
    flags.collect()
}

#[test]
fn chart_defaults_match_the_programs_defaults() {
    let values = yaml("values.yaml");
    let (operator, reads) = (&values["operator"], &values["readApi"]);
    let number = |value: &Value| value.as_u64().expect("a number").to_string();
    let (whole, limit) =
        (|name: &str| number(&operator[name]), |name: &str| number(&reads["limits"][name]));
    let word = |name: &str| operator["log"][name].as_str().expect("a word").to_owned();
    let authorization = reads["authorization"].as_str().expect("a word").to_owned();
    let strategy = operator["listStrategy"].as_str().expect("a word").to_owned();
    let days = values["tls"]["days"].as_u64().expect("a number");
    let expected = [
        ("KUBEWARM_ADMIN_ADDR", format!("[::]:{}", whole("adminPort"))),
        ("KUBEWARM_API_ADDR", format!("[::]:{}", number(&reads["port"]))),
        ("KUBEWARM_AUTHORIZATION", authorization),
        ("KUBEWARM_CERTIFICATE_LIFETIME", format!("{}h", days * 24)),
        ("KUBEWARM_LIST_PAGE_SIZE", whole("listPageSize")),
        ("KUBEWARM_LIST_STRATEGY", strategy),
        ("KUBEWARM_LOG", word("filter")),
        ("KUBEWARM_LOG_FORMAT", word("format")),
        ("KUBEWARM_MAX_CONCURRENT_LISTS", whole("maxConcurrentLists")),
        ("KUBEWARM_MAX_INFORMERS", whole("maxInformers")),
        ("KUBEWARM_MAX_REQUESTS_INFLIGHT", limit("maxRequestsInflight")),
        ("KUBEWARM_NAMESPACE_INFORMERS", whole("namespaceInformers")),
        ("KUBEWARM_NAMESPACE_QUOTA", whole("namespaceQuota")),
        (
            "KUBEWARM_OUTAGE_GRACE_PERIOD",
            format!("{}s", number(&reads["outageGracePeriodSeconds"])),
        ),
        ("KUBEWARM_SHUTDOWN_DELAY", format!("{}s", whole("shutdownDelaySeconds"))),
        ("KUBEWARM_USER_QUOTA", limit("userQuota")),
        ("KUBEWARM_WATCH_LIST_TIMEOUT", format!("{}s", whole("watchListTimeoutSeconds"))),
    ];
    let mut flags: Vec<_> =
        flags().into_iter().filter_map(|(name, default)| Some((name, default?))).collect();
    // The program's default differs from the chart's: outside of a pod, the operator cannot send
    // TokenReviews.
    flags.retain(|(name, _)| name != "KUBEWARM_METRICS_AUTH");
    flags.sort();
    assert_eq!(flags, expected.map(|(name, default)| (name.to_owned(), default)));
}

#[test]
fn every_flag_can_be_set_by_a_value() {
    // No chart value sets these flags, because in a pod, kubewarm reads the settings from its
    // ServiceAccount's files.
    let not_set = ["KUBEWARM_OPERATOR_NAMESPACE", "KUBEWARM_KUBECONFIG", "KUBEWARM_CONTEXT"];
    let deployment = read("templates/deployment.yaml");
    let (values, mut value_of) = (yaml("values.yaml"), yaml("files/flags.yaml"));
    // Helm sets the operator namespace to the release's namespace, so no value sets it.
    let namespace = value_of["KUBEWARM_OPERATOR_NAMESPACE"].take();
    assert_eq!(namespace, "helm --namespace");
    for (name, _) in flags() {
        let is_set = deployment.contains(&format!("- name: {name}\n"));
        assert!(is_set != not_set.contains(&name.as_str()), "{name}");
        // The chart rejects this flag in `extraArgs`, with a message that names the value to set
        // instead.
        let value = value_of[&name].as_str().map(|path| values::at(&values, path));
        assert_eq!(
            value.is_some_and(|value| !value.is_null()),
            is_set,
            "{name} in files/flags.yaml"
        );
    }
    let set = flags().into_iter().filter(|(name, _)| !not_set.contains(&name.as_str()));
    assert_eq!(value_of.as_object().map(serde_json::Map::len), Some(set.count() + 1));
}

#[test]
fn the_charts_metadata_names_this_version() {
    let chart = yaml("Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!([&chart["version"], &chart["appVersion"]], [version, version]);
    let annotation = |name: &str| -> Value {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
        serde_saphyr::from_str(text.expect("the annotation is there")).expect("it is YAML")
    };
    let repository = yaml("values.yaml")["image"]["repository"].clone();
    let image = format!("{}:{version}", repository.as_str().expect("a text"));
    assert_eq!(annotation("images")[0]["image"], image);
    for example in annotation("crdsExamples").as_array().expect("a list") {
        let profile: CacheProfile =
            serde_json::from_value(example.clone()).expect("the kind's shape");
        ValidatedProfile::parse(&profile).expect("it is valid");
    }
}
