//! Measures reads through kubewarm and the same reads at the API server.

use crate::{
    call, child,
    cluster::Cluster,
    corpus::{APP_LABEL, APPS, Corpus, NAMESPACES, app, namespace},
    custom, load,
    load_client::{Load, LoadClient, LoadResult},
    operator::{self, OperatorProcess},
    programs::Programs,
    quantile::median,
    samples::Samples,
    serving::{self, ReadApiCertificate},
    subject::Synced,
};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kubewarm_wire::{JSON, PROTOBUF};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{process::Command, time::sleep};

/// The ServiceAccount of the reader.
const ACCOUNT: &str = "reader";
/// The number of different pods that are read one by one, as a controller with a thousand objects
/// does.
const NAMES: u32 = 1_000;
/// The number of connections for reads of single pods.
const CONNECTIONS: usize = 16;
/// The duration of each kind of read.
const LASTS: Duration = Duration::from_secs(4);
/// The number of complete lists from kubewarm. A single list would be too short for the kernel's
/// clock of processor time, and the first list and the first watch wait for an access review.
const TIMES: u16 = 10;
/// The number of lists of all custom resources, which are fewer.
const CUSTOM_TIMES: u16 = 50;
/// The number of concurrent complete lists for the memory figure.
const CROWD: usize = 8;
/// The time after which allocators and status writes are idle.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// The time limit until the operator is ready. The first list of five million pods takes about five
/// minutes on two cores.
const READY_WITHIN: Duration = Duration::from_mins(20);

/// Whether kubewarm keeps `metadata.managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedFields {
    /// With managedFields, as the API server sends them. This is the default.
    Kept,
    /// Without managedFields.
    Dropped,
}

/// The media types, and the part that they add to a sample's name.
const MEDIA_TYPES: [(&str, &str); 2] = [("", JSON), ("protobuf.", PROTOBUF)];

/// One kind of reads.
struct ReadKind {
    /// The name of the samples.
    name: &'static str,
    accept: &'static str,
    connections: usize,
    paths: Vec<String>,
}

fn read_kinds(corpus: Corpus) -> [ReadKind; 4] {
    let step = (corpus.count / NAMES).max(1);
    let names = || (0..NAMES.min(corpus.count)).map(|index| pod_path(corpus, index * step));
    let by_app = |index| {
        format!("/api/v1/pods?labelSelector={APP_LABEL}%3D{}&resourceVersion=0", app(index))
    };
    let of_namespace =
        |index| format!("/api/v1/namespaces/{}/pods?resourceVersion=0", namespace(index));
    let kind = |name, accept, connections, paths| ReadKind { name, accept, connections, paths };
    [
        kind("get", JSON, CONNECTIONS, names().collect()),
        kind("protobuf.get", PROTOBUF, CONNECTIONS, names().collect()),
        kind("by_label", JSON, 2, (0..APPS).map(by_app).collect()),
        kind("namespace", JSON, 2, (0..NAMESPACES).map(of_namespace).collect()),
    ]
}

fn pod_path(corpus: Corpus, index: u32) -> String {
    let (namespace, name) = corpus.name(index);
    format!("/api/v1/namespaces/{namespace}/pods/{name}?resourceVersion=0")
}

/// GETs of all pods, in random order.
fn all_pods(corpus: Corpus) -> Load {
    let mut paths: Vec<_> = (0..corpus.count).map(|index| pod_path(corpus, index)).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut paths);
    Load { paths: paths.into(), connections: CONNECTIONS, lasts: LASTS }
}

/// A list of all pods.
const EVERYTHING: &str = "/api/v1/pods?resourceVersion=0";
/// A streaming list of all pods.
const STREAMING: &str = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan&timeoutSeconds=300";

/// A cluster with pods, a reader with access to all of them, and the programs.
pub struct Reading<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) corpus: Corpus,
    programs: &'a Programs,
    token: String,
    pub(crate) api: LoadClient,
}

impl std::fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("corpus", &self.corpus).finish_non_exhaustive()
    }
}

