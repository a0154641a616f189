//! What the servers spend during a scene: requests, processor time and memory.

use super::replica::MeasuredReplica;
use crate::{call, cluster::Cluster, exposition, usage::Usage};
use anyhow::Result;
use std::{collections::BTreeMap, ops::Sub};

/// The kinds that the agents read.
const KINDS: [&str; 3] = ["resource=\"pods\"", "resource=\"services\"", "resource=\"namespaces\""];

/// Requests at the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RequestCounts {
    /// LISTs of the agents' kinds, by anyone.
    pub(crate) lists: f64,
    /// Watches of these kinds that were opened.
    pub(crate) watches: f64,
    pub(crate) token_reviews: f64,
    pub(crate) access_reviews: f64,
    /// Requests of any kind, the bench's own among them.
    pub(crate) all: f64,
}

impl RequestCounts {
    /// Reads the API server's metrics.
    fn of_metrics(text: &str) -> Self {
        const REQUESTS: &str = "apiserver_request_total";
        let all = |labels: &[&str]| exposition::sum(text, REQUESTS, labels);
        let of_kinds = |name, verb| {
            KINDS.map(|kind| exposition::sum(text, name, &[kind, verb])).iter().sum::<f64>()
        };
        Self {
            lists: of_kinds(REQUESTS, "verb=\"LIST\""),
            // The first metric counts a watch when the watch ends.
            watches: of_kinds(REQUESTS, "verb=\"WATCH\"")
                + of_kinds("apiserver_longrunning_requests", "verb=\"WATCH\""),
            token_reviews: all(&["resource=\"tokenreviews\""]),
            access_reviews: all(&["resource=\"subjectaccessreviews\""]),
            all: all(&[]),
        }
    }
}

impl Sub for RequestCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            lists: self.lists - other.lists,
            watches: self.watches - other.watches,
            token_reviews: self.token_reviews - other.token_reviews,
            access_reviews: self.access_reviews - other.access_reviews,
            all: self.all - other.all,
        }
    }
}

/// The counters of all servers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ServerCounters {
    requests: RequestCounts,
    apiserver: (u32, Usage),
    /// The replicas of kubewarm, by process.
    replicas: BTreeMap<u32, Usage>,
}

/// What the servers spent between two moments. A process that started in between spent everything
/// since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServerCosts {
    pub(crate) requests: RequestCounts,
    pub(crate) apiserver_cpu_seconds: f64,
    /// Growth of resident memory; `None` if the API server restarted.
    pub(crate) apiserver_mib: Option<f64>,
    /// Of all running replicas of kubewarm; `None` without replicas.
    pub(crate) kubewarm_cpu_seconds: Option<f64>,
    /// Of all running replicas; `None` if one of them started in between, or there are none.
    pub(crate) kubewarm_mib: Option<f64>,
}

impl ServerCounters {
    /// Reads the counters at the beginning of a scene. The processor time comes last, because the
    /// API server works for its metrics.
    pub(crate) async fn begin(cluster: &Cluster, replicas: &[MeasuredReplica]) -> Result<Self> {
        let requests = read_requests(cluster).await?;
        Self::with_usage(requests, cluster, replicas)
    }

    /// Reads the counters at the end of a scene.
    pub(crate) async fn end(cluster: &Cluster, replicas: &[MeasuredReplica]) -> Result<Self> {
        let usage = Self::with_usage(RequestCounts::default(), cluster, replicas)?;
        Ok(Self { requests: read_requests(cluster).await?, ..usage })
    }

