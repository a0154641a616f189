//! Tests that a real Prometheus finds both replicas through the chart's Service and scrapes them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{Prometheus, Sample, eventually};

use crate::object::text;
use crate::release::{NAMESPACE, NodeRelease, PAIR};
use crate::world::{Failure, NodeWorld, Outcome, SOON, file, report};

/// Fewer series than docs/metrics.md states for 40 resources and 20 profiles. Each replica must
/// stay below a tenth of this number.
const SERIES: f64 = 7276.0;

/// The endpoints of the chart's Service as scrape targets. The test reads them itself, because
/// Debian's Prometheus has no service discovery for Kubernetes.
fn targets(world: &NodeWorld) -> Result<Vec<Value>, Failure> {
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
    let Some(world) = NodeWorld::enter(test)? else { return Ok(()) };
    let pods = NodeRelease::with(&world, PAIR)?.pods()?;
    let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
    // The test waits until only the current replicas are left: replicas of an earlier test may
    // still be terminating.
    let targets = eventually(SOON, || {
        let targets = targets(&world)?;
        let pods = targets.iter().map(|target| text(target, "/labels/pod"));
        let is_right = pods.collect::<BTreeSet<_>>() == names.iter().copied().collect();
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
    let prometheus = world.node.prometheus(&config)?;
    eventually(SOON, || {
        let up = prometheus.query("up == 1")?;
        let is_up = up.iter().map(pod).collect::<BTreeSet<_>>() == names.iter().copied().collect();
        if is_up { Ok(()) } else { Err(format!("{up:?} of {names:?}").into()) }
    })?;
    let series = prometheus.query("scrape_samples_scraped")?;
    let of_each: Vec<_> = series.iter().map(|one| (pod(one), one.value)).collect();
    report(&format!("series of each replica: {of_each:?}"))?;
    assert!(series.iter().all(|one| one.value > 50.0 && one.value < SERIES / 10.0), "{series:?}");
    let slowest = prometheus.query("max_over_time(scrape_duration_seconds[1m])")?;
    assert!(slowest.iter().all(|one| one.value < 1.0), "{slowest:?}");
    is_documented(&prometheus)
}

fn pod(sample: &Sample) -> &str {
    sample.labels.get("pod").map_or("", String::as_str)
}

/// Checks that docs/metrics.md names every scraped metric.
fn is_documented(prometheus: &Prometheus) -> Outcome {
    let documented = std::fs::read_to_string(file("docs/metrics.md"))?;
    eventually(Duration::from_secs(10), || {
        let series =
            prometheus.query(r#"count by (__name__) ({__name__=~"kubewarm_.*|tokio_.*"})"#)?;
        let names: Vec<_> = series.iter().filter_map(|one| one.labels.get("__name__")).collect();
        let part = |name: &str| {
            let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            whole.is_some_and(|whole| documented.contains(&format!("`{whole}`")))
        };
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| !documented.contains(&format!("`{name}`")) && !part(name))
            .collect();
        if names.len() > 20 && unknown.is_empty() {
            Ok(())
        } else {
            Err(format!("{unknown:?} of {} are not documented", names.len()).into())
        }
    })
}