impl<'a> Reading<'a> {
    /// Creates the reader.
    ///
    /// # Errors
    ///
    /// If the API server rejects an object.
    pub async fn prepare(
        cluster: &'a Cluster,
        corpus: Corpus,
        programs: &'a Programs,
    ) -> Result<Self> {
        let client = cluster.client();
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", operator::NAMESPACE);
        let named = |name: &str| json!({"metadata": {"name": name}});
        load::create(client, &accounts, &named(ACCOUNT)).await?;
        let mut role = named(ACCOUNT);
        role["rules"] = json!([{
            "apiGroups": ["", custom::GROUP], "resources": ["pods", custom::PLURAL],
            "verbs": ["get", "list", "watch"],
        }]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        load::create(client, &format!("{rbac}/clusterroles"), &role).await?;
        let mut binding = named(ACCOUNT);
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT});
        binding["subjects"] = json!([{
            "kind": "ServiceAccount", "name": ACCOUNT, "namespace": operator::NAMESPACE,
        }]);
        load::create(client, &format!("{rbac}/clusterrolebindings"), &binding).await?;
        custom::create(client, corpus).await?;
        let token = cluster.token(operator::NAMESPACE, ACCOUNT).await?;
        let (address, authority) = cluster.apiserver()?;
        let api = LoadClient::new(address, &authority, &token)?;
        Ok(Self { cluster, corpus, programs, token, api })
    }

    /// Measures each kind of read at both servers, `rounds` times.
    ///
    /// # Errors
    ///
    /// If a response is not 200.
    ///
    /// # Cost
    ///
    /// About a minute a round with 50,000 pods.
    pub async fn measure(
        &self,
        managed: ManagedFields,
        rounds: u32,
        samples: &mut Samples,
    ) -> Result<()> {
        let prefix = match managed {
            ManagedFields::Kept => "reads",
            ManagedFields::Dropped => "reads.drop",
        };
        let served = MeasuredServer::start(self, managed, &[]).await?;
        for _ in 0..rounds {
            self.round(&served, prefix, samples).await?;
        }
        served.end(self.cluster).await?;
        if managed == ManagedFields::Kept {
            self.all_names(rounds, samples).await?;
        }
        Ok(())
    }

    /// Measures GETs of all pods with each value of `--authorization`.
    async fn all_names(&self, rounds: u32, samples: &mut Samples) -> Result<()> {
        let load = all_pods(self.corpus);
        for (name, authorization) in
            [("each_name", "reviews"), ("all_names", "shared-reviews"), ("rbac_names", "rbac")]
        {
            let flag = format!("--authorization={authorization}");
            let served = MeasuredServer::start(self, ManagedFields::Kept, &[&flag]).await?;
            for _ in 0..rounds {
                let api = self.api.send(load.clone()).await.context("at the API server")?;
                push(samples, &format!("reads.api.{name}"), &api);
                let cached = served.client.send(load.clone()).await.context("at kubewarm")?;
                push(samples, &format!("reads.{name}"), &cached);
            }
            served.end(self.cluster).await?;
        }
        Ok(())
    }

    /// New tokens of the reader.
    pub(crate) async fn tokens(&self, count: u32) -> Result<Vec<String>> {
        stream::iter(0..count)
            .map(|_| self.cluster.token(operator::NAMESPACE, ACCOUNT))
            .buffered(load::CONNECTIONS)
            .try_collect()
            .await
    }

    /// The API server's newest resource version of pods.
    pub(crate) async fn newest_version(&self) -> Result<String> {
        let list = call::get_json(self.cluster.client(), "/api/v1/pods?limit=1").await?;
        let version = list["metadata"]["resourceVersion"].as_str();
        Ok(version.context("a list without a version")?.to_owned())
    }

    async fn round(
        &self,
        served: &MeasuredServer,
        prefix: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        for ReadKind { name, accept, connections, paths } in read_kinds(self.corpus) {
            let load = Load { paths: paths.into(), connections, lasts: LASTS };
            let api = self.api.accepting(accept).send(load.clone()).await;
            push(samples, &format!("{prefix}.api.{name}"), &api.context("at the API server")?);
            let before = served.decisions().await?;
            let cached = served.client.accepting(accept).send(load).await.context("at kubewarm")?;
            push(samples, &format!("{prefix}.{name}"), &cached);
            if name == "get" {
                let share = served.decisions().await?.cached_since(before);
                samples.push(&format!("{prefix}.get.cached_share"), share);
            }
        }
        for (encoding, accept) in MEDIA_TYPES {
            let api = self.api.accepting(accept);
            self.api_lists(&api, &format!("{prefix}.api.{encoding}"), samples).await?;
            let client = served.client.accepting(accept);
            served.measure_lists(&client, &format!("{prefix}.{encoding}"), samples).await?;
        }
        let custom = served.lists(&served.client, &custom::path(), CUSTOM_TIMES).await?;
        samples.push(&format!("{prefix}.custom.cpu_seconds_per_gb"), custom.cpu_per_gigabyte());
        self.crowd(served, prefix, samples).await?;
        self.informers(served, prefix, samples).await
    }

    /// Measures a complete list and a streaming list of the API server.
    async fn api_lists(
        &self,
        client: &LoadClient,
        name: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        let before = self.cluster.apiserver_usage()?;
        let list = client.once(EVERYTHING).await?;
        let cpu = self.cluster.apiserver_usage()?.cpu_seconds - before.cpu_seconds;
        samples.push(&format!("{name}everything.seconds"), list.seconds);
        samples.push(&format!("{name}everything.cpu_seconds"), cpu);
        samples.push(&format!("{name}cpu_seconds_per_gb"), cpu / list.gigabytes);
        let streaming = client.until_synced(STREAMING).await?;
        samples.push(&format!("{name}streaming.seconds"), streaming.seconds);
        Ok(())
    }

    /// Measures the memory while several clients list all pods.
    async fn crowd(
        &self,
        served: &MeasuredServer,
        prefix: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        sleep(SETTLE).await;
        let before = served.operator.usage()?;
        samples.push(&format!("{prefix}.rss_kib"), before.rss_kib);
        served.operator.reset_peak()?;
        let paths: Arc<[String]> = [EVERYTHING.to_owned()].into();
        let load = Load { paths, connections: CROWD, lasts: LASTS };
        served.client.send(load).await?;
        let after = served.operator.usage()?;
        let more = (after.peak_kib - before.rss_kib) / 1024.0;
        samples.push(&format!("{prefix}.crowd.more_mib"), more);
        Ok(())
    }

    /// Measures unmodified informers of client-go and controller-runtime at either server.
    async fn informers(
        &self,
        served: &MeasuredServer,
        prefix: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        let (address, authority) = self.cluster.apiserver()?;
        for kind in ["dynamic", "metadata", "typed", "controller-runtime"] {
            let at_api = self.write_kubeconfig(address, &authority)?;
            let name = format!("{prefix}.api.{kind}.seconds");
            samples.push(&name, self.informer(kind, &at_api).await?);
            let at_kubewarm = self.write_kubeconfig(served.address, &served.authority)?;
            let name = format!("{prefix}.{kind}.seconds");
            samples.push(&name, self.informer(kind, &at_kubewarm).await?);
        }
        Ok(())
    }

    /// Writes the reader's kubeconfig for a server. The next call writes the same file.
    pub(crate) fn write_kubeconfig(
        &self,
        address: SocketAddr,
        authority: &Path,
    ) -> Result<PathBuf> {
        let kubeconfig = self.programs.logs.join("reader.kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(address, authority, &self.token).to_string())?;
        Ok(kubeconfig)
    }

    /// The program of the peers in Go.
    pub(crate) fn peer(&self) -> Command {
        Command::new(&self.programs.go)
    }

    /// The time in which an informer with this kubeconfig syncs, in seconds.
    async fn informer(&self, kind: &str, kubeconfig: &Path) -> Result<f64> {
        let mut command = self.peer();
        command.arg(kind).arg(kubeconfig);
        let (peer, synced): (_, Synced) =
            child::CacheProcess::start(kind, &mut command, child::PATIENCE).await?;
        let expected = u64::from(self.corpus.count);
        ensure!(synced.objects == expected, "{kind} holds {} objects", synced.objects);
        peer.end().await?;
        Ok(synced.seconds)
    }
}

