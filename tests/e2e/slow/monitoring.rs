//! The shipped dashboard and alerts on a real Prometheus that scrapes kubewarm. Every query must
//! return data, and faults must cause their alerts.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::picture;
use super::prometheus::ScrapeServer;
use crate::api::Served;
use crate::cutter;
use crate::operator::Operator;
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually, file};

const DASHBOARDS: [&str; 3] = ["overview", "reads", "upstream"];
/// Timeout until a stale store causes its alert: the alert's threshold of 3 minutes, and the age of
/// the data when the API server froze.
const STALE: Duration = Duration::from_mins(5);
const SETTINGS: &str = "targets: [{name: settings, resource: configmaps}]";
/// The first words of queries that may return nothing here: a new API server may throttle no
/// request, and kubewarm can compute every row of these objects.
const NOTHING_TO_SHOW: &[&str] = &[
    "max by (group, resource) (kubewarm:upstream_throttled:ratio",
    "sum by (resource) (increase(kubewarm_read_incomplete_rows_total",
];

fn dashboard(name: &str) -> Result<Value, Failure> {
    let path = format!("charts/kubewarm/files/dashboard-{name}.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(file(&path))?)?)
}

/// Every query of the dashboards' panels, with the panel's title.
fn queries() -> Result<Vec<(String, String)>, Failure> {
    let mut panels = Vec::new();
    for name in DASHBOARDS {
        for panel in dashboard(name)?["panels"].as_array().ok_or("no panels")? {
            // A collapsed row contains its panels.
            panels.extend(panel["panels"].as_array().into_iter().flatten().cloned());
            panels.push(panel.clone());
        }
    }
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let queries =
            targets.into_iter().filter_map(|target| target["expr"].as_str().map(str::to_owned));
        queries.map(move |query| (title.clone(), query)).collect::<Vec<_>>()
    };
    Ok(panels.iter().flat_map(of_panel).collect())
}

/// The query that Grafana sends if every variable is set to all.
fn chosen(query: &str) -> String {
    let all = query.replace("$__rate_interval", "2m");
    ["$cluster", "$job", "$instance", "$namespace", "$profile", "$resource"]
        .iter()
        .fold(all, |query, variable| query.replace(&format!("\"{variable}\""), "\".*\""))
}

/// Applies a profile and grants what it needs.
fn granted<'a>(
    world: &'a World,
    namespace: &'a str,
    name: &'a str,
    spec: &str,
) -> Result<Profile<'a>, Failure> {
    let profile = Profile::apply(world, namespace, name, spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    Ok(profile)
}

/// Waits until an alert with this name and these labels is pending or firing.
fn await_alert(
    prometheus: &ScrapeServer,
    name: &str,
    labels: &[(&str, &str)],
    limit: Duration,
) -> Outcome {
    let is_it = |alert: &Value| {
        let own_labels = &alert["labels"];
        own_labels["alertname"] == name
            && labels.iter().all(|(label, value)| own_labels[*label] == **value)
    };
    let alert = eventually(limit, || {
        let alerts = prometheus.alerts()?;
        let alert = alerts.iter().find(|alert| is_it(alert)).cloned();
        let names: Vec<_> = alerts.iter().map(|alert| &alert["labels"]).collect();
        alert.ok_or_else(|| format!("no {name} with {labels:?} among {names:#?}").into())
    })?;
    let description = alert["annotations"]["description"].as_str().unwrap_or_default();
    assert!(!description.is_empty() && !description.contains("<no value>"), "{alert:#}");
    Ok(())
}

/// The token of a user who may read nearly everything.
fn reader(world: &World, namespace: &str) -> Result<String, Failure> {
    world.cluster.run(["create", "serviceaccount", "reader", "-n", namespace])?;
    let account = format!("--serviceaccount={namespace}:reader");
    world.cluster.run([
        "create",
        "clusterrolebinding",
        "reader",
        "--clusterrole=view",
        &account,
    ])?;
    let token = world.cluster.run(["create", "token", "reader", "-n", namespace])?;
    Ok(token.trim().to_owned())
}

