//! Whether the metrics of each replica are as the documentation has them.

use super::{
    super::{Error, finding::Finding, specs},
    trusted, until_answered,
};
use crate::{
    cli::SelfTestArgs,
    cluster::{Answer, Connection, get, get_as, operator_client},
    model::Fault,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::ObjectList};
use std::net::IpAddr;
use tokio::time::Instant;

/// The port of the pods that metrics are read from.
const PORT: &str = "admin";

/// Reads an exposition.
pub type Lint = fn(&str) -> Exposition;

/// What is found in an exposition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposition {
    /// Metrics.
    pub metrics: usize,
    /// Series.
    pub series: usize,
    /// As many as there may be.
    pub most_series: usize,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// A replica: what it is called, and where its metrics are.
struct Replica {
    name: String,
    url: String,
}

/// A line for each replica, or for what is wrong with its metrics.
pub(super) async fn of_replicas(
    connection: &Connection,
    args: &SelfTestArgs,
    lint: Lint,
    deadline: Instant,
) -> Result<Vec<Finding>, Error> {
    let token = args.metrics_token_file.as_deref().map(specs::file).transpose()?;
    let token = token.as_deref().map(str::trim);
    let trust = trusted(&args.trust);
    let scheme = if args.metrics_tls { "https" } else { "http" };
    let (mut findings, mut replicas) = (Vec::new(), Vec::new());
    if let Some(selector) = &args.replicas {
        let found =
            pods(&connection.client(), &args.home.operator_namespace, selector, deadline).await;
        (findings, replicas) = match found {
            Ok(pods) => of_pods(&pods, scheme, &args.home.operator_namespace, selector),
            Err(fault) => (vec![Finding::bad(format!("the operator's pods: {fault}"))], Vec::new()),
        };
    }
    let named = args.operators.iter().map(|url| Replica { name: url.clone(), url: url.clone() });
    replicas.extend(named);
    for replica in replicas {
        let client = operator_client(&replica.url, &trust).await?;
        if token.is_some() {
            let bare = until_answered(deadline, async || get(&client, "/metrics").await).await;
            findings.push(of_bare(&replica.name, bare));
        }
        let read = until_answered(deadline, async || scrape(&client, token).await).await;
        match read {
            Ok(text) => findings.extend(of_exposition(&replica.name, &lint(&text))),
            Err(fault) => findings.push(Finding::bad(format!("{}: {fault}", replica.name))),
        }
    }
    Ok(findings)
}

async fn pods(
    client: &Client,
    namespace: &str,
    selector: &str,
    deadline: Instant,
) -> Result<Vec<Pod>, Fault> {
    let selector: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    let list = async || get(client, &path).await?.json::<ObjectList<Pod>>();
    until_answered(deadline, list).await.map(|list| list.items)
}

async fn scrape(client: &Client, token: Option<&str>) -> Result<String, Fault> {
    let answer = match token {
        Some(token) => get_as(client, "/metrics", token).await?,
        None => get(client, "/metrics").await?,
    };
    if !answer.status.is_success() {
        return Err(answer.fault());
    }
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// Those that run; what is to be said of the others.
fn of_pods(
    pods: &[Pod],
    scheme: &str,
    namespace: &str,
    selector: &str,
) -> (Vec<Finding>, Vec<Replica>) {
    let (mut findings, mut replicas) = (Vec::new(), Vec::new());
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = format!("pod {}", pod.metadata.name.as_deref().unwrap_or_default());
        match address(pod, scheme) {
            Some(url) => replicas.push(Replica { name, url }),
            None => findings.push(Finding::note(format!("{name} does not run yet"))),
        }
    }
    if replicas.is_empty() {
        let text = format!("no pod of the operator runs in namespace {namespace}");
        let look = format!("kubectl -n {namespace} get pods -l {selector}");
        findings.push(Finding::bad(text).next(look));
    }
    (findings, replicas)
}

