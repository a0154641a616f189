//! A real Prometheus that scrapes kubewarm every second and evaluates the shipped rules.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize as _;
use serde_json::{Value, json};
use testbed::Sample;

use crate::operator::{Operator, admin_address};
use crate::world::{Failure, World, file};

const RULES: &str = "charts/kubewarm/files/rules.yaml";

pub(crate) struct ScrapeServer {
    server: testbed::Prometheus,
    targets: PathBuf,
}

/// The values of one series, with their times in seconds since the epoch.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) points: Vec<(f64, f64)>,
}

impl ScrapeServer {
    /// Starts a Prometheus without targets. It ends with the control plane at the latest.
    pub(crate) fn start(world: &World) -> Result<Self, Failure> {
        let targets = world.cluster.folder().join("targets.json");
        std::fs::write(&targets, "[]")?;
        let config = json!({
            "global": {
                "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s",
            },
            "rule_files": [file(RULES)],
            "scrape_configs": [{
                "job_name": "kubewarm",
                "honor_labels": true,
                "file_sd_configs": [{"files": [&targets]}],
            }],
        });
        Ok(Self { server: world.cluster.prometheus(&config)?, targets })
    }

    /// Replaces the targets. Each operator has the name of its pod.
    pub(crate) fn scrape(&self, operators: &[(&str, &Operator)]) -> Result<(), Failure> {
        let mut targets = Vec::new();
        for (pod, operator) in operators {
            let log = operator.process.log();
            let address = admin_address(&log).ok_or("no address in the log")?;
            targets.push(json!({"targets": [address], "labels": {"pod": pod}}));
        }
        // Renamed into place, because Prometheus reads the file as soon as it exists.
        let written = self.targets.with_extension("new");
        std::fs::write(&written, Value::from(targets).to_string())?;
        std::fs::rename(written, &self.targets)?;
        Ok(())
    }

    /// Evaluates an expression now. Returns an error if the expression is invalid.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Sample>, Failure> {
        Ok(self.server.query(expression)?)
    }

    /// Evaluates an expression at 120 points of the last `span`.
    pub(crate) fn query_range(
        &self,
        expression: &str,
        span: Duration,
    ) -> Result<Vec<Series>, Failure> {
        let end = UNIX_EPOCH.elapsed()?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", expression)
            .append_pair("start", &(end.saturating_sub(span)).as_secs_f64().to_string())
            .append_pair("end", &end.as_secs_f64().to_string())
            .append_pair("step", &(span.as_secs_f64() / 120.0).to_string())
            .finish();
        let data = self.server.get(&format!("/api/v1/query_range?{query}"))?;
        let all = data["result"].as_array().ok_or("no series")?;
        let series = |one: &Value| {
            let labels = BTreeMap::deserialize(&one["metric"])?;
            let points = Vec::<(f64, String)>::deserialize(&one["values"])?;
            let parsed = points.into_iter().map(|(time, value)| Ok((time, value.parse()?)));
            Ok(Series { labels, points: parsed.collect::<Result<_, Failure>>()? })
        };
        all.iter().map(series).collect()
    }

    /// The pending and firing alerts.
    pub(crate) fn alerts(&self) -> Result<Vec<Value>, Failure> {
        Ok(self.server.get("/api/v1/alerts")?["alerts"].as_array().ok_or("no alerts")?.clone())
    }

    /// The rules with evaluation errors, and the number of all rules.
    pub(crate) fn failing_rules(&self) -> Result<(Vec<Value>, usize), Failure> {
        let data = self.server.get("/api/v1/rules")?;
        let groups = data["groups"].as_array().ok_or("no groups")?;
        let rules: Vec<_> =
            groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
        let failing = rules.iter().filter(|rule| rule["health"] != "ok");
        Ok((failing.map(|rule| (*rule).clone()).collect(), rules.len()))
    }
}