    fn with_usage(
        requests: RequestCounts,
        cluster: &Cluster,
        replicas: &[MeasuredReplica],
    ) -> Result<Self> {
        let apiserver = (cluster.apiserver_pid()?, cluster.apiserver_usage()?);
        let replicas = replicas
            .iter()
            .map(|MeasuredReplica { operator, .. }| Ok((operator.pid(), operator.usage()?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        Ok(Self { requests, apiserver, replicas })
    }

    /// What the servers spent since `before`.
    pub(crate) fn costs_since(&self, before: &Self) -> ServerCosts {
        let ((pid, now), (old_pid, then)) = (self.apiserver, before.apiserver);
        let is_same = pid == old_pid;
        let (old_requests, then) = if is_same {
            (before.requests, then)
        } else {
            (RequestCounts::default(), Usage::default())
        };
        let kubewarm = self.replicas.iter().map(|(pid, now)| (now, before.replicas.get(pid)));
        let cpu_seconds = kubewarm
            .clone()
            .map(|(now, then)| now.cpu_seconds - then.map_or(0.0, |then| then.cpu_seconds));
        let mib = kubewarm.map(|(now, then)| Some((now.rss_kib - then?.rss_kib) / 1024.0));
        let has_replicas = !self.replicas.is_empty();
        ServerCosts {
            requests: self.requests - old_requests,
            apiserver_cpu_seconds: now.cpu_seconds - then.cpu_seconds,
            apiserver_mib: is_same.then(|| (now.rss_kib - then.rss_kib) / 1024.0),
            kubewarm_cpu_seconds: has_replicas.then(|| cpu_seconds.sum()),
            kubewarm_mib: mib.sum::<Option<f64>>().filter(|_| has_replicas),
        }
    }
}

async fn read_requests(cluster: &Cluster) -> Result<RequestCounts> {
    Ok(RequestCounts::of_metrics(&call::get_text(cluster.client(), "/metrics").await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"
apiserver_request_total{code="200",resource="pods",scope="cluster",verb="LIST"} 7
apiserver_request_total{code="200",resource="nodes",scope="cluster",verb="LIST"} 90
apiserver_request_total{code="200",resource="services",scope="cluster",verb="WATCH"} 2
apiserver_request_total{code="201",resource="tokenreviews",verb="POST"} 5
apiserver_request_total{code="429",resource="subjectaccessreviews",verb="POST"} 3
apiserver_request_total{code="201",resource="subjectaccessreviews",verb="POST"} 8
apiserver_longrunning_requests{resource="pods",verb="WATCH"} 4
"#;

    fn counters(pid: u32, cpu_seconds: f64, rss_kib: f64, replicas: &[u32]) -> ServerCounters {
        let usage = Usage { rss_kib, peak_kib: rss_kib, cpu_seconds };
        ServerCounters {
            requests: RequestCounts::of_metrics(METRICS),
            apiserver: (pid, usage),
            replicas: replicas.iter().map(|&pid| (pid, usage)).collect(),
        }
    }

    #[test]
    fn requests_are_counted_by_kind_and_open_watches_too() {
        let expected = RequestCounts {
            lists: 7.0,
            watches: 6.0,
            token_reviews: 5.0,
            access_reviews: 11.0,
            all: 115.0,
        };
        assert_eq!(RequestCounts::of_metrics(METRICS), expected);
    }

    #[test]
    fn a_process_that_goes_on_spends_the_difference() {
        let costs =
            counters(1, 5.0, 4096.0, &[8, 9]).costs_since(&counters(1, 3.0, 1024.0, &[8, 9]));
        assert_eq!(costs.requests, RequestCounts::default());
        let actual = (costs.apiserver_mib, costs.kubewarm_cpu_seconds, costs.kubewarm_mib);
        assert_eq!(actual, (Some(3.0), Some(4.0), Some(6.0)));
        assert!((costs.apiserver_cpu_seconds - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_new_process_spends_everything_since_its_start() {
        let costs = counters(2, 5.0, 4096.0, &[9]).costs_since(&counters(1, 3.0, 1024.0, &[8]));
        assert!((costs.requests.all - 115.0).abs() < f64::EPSILON);
        assert!((costs.apiserver_cpu_seconds - 5.0).abs() < f64::EPSILON);
        let actual = (costs.apiserver_mib, costs.kubewarm_cpu_seconds, costs.kubewarm_mib);
        assert_eq!(actual, (None, Some(5.0), None));
    }
}