/// Several equal lists.
struct RepeatedLists {
    /// The time of each list.
    seconds: Vec<f64>,
    gigabytes: f64,
    cpu_seconds: f64,
}

impl RepeatedLists {
    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu_seconds / self.gigabytes
    }
}

fn push(samples: &mut Samples, name: &str, result: &LoadResult) {
    samples.push(&format!("{name}.per_second"), result.per_second);
    samples.push(&format!("{name}.p50_seconds"), result.p50);
    samples.push(&format!("{name}.p99_seconds"), result.p99);
}

/// A kubeconfig with a token.
pub(crate) fn kubeconfig_of(address: SocketAddr, authority: &Path, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://{address}"), "certificate-authority": authority,
        }}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    })
}

/// An operator with all pods in its store, and its read address.
pub(crate) struct MeasuredServer {
    pub(crate) operator: OperatorProcess,
    pub(crate) address: SocketAddr,
    pub(crate) authority: PathBuf,
    pub(crate) client: LoadClient,
}

/// The number of access decisions, and the number of decisions without an access review.
#[derive(Clone, Copy, Debug)]
struct Decisions {
    all: f64,
    cached: f64,
}

impl Decisions {
    fn cached_since(self, before: Self) -> f64 {
        (self.cached - before.cached) / (self.all - before.all)
    }
}