/// Sends the same read several times at once. Each answer must have this status code.
fn read(served: &Served, token: &str, times: usize, path: &str, code: u16) -> Outcome {
    let address = served.server()?;
    std::thread::scope(|scope| {
        let ask = || address.get(token, path).map_err(|error| error.to_string());
        let asking: Vec<_> = (0..times).map(|_| scope.spawn(ask)).collect();
        for one in asking {
            let reply = one.join().map_err(|_| "a reader panicked")??;
            if reply.code != code {
                return Err(format!("{path}: {} {}", reply.code, reply.text).into());
            }
        }
        Ok(())
    })
}

#[test]
fn every_query_of_the_dashboards_has_an_answer() -> Outcome {
    let world = World::alone()?;
    let prometheus = ScrapeServer::start(&world)?;
    // The test sets the memory limit, because not every machine has one, and the dashboard shows
    // it.
    let served = Served::start(&world, &["--memory-limit", "512Mi"])?;
    prometheus.scrape(&[("kubewarm", &served.operator)])?;
    let team = world.namespace("team")?;
    let token = reader(&world, &team)?;
    let spec = format!("{{warmup: {{deadlineSeconds: 60}}, {SETTINGS}}}");
    let profile = granted(&world, &team, "granted", &spec)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let refused = "{targets: [{name: services, resource: services}]}";
    // Until kubewarm has written this status, it answers 421, as for a kind without a profile.
    Profile::apply(&world, &team, "refused", refused)?.await_manifests()?;
    // The restart of the API server ends all watches, and kubewarm opens them again. This causes
    // data for the panels of watches.
    world.cluster.apiserver().restart()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let path = |resource: &str| format!("/api/v1/namespaces/{team}/{resource}");
    // A read that kubewarm refuses with 503: the profile declares services, and kubewarm may not
    // read them.
    read(&served, &token, 1, &path("services"), 503)?;

    // One watch stays open for the panel of open watches. The others end at once.
    let watch = format!("{}?watch=true", path("configmaps"));
    let _open = served.server()?.watch(&token, &watch, "application/json")?;
    let mut number = 0;
    eventually(SOON, || {
        number += 1;
        world.cluster.run(["create", "configmap", &format!("c{number}"), "-n", &team])?;
        read(&served, &token, 1, &path("configmaps"), 200)?;
        read(&served, &token, 1, &path("pods"), 421)?;
        read(&served, &token, 1, &format!("{watch}&timeoutSeconds=1"), 200)?;
        let mut silent = Vec::new();
        for (title, query) in queries()? {
            let samples = prometheus.query(&chosen(&query))?;
            let is_silent = samples.iter().all(|sample| sample.value.is_nan());
            if is_silent && !NOTHING_TO_SHOW.iter().any(|begin| query.starts_with(begin)) {
                silent.push(format!("{title}: {query}"));
            }
        }
        if silent.is_empty() { Ok(()) } else { Err(format!("{silent:#?}").into()) }
    })?;
    let (failing, rules) = prometheus.failing_rules()?;
    assert!(failing.is_empty() && rules > 20, "{rules} rules: {failing:#?}");
    let samples = prometheus.query("sum by (resource) (kubewarm_objects{namespace=\"\"})")?;
    let settings = samples.iter().find(|sample| sample.labels["resource"] == "configmaps");
    assert!(settings.is_some_and(|sample| sample.value >= 1.0), "{samples:?}");
    Ok(())
}

/// A Prometheus, an operator that it scrapes, and a profile that stays unchanged.
struct MonitoringFixture {
    world: World,
    prometheus: ScrapeServer,
    served: Served,
    /// The token of a reader.
    token: String,
    began: Instant,
}

impl MonitoringFixture {
    /// The namespace of the profile `steady`.
    const OTHER: &str = "other-0";

