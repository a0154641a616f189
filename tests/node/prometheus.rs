//! A real Prometheus finds both replicas by the chart's Service and scrapes them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::eventually;

use crate::object::text;
use crate::release::{NAMESPACE, PAIR, Release};
use crate::world::{Failure, Outcome, SOON, World, file, tell};

const ADDRESS: &str = "127.0.0.1:9091";
/// For 40 resources and 20 profiles docs/metrics.md allows more.
const SERIES: f64 = 7276.0;

/// What an expression comes to now, by the pod.
fn query(world: &World, expression: &str) -> Result<BTreeMap<String, f64>, Failure> {
    let query =
        form_urlencoded::Serializer::new(String::new()).append_pair("query", expression).finish();
    let (_, text) = world.ask(ADDRESS, &format!("/api/v1/query?{query}"))?;
    let answer: Value = serde_json::from_str(&text)?;
    let series = answer["data"]["result"].as_array().ok_or_else(|| text.clone())?;
    let value = |one: &Value| {
        let label = one["metric"]["pod"].as_str().or_else(|| one["metric"]["__name__"].as_str());
        let value = one["value"][1].as_str().and_then(|value| value.parse().ok());
        Some((label?.to_owned(), value?))
    };
    Ok(series.iter().filter_map(value).collect())
}

/// What the chart's Service leads to. Debian's Prometheus cannot look for itself.
fn targets(world: &World) -> Result<Vec<Value>, Failure> {
    let selector = "--selector=kubernetes.io/service-name=kubewarm-metrics";
    let mut targets = Vec::new();
    for slice in world.list(&format!("endpointslices --namespace={NAMESPACE} {selector}"))? {
        let port = &slice["ports"][0]["port"];
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = format!("{}:{port}", text(endpoint, "/addresses/0"));
            let pod = &endpoint["targetRef"]["name"];
            targets.push(json!({"targets": [address], "labels": {"pod": pod}}));
        }
    }
    Ok(targets)
}

#[test]
fn prometheus_scrapes_both_replicas_within_the_budget() -> Outcome {
    let test = "prometheus_scrapes_both_replicas_within_the_budget";
    let Some(world) = World::enter(test)? else { return Ok(()) };
    let cluster = world.cluster();
    let pods = Release::with(&world, PAIR)?.pods()?;
    let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
    // Those of an earlier test may not be gone yet.
    let targets = eventually(SOON, || {
        let targets = targets(&world)?;
        let found = targets.iter().map(|target| text(target, "/labels/pod"));
        let is_right = found.collect::<BTreeSet<_>>() == names.iter().copied().collect();
        if is_right { Ok(targets) } else { Err(format!("{targets:?} for {names:?}").into()) }
    })?;
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{
            "job_name": "kubewarm",
            "honor_labels": true,
            "static_configs": targets,
        }],
    });
    let path = cluster.folder().join("prometheus.yml");
    std::fs::write(&path, config.to_string())?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", path.display()))
        .arg(format!("--storage.tsdb.path={}", cluster.folder().join("prometheus").display()))
        .arg(format!("--web.listen-address={ADDRESS}"));
    let process = cluster.process("prometheus", &world.node.command(&command), |log| {
        log.contains("Server is ready to receive web requests")
    });
    process.start().map_err(|error| format!("{error}\n(Debian's package prometheus has it)"))?;

    eventually(SOON, || {
        let up = query(&world, "up == 1")?;
        let is_up = up.keys().eq(&names);
        if is_up { Ok(()) } else { Err(format!("{up:?} of {names:?}").into()) }
    })?;
    let series = query(&world, "scrape_samples_scraped")?;
    tell(&format!("series of each replica: {series:?}"))?;
    assert!(series.values().all(|&series| series > 50.0 && series < SERIES / 10.0), "{series:?}");
    let slowest = query(&world, "max_over_time(scrape_duration_seconds[1m])")?;
    assert!(slowest.values().all(|&seconds| seconds < 1.0), "{slowest:?}");
    is_documented(&world)
}

/// Nothing is scraped that the documentation does not name.
fn is_documented(world: &World) -> Outcome {
    let documented = std::fs::read_to_string(file("docs/metrics.md"))?;
    eventually(Duration::from_secs(10), || {
        let names = query(world, r#"count by (__name__) ({__name__=~"kubewarm_.*|tokio_.*"})"#)?;
        let part = |name: &String| {
            let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            whole.is_some_and(|whole| documented.contains(&format!("`{whole}`")))
        };
        let unknown: Vec<_> = names
            .keys()
            .filter(|name| !documented.contains(&format!("`{name}`")) && !part(name))
            .collect();
        if names.len() > 20 && unknown.is_empty() {
            Ok(())
        } else {
            Err(format!("{unknown:?} of {} are not documented", names.len()).into())
        }
    })
}
