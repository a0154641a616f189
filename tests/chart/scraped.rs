//! Tests that a real Prometheus scrapes as the chart's monitor configures it: over TLS, with a
//! token, and with the chart's CA alone.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{ControlPlane, Prometheus, eventually};

use crate::cluster::{Failure, NAMESPACE, Outcome};
use crate::installs::Release;
use crate::render::render;

/// The ServiceAccount of Prometheus.
const ACCOUNT: &str = "prometheus";
/// The time limit until a scrape shows a change. Prometheus scrapes once a second, and the operator
/// reads its Secret every minute.
const SCRAPED: Duration = Duration::from_mins(10);

/// The TLS settings of Prometheus, taken from the `ServiceMonitor`.
fn verified(monitor: &Value, ca_file: &Path) -> Result<Value, Failure> {
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["scheme"], "https");
    let name = endpoint["tlsConfig"]["serverName"].as_str().ok_or("no serverName")?;
    Ok(json!({"ca_file": ca_file, "server_name": name}))
}

/// The value of a key in a `ConfigMap` of the release's namespace.
fn published(cluster: &ControlPlane, name: &str, key: &str) -> Result<String, Failure> {
    let template = format!("--template={{{{index .data \"{key}\"}}}}");
    Ok(cluster.run(["get", "configmap", name, "-n", NAMESPACE, "-o", "go-template", &template])?)
}

/// A token of Prometheus' ServiceAccount.
fn scraper(cluster: &ControlPlane) -> Result<String, Failure> {
    cluster.run(["create", "serviceaccount", ACCOUNT, "-n", NAMESPACE])?;
    Ok(cluster.run(["create", "token", ACCOUNT, "-n", NAMESPACE])?.trim().to_owned())
}

fn await_up(prometheus: &Prometheus, job: &str, up: f64) -> Outcome {
    eventually(SCRAPED, || {
        let samples = prometheus.query(&format!("up{{job=\"{job}\"}}"))?;
        let is_so = samples.iter().any(|one| (one.value - up).abs() < 0.5);
        if is_so { Ok(()) } else { Err(format!("{job} is not {up}: {samples:?}").into()) }
    })
}

/// Checks that Prometheus scrapes the operator on this admin port. Then this function requests a
/// rotation of the CA, and a Prometheus with the new CA must be able to scrape.
pub(crate) fn check_scrape_configuration(release: &Release<'_>, port: &str) -> Outcome {
    let cluster = release.cluster;
    let monitors = ["--set", "metrics.renderMode=always,metrics.serviceMonitor.enabled=true"];
    let rendered = render(release.helm, &monitors)?;
    let monitor = rendered.only("ServiceMonitor")?;
    let reference = &monitor["spec"]["endpoints"][0]["tlsConfig"]["ca"]["configMap"];
    let (name, key) = (reference["name"].as_str(), reference["key"].as_str());
    let ca = cluster.folder().join("scraped-ca.crt");
    let (name, key) = (name.ok_or("no name")?, key.ok_or("no key")?);
    let pem = published(cluster, name, key)?;
    std::fs::write(&ca, &pem)?;

    // Prometheus reads the file again for each new connection.
    let next_ca = cluster.folder().join("scraped-next.crt");
    let other = rcgen::generate_simple_self_signed(["kubewarm.kubewarm-system.svc".to_owned()])?;
    std::fs::write(&next_ca, other.cert.pem())?;
    let token = scraper(cluster)?;
    let job = |job: &str, tls: &Value| {
        json!({"job_name": job, "scheme": "https", "tls_config": tls, "honor_labels": true,
            "authorization": {"type": "Bearer", "credentials": token},
            "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}]})
    };
    let right = verified(monitor, &ca)?;
    let mut without_a_token = job("without-a-token", &right);
    without_a_token.as_object_mut().ok_or("no job")?.remove("authorization");
    let mut another_name = right.clone();
    another_name["server_name"] = "prometheus.monitoring.svc".into();
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            job("right", &right),
            job("another-ca", &verified(monitor, &cluster.authority())?),
            job("another-name", &another_name),
            job("next", &verified(monitor, &next_ca)?),
            without_a_token,
        ],
    });
    let prometheus = cluster.prometheus(&config)?;
    // The ServiceAccount has no permission yet.
    await_up(&prometheus, "right", 0.0)?;
    let subject = format!("--serviceaccount={NAMESPACE}:{ACCOUNT}");
    let role = "kubewarm-metrics-reader";
    let clusterrole = format!("--clusterrole={role}");
    cluster.run(["create", "clusterrolebinding", role, &clusterrole, &subject])?;
    await_up(&prometheus, "right", 1.0)?;
    for job in ["another-ca", "another-name", "next", "without-a-token"] {
        await_up(&prometheus, job, 0.0)?;
    }
    let build = prometheus.query("kubewarm_build_info")?;
    assert_eq!(build.len(), 1, "{build:?}");

    cluster.run(["annotate", "secret", name, "-n", NAMESPACE, "kubewarm.io/rotate-ca=now"])?;
    await_up(&prometheus, "right", 0.0)?;
    let both = published(cluster, name, key)?;
    assert!(
        both.ends_with(&pem) && both.len() > pem.len(),
        "the old CA stays in the bundle: {both}"
    );
    std::fs::write(&next_ca, both)?;
    await_up(&prometheus, "next", 1.0)?;
    cluster.run(["delete", "clusterrolebinding", role])?;
    cluster.run(["delete", "serviceaccount", ACCOUNT, "-n", NAMESPACE])?;
    Ok(())
}