    fn start() -> Result<Self, Failure> {
        let world = World::alone()?;
        let prometheus = ScrapeServer::start(&world)?;
        let began = Instant::now();
        await_alert(&prometheus, "KubewarmAbsent", &[], SOON)?;
        let served = Served::start(&world, &[])?;
        prometheus.scrape(&[("kubewarm", &served.operator)])?;
        assert_eq!(world.namespace("other")?, Self::OTHER);
        let token = reader(&world, Self::OTHER)?;
        let scene = Self { world, prometheus, served, token, began };
        scene.steady()?.await_condition("Ready", "True", None, SOON)?;
        Ok(scene)
    }

    fn steady(&self) -> Result<Profile<'_>, Failure> {
        granted(&self.world, Self::OTHER, "steady", &format!("{{{SETTINGS}}}"))
    }

    /// Waits until the alerts that the start of the operator caused are gone.
    fn settle(&self) -> Outcome {
        eventually(SOON, || {
            let alerts = self.prometheus.alerts()?;
            if alerts.is_empty() { Ok(()) } else { Err(format!("{alerts:#?}").into()) }
        })
    }

    fn end(&self) -> Outcome {
        self.served.operator.process.kill()?;
        await_alert(&self.prometheus, "KubewarmAbsent", &[], SOON)
    }
}

#[test]
fn faults_of_profiles_cause_their_alerts() -> Outcome {
    let scene = MonitoringFixture::start()?;
    let MonitoringFixture { world, prometheus, served, .. } = &scene;
    let team = world.namespace("team")?;
    let team = team.as_str();
    let blocked = granted(world, team, "blocked", &format!("{{{SETTINGS}}}"))?;
    blocked.await_condition("Authorized", "True", Some("Verified"), SOON)?;
    blocked.await_condition("Ready", "True", None, SOON)?;
    scene.settle()?;

    // A second replica that connects through a proxy, which closes each connection after 2 s.
    let cut = Operator::run(world, "kubewarm-cut", &cutter::kubeconfig(world)?, &[])?;
    prometheus.scrape(&[("kubewarm", &served.operator), ("kubewarm-cut", &cut)])?;

    for (name, spec) in [
        ("cold", "{targets: [{name: t, group: example.com, resource: parts}]}"),
        ("refused", "{targets: [{name: t, resource: services}]}"),
        ("stalled", "{targets: [{name: t, resource: nodes}]}"),
    ] {
        Profile::apply(world, team, name, spec)?;
    }
    // This profile is in another namespace, because its permissions would also apply to the first
    // profile.
    let crowded = world.namespace("crowded")?;
    world.cluster.run(["create", "configmap", "second", "-n", &crowded])?;
    let limits = format!("{{limits: {{maxObjects: 1}}, {SETTINGS}}}");
    granted(world, &crowded, "limited", &limits)?;
    let binding = format!("rolebinding/kubewarm:{team}:blocked");
    world.cluster.run(["delete", &binding, "-n", team])?;
    for (alert, namespace, profile) in [
        ("KubewarmProfileNotSynced", team, "cold"),
        ("KubewarmProfilePermissionsMissing", team, "refused"),
        ("KubewarmProfileStalled", team, "stalled"),
        ("KubewarmProfileLimited", &crowded, "limited"),
        ("KubewarmProfileAccessLost", team, "blocked"),
    ] {
        let labels = [("namespace", namespace), ("profile", profile)];
        await_alert(prometheus, alert, &labels, SOON)?;
    }
    let flapping = pod_labels("kubewarm-cut", "cacheprofiles");
    await_alert(prometheus, "KubewarmWatchFlapping", &flapping, SOON)?;
    let others = prometheus.alerts()?.into_iter();
    let others: Vec<_> = others.filter(|alert| alert["labels"]["pod"] == "kubewarm").collect();
    assert!(others.is_empty(), "{others:#?}");
    // Reads that kubewarm refuses: no profile declares pods, and kubewarm may not read services.
    let path = |resource: &str| format!("/api/v1/namespaces/{team}/{resource}");
    // Prometheus' function `increase` needs an earlier value of the series. So one request of each
    // kind comes first, and then 20.
    for times in [1, 20] {
        for (resource, code) in [("pods", 421), ("services", 503)] {
            read(served, &scene.token, times, &path(resource), code)?;
            let answered = format!("kubewarm_read_requests_total{{code=\"{code}\"}}");
            eventually(SOON, || match prometheus.query(&answered)?.as_slice() {
                [] => Err(format!("no {answered}").into()),
                _ => Ok(()),
            })?;
        }
    }
    let undeclared = [("pod", "kubewarm"), ("resource", "_other")];
    await_alert(prometheus, "KubewarmReadsUndeclared", &undeclared, SOON)?;
    let others = prometheus.alerts()?.into_iter();
    let unanswered: Vec<_> =
        others.filter(|alert| alert["labels"]["alertname"] == "KubewarmReadErrors").collect();
    assert!(unanswered.is_empty(), "a profile lacks permission: {unanswered:#?}");
    let steady = format!("/api/v1/namespaces/{}/configmaps", MonitoringFixture::OTHER);
    read(served, &scene.token, 20, &steady, 200)?;
    if std::env::var_os("PICTURE").is_some() {
        let began = scene.began.elapsed();
        picture::save(&picture::draw(prometheus, &dashboard("overview")?, began, chosen)?)?;
    }
    cut.process.kill()?;
    scene.end()
}