impl MeasuredServer {
    pub(crate) async fn start(
        reading: &Reading<'_>,
        managed: ManagedFields,
        flags: &[&str],
    ) -> Result<Self> {
        let client = reading.cluster.client();
        let policy = if managed == ManagedFields::Kept { "Keep" } else { "Drop" };
        let target = |group: &str, resource: &str| {
            json!({
                "name": resource, "group": group, "resource": resource,
                "scope": {"type": "AllNamespaces"}, "projection": {"managedFields": policy},
            })
        };
        let targets = [target("", "pods"), target(custom::GROUP, custom::PLURAL)];
        operator::declare(client, "reads", &targets).await?;
        // One user opens a connection for each of its 1,000 watches; the defaults allow it 256.
        let limits = [&["--max-connections", "2048", "--user-quota", "100"], flags].concat();
        let kubeconfig = reading.cluster.kubeconfig();
        Self::launch(reading.programs, kubeconfig, &reading.token, &limits).await
    }

    /// Starts an operator with a read address, and waits until it is ready and idle.
    pub(crate) async fn launch(
        programs: &Programs,
        kubeconfig: &Path,
        token: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let certificate = ReadApiCertificate::create(&programs.logs, "reads")?;
        let address = serving::free_address()?;
        let serving = certificate.flags(address);
        let more: Vec<_> =
            serving.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let mut operator = OperatorProcess::start_with(programs, kubeconfig, "reads", &more)?;
        operator.ready_within(READY_WITHIN).await?;
        sleep(SETTLE).await;
        let authority = certificate.authority().to_owned();
        let client = LoadClient::new(address, &authority, token)?;
        Ok(Self { operator, address, authority, client })
    }

    async fn decisions(&self) -> Result<Decisions> {
        const DECISIONS: &str = "kubewarm_read_authorizations_total";
        Ok(Decisions {
            all: self.operator.metric(DECISIONS, "").await?,
            cached: self.operator.metric(DECISIONS, r#"source="cache""#).await?,
        })
    }

    /// Measures complete lists and streaming lists of all pods.
    async fn measure_lists(
        &self,
        client: &LoadClient,
        name: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        let lists = self.lists(client, EVERYTHING, TIMES).await?;
        samples.push(&format!("{name}everything.seconds"), median(&lists.seconds));
        let times = f64::from(TIMES);
        samples.push(&format!("{name}everything.cpu_seconds"), lists.cpu_seconds / times);
        samples.push(&format!("{name}everything.megabytes"), lists.gigabytes / times * 1e3);
        samples.push(&format!("{name}cpu_seconds_per_gb"), lists.cpu_per_gigabyte());
        let mut seconds = Vec::new();
        for _ in 0..TIMES {
            seconds.push(client.until_synced(STREAMING).await?.seconds);
        }
        samples.push(&format!("{name}streaming.seconds"), median(&seconds));
        Ok(())
    }

    async fn lists(&self, client: &LoadClient, path: &str, times: u16) -> Result<RepeatedLists> {
        let before = self.operator.usage()?;
        let (mut seconds, mut gigabytes) = (Vec::new(), 0.0);
        for _ in 0..times {
            let list = client.once(path).await?;
            seconds.push(list.seconds);
            gigabytes += list.gigabytes;
        }
        let cpu_seconds = self.operator.usage()?.cpu_seconds - before.cpu_seconds;
        Ok(RepeatedLists { seconds, gigabytes, cpu_seconds })
    }

    pub(crate) async fn end(self, cluster: &Cluster) -> Result<()> {
        self.operator.end().await?;
        operator::withdraw(cluster.client(), "reads").await
    }
}