/// The URL of a pod's admin address, if it runs and has one.
fn address(pod: &Pod, scheme: &str) -> Option<String> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"))?;
    let address: IpAddr = status.pod_ip.as_ref()?.parse().ok()?;
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT))?.container_port;
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    Some(format!("{scheme}://{host}:{port}"))
}

/// What it means that somebody without a token was answered so.
fn of_bare(name: &str, answer: Result<Answer, Fault>) -> Finding {
    match answer {
        Ok(answer) if answer.status == 401 => {
            Finding::good(format!("{name} tells its metrics to nobody without a token"))
        }
        Ok(answer) => Finding::bad(format!(
            "{name} answers somebody without a token with {}, not 401",
            answer.status.as_u16()
        )),
        Err(fault) => Finding::bad(format!("{name}: {fault}")),
    }
}

fn of_exposition(name: &str, found: &Exposition) -> Vec<Finding> {
    let Exposition { metrics, series, most_series, faults } = found;
    if faults.is_empty() {
        return vec![Finding::good(format!(
            "{name}: {metrics} metrics, all as they are documented; {series} series of at most \
             {most_series}"
        ))];
    }
    faults.iter().map(|fault| Finding::bad(format!("{name}: {fault}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::finding::Mark;
    use serde_json::json;

    fn pod(phase: &str, ip: &str, port: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "x", "ports": [
                {"name": "other", "containerPort": 1}, {"name": port, "containerPort": 9090},
            ]}]},
            "status": {"phase": phase, "podIP": ip},
        }))
        .unwrap()
    }

    #[test]
    fn a_replica_is_asked_where_its_pod_runs() {
        let of = |phase, ip, port| address(&pod(phase, ip, port), "http");
        assert_eq!(of("Running", "10.0.0.7", "admin").as_deref(), Some("http://10.0.0.7:9090"));
        assert_eq!(of("Running", "fd00::7", "admin").as_deref(), Some("http://[fd00::7]:9090"));
        assert_eq!(of("Pending", "10.0.0.7", "admin"), None);
        assert_eq!(of("Running", "", "admin"), None);
        assert_eq!(of("Running", "10.0.0.7", "http"), None);
    }

    #[test]
    fn an_operator_that_does_not_run_fails_the_test() {
        let marks = |pods: &[Pod]| {
            let (findings, replicas) = of_pods(pods, "https", "ops", "a=b");
            (findings.iter().map(|found| found.mark).collect::<Vec<_>>(), replicas.len())
        };
        let (runs, waits) = (pod("Running", "10.0.0.7", "admin"), pod("Pending", "", "admin"));
        assert_eq!(marks(&[]), (vec![Mark::Bad], 0));
        assert_eq!(marks(std::slice::from_ref(&waits)), (vec![Mark::Note, Mark::Bad], 0));
        assert_eq!(marks(&[runs, waits]), (vec![Mark::Note], 1));
    }

    #[test]
    fn metrics_that_are_told_to_everybody_though_they_should_not_are_wrong() {
        let answer = |code| {
            let status = http::StatusCode::from_u16(code).unwrap();
            Ok(Answer { status, headers: http::HeaderMap::new(), body: bytes::Bytes::new() })
        };
        assert_eq!(of_bare("a", answer(401)).mark, Mark::Good);
        assert_eq!(of_bare("a", answer(200)).mark, Mark::Bad);
    }

    #[test]
    fn each_fault_of_an_exposition_is_a_line() {
        let well = Exposition { metrics: 2, series: 3, most_series: 9, faults: vec![] };
        let texts = |found: &Exposition| -> Vec<_> {
            of_exposition("a", found).into_iter().map(|one| (one.mark, one.text)).collect()
        };
        let good = "a: 2 metrics, all as they are documented; 3 series of at most 9".to_owned();
        assert_eq!(texts(&well), [(Mark::Good, good)]);
        let ill = Exposition { faults: vec!["x".into(), "y".into()], ..well };
        assert_eq!(texts(&ill), [(Mark::Bad, "a: x".to_owned()), (Mark::Bad, "a: y".to_owned())]);
    }
}