#[test]
fn faults_of_the_api_server_cause_their_alerts() -> Outcome {
    let scene = MonitoringFixture::start()?;
    let MonitoringFixture { world, prometheus, .. } = &scene;
    let steady = scene.steady()?;
    scene.settle()?;
    let snapshot = world.cluster.folder().join("snapshot");
    world.cluster.snapshot(&snapshot)?;
    // These writes create more versions than a restarting control plane does. So the versions after
    // the restore stay below the versions before.
    let namespace = MonitoringFixture::OTHER;
    let undone = (0..200).map(|n| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: u{n}, namespace: {namespace}}}}}"
        )
    });
    let undone = undone.collect::<Vec<_>>().join(", ");
    world.cluster.apply(&format!("{{apiVersion: v1, kind: List, items: [{undone}]}}"))?;
    let query = r#"sum(kubewarm_objects{pod="kubewarm",resource="configmaps"})"#;
    eventually(SOON, || match prometheus.query(query)?.as_slice() {
        [sample] if sample.value > 200.0 => Ok(()),
        samples => Err(format!("{samples:?}").into()),
    })?;
    world.cluster.restore(&snapshot)?;
    let rolled_back = pod_labels("kubewarm", "configmaps");
    let alert = "KubewarmResourceVersionRollback";
    await_alert(prometheus, alert, &rolled_back, SOON)?;
    steady.await_condition("Ready", "True", None, SOON)?;

    world.cluster.apiserver().freeze()?;
    await_alert(prometheus, "KubewarmNoLeader", &[], SOON)?;
    // The frozen API server answers no TokenReview or access review, so kubewarm refuses all reads.
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    // Prometheus sees an increase only after a first value of the series.
    for times in [1, 20] {
        eventually(SOON, || read(&scene.served, &scene.token, times, &path, 503))?;
        let answered = "kubewarm_read_requests_total{code=\"503\"}";
        eventually(SOON, || match prometheus.query(answered)?.as_slice() {
            [] => Err(format!("no {answered}").into()),
            _ => Ok(()),
        })?;
    }
    await_alert(prometheus, "KubewarmReadErrors", &[("pod", "kubewarm")], SOON)?;
    await_alert(prometheus, "KubewarmResourceStale", &pod_labels("kubewarm", "configmaps"), STALE)?;
    scene.end()
}

fn pod_labels<'a>(pod: &'a str, resource: &'a str) -> [(&'static str, &'a str); 2] {
    [("pod", pod), ("resource", resource)]
}
