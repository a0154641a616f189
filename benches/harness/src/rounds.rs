//! One round: measures each cache once, one after another, on the same pods.

use crate::{
    child::{self, CacheProcess, PATIENCE},
    cluster::Cluster,
    corpus::{APP_LABEL, APPS, Corpus, app},
    drain::Drained,
    lag::Lag,
    load,
    operator::{self, OperatorProcess},
    programs::Programs,
    samples::Samples,
    subject::{Listed, Synced},
    write::WriteResult,
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::{process::Command, time::sleep};

/// Updates per second for the lag figure.
const RATE: u32 = 500;
/// The duration of the updates, in seconds.
const LAG_SECONDS: u32 = 10;
/// The number of attempts to measure lag without an interrupted watch.
const LAG_PASSES: u32 = 3;
/// The time after which allocators and status writes are idle.
const SETTLE: Duration = Duration::from_secs(5);
/// The time limit for a relist after the API server's restart.
const RELIST_PATIENCE: Duration = Duration::from_secs(90);

/// A loaded cluster, and the programs that are measured on it.
#[derive(Debug)]
pub struct Rounds<'a> {
    /// The cluster with the pods.
    pub cluster: &'a Cluster,
    /// The pods.
    pub corpus: Corpus,
    /// The measured programs.
    pub programs: &'a Programs,
}

/// The lags of all caches (followers) during one run of the writer.
#[derive(Default)]
struct LagPass {
    lags: Vec<(String, Lag)>,
    /// A cache that missed events because its watch ended, and the number of events that it
    /// received.
    cut_short: Option<(String, u64)>,
}

impl Rounds<'_> {
    /// Measures each cache once.
    ///
    /// # Errors
    ///
    /// If a cache fails or holds a wrong number of objects.
    ///
    /// # Cost
    ///
    /// About three minutes with 50,000 pods on two cores.
    pub async fn round(&self, samples: &mut Samples) -> Result<()> {
        // Measures each list method together with its drain. The second of two lists finds an API
        // server that still frees memory of the first. So each of them comes first in one of two
        // turns.
        let mut twice = Samples::default();
        for turn in 0..2 {
            for strategy in ["whole", "streaming", "paged"] {
                if turn == 0 {
                    self.drain(strategy, &mut twice).await?;
                    self.warm(strategy, &mut twice).await?.end().await?;
                } else {
                    self.warm(strategy, &mut twice).await?.end().await?;
                    self.drain(strategy, &mut twice).await?;
                }
            }
            self.warm("auto", &mut twice).await?.end().await?;
        }
        samples.push_means(&twice);
        self.peer(self.go("controller-runtime"), "controller-runtime", samples)
            .await?
            .end()
            .await?;
        self.peer(self.kube_rs(), "kube-rs", samples).await?.end().await?;
        // These three caches keep running, so that the lag figure compares them on the same events.
        // The first list of `warm` was measured above, so its samples are dropped here.
        let mut followers = vec![
            ("warm", self.warm("auto", &mut Samples::default()).await?),
            ("typed", self.peer(self.go("typed"), "typed", samples).await?),
            ("dynamic", self.peer(self.go("dynamic"), "dynamic", samples).await?),
        ];
        self.lag(&mut followers, samples).await?;
        for (_, follower) in followers {
            follower.end().await?;
        }
        self.operator(samples).await
    }

    /// Receives all pods without measuring. The first list after loading finds a server that still
    /// frees memory.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub async fn rehearse(&self) -> Result<()> {
        self.drain("whole", &mut Samples::default()).await
    }

    async fn drain(&self, strategy: &str, samples: &mut Samples) -> Result<()> {
        let drained: Drained = child::once("drain", &mut self.bench(&["drain", strategy])).await?;
        samples.push(&format!("drain.{strategy}.seconds"), drained.seconds);
        samples.push(&format!("drain.{strategy}.cpu_seconds"), drained.cpu_seconds);
        #[expect(clippy::cast_precision_loss, reason = "some 300 MB")]
        let megabytes = drained.bytes as f64 / 1e6;
        samples.push(&format!("drain.{strategy}.megabytes"), megabytes);
        Ok(())
    }

    async fn warm(&self, strategy: &str, samples: &mut Samples) -> Result<CacheProcess> {
        let name = format!("warm.{strategy}");
        let mut subject = self.peer(self.bench(&["warm", strategy]), &name, samples).await?;
        if strategy == "auto" {
            self.list(&mut subject, "warm", samples).await?;
        }
        Ok(subject)
    }

    async fn peer(
        &self,
        mut command: Command,
        name: &str,
        samples: &mut Samples,
    ) -> Result<CacheProcess> {
        let (mut asked, synced): (CacheProcess, Synced) =
            CacheProcess::start(name, &mut command, PATIENCE).await?;
        let expected = u64::from(self.corpus.count);
        ensure!(synced.objects == expected, "{name} holds {} objects", synced.objects);
        samples.push(&format!("{name}.seconds"), synced.seconds);
        samples.push(&format!("{name}.cpu_seconds"), synced.cpu_seconds);
        samples.push(&format!("{name}.rss_mib"), synced.memory.rss_kb / 1024.0);
        samples.push(&format!("{name}.peak_mib"), synced.memory.peak_kb / 1024.0);
        if !name.starts_with("warm.") {
            self.list(&mut asked, name, samples).await?;
        }
        Ok(asked)
    }

    async fn list(
        &self,
        subject: &mut CacheProcess,
        name: &str,
        samples: &mut Samples,
    ) -> Result<()> {
        let apps: Vec<_> = (0..APPS).step_by(2).map(app).collect();
        let listed: Listed = subject.ask(&format!("list {APP_LABEL} {}", apps.join(","))).await?;
        let expected = u64::from(self.corpus.count / APPS);
        ensure!(listed.objects == expected, "{name} listed {} objects", listed.objects);
        samples.push(&format!("{name}.list.p50_seconds"), listed.p50_seconds);
        samples.push(&format!("{name}.list.p99_seconds"), listed.p99_seconds);
        Ok(())
    }

    /// Measures the lag of all caches. An overloaded API server can end the watch of any slow
    /// client. Then some caches have missed events, and the results of all are invalid. This
    /// function counts and repeats such a run.
    async fn lag(
        &self,
        followers: &mut [(&str, CacheProcess)],
        samples: &mut Samples,
    ) -> Result<()> {
        for pass in 0..LAG_PASSES {
            let seen = self.lag_pass(followers, samples).await?;
            if let Some((name, events)) = seen.cut_short {
                tracing::warn!(pass, name, events, "a watch was cut: measuring the lag again");
                samples.push("lag.passes_cut_short", 1.0);
                continue;
            }
            for (name, lag) in seen.lags {
                samples.push(&format!("{name}.lag.p50_seconds"), lag.p50_seconds);
                samples.push(&format!("{name}.lag.p99_seconds"), lag.p99_seconds);
            }
            return Ok(());
        }
        Ok(())
    }

    async fn lag_pass(
        &self,
        followers: &mut [(&str, CacheProcess)],
        samples: &mut Samples,
    ) -> Result<LagPass> {
        for (_, follower) in &mut *followers {
            let _ready: serde_json::Value = follower.ask("lag-start").await?;
        }
        let (rate, seconds) = (RATE.to_string(), LAG_SECONDS.to_string());
        let mut writer = self.bench(&["write", "--rate", &rate, "--seconds", &seconds]);
        writer.args(corpus_arguments(self.corpus));
        let written: WriteResult = child::once("write", &mut writer).await?;
        #[expect(clippy::cast_precision_loss, reason = "some 5,000")]
        samples.push("lag.updates_per_second", written.updates as f64 / written.seconds);
        // On a busy machine, events arrive seconds late. This wait for late events is not measured.
        sleep(Duration::from_secs(15)).await;
        let mut seen = LagPass::default();
        for (name, follower) in followers {
            let lag: Lag = follower.ask("lag-stop").await?;
            if lag.events < written.updates {
                seen.cut_short = Some(((*name).to_owned(), lag.events));
            }
            seen.lags.push(((*name).to_owned(), lag));
        }
        Ok(seen)
    }

    /// The forecast of `kubewarm plan` before the operator starts.
    async fn forecast(&self, samples: &mut Samples) -> Result<()> {
        let mut command = Command::new(&self.programs.kubewarm);
        command
            .args(["plan", "pods", "--namespace", operator::NAMESPACE, "--live", "--output=json"])
            // This subject has all permissions, so the forecast reports no missing permission.
            .args(["--subject", "group:system:masters", "--kubeconfig"])
            .arg(self.cluster.kubeconfig());
        let forecast: serde_json::Value = child::once("plan", &mut command).await?;
        let number = |field: &str| {
            let value = forecast["total"][field].as_f64();
            value.with_context(|| format!("no {field} in {forecast}"))
        };
        samples.push("forecast.objects", number("objects")?);
        samples.push("forecast.bytes", number("bytes")?);
        samples.push("forecast.seconds", number("timeToWarmMilliseconds")? / 1e3);
        Ok(())
    }

    /// Measures the forecast, and the operator's first sync, idle state and relist.
    ///
    /// # Errors
    ///
    /// If the operator is not ready in time, or does not relist.
    pub async fn operator(&self, samples: &mut Samples) -> Result<()> {
        let client = self.cluster.client();
        let target = json!({
            "name": "pods",
            "resource": "pods",
            "scope": {"type": "AllNamespaces"},
        });
        operator::declare(client, "pods", &[target]).await?;
        self.forecast(samples).await?;
        let mut operator =
            OperatorProcess::start(self.programs, self.cluster.kubeconfig(), "operator")?;
        operator.ready().await?;
        samples.push("operator.cpu_seconds", operator.usage()?.cpu_seconds);
        samples.push("operator.seconds", operator.warmup_seconds().await?);
        sleep(SETTLE).await;
        let rest = operator.usage()?;
        samples.push("operator.rss_kib", rest.rss_kib);
        samples.push("operator.first_peak_kib", rest.peak_kib);
        let per_object = rest.rss_kib / f64::from(self.corpus.count);
        samples.push("operator.kib_per_object", per_object);
        let pods = r#"resource="pods""#;
        samples.push("operator.objects", operator.metric("kubewarm_objects", pods).await?);
        samples.push("operator.store_bytes", operator.metric("kubewarm_store_bytes", pods).await?);
        samples.push("operator.relist_peak_kib", self.relist(&operator).await?);
        operator.end().await?;
        operator::withdraw(client, "pods").await
    }

    /// Forces a relist with 410 and returns the peak memory during the relist, in KiB.
    async fn relist(&self, operator: &OperatorProcess) -> Result<f64> {
        operator.reset_peak()?;
        operator.freeze()?;
        // The operator is frozen during these writes and the restart of the API server. So its
        // watch resumes from a version that the new watch cache lacks, and gets 410.
        for at in 0..20 {
            load::namespace(self.cluster.client(), &format!("gap-{}-{at}", fastrand::u32(..)))
                .await?;
        }
        let restarted = self.cluster.restart_apiserver();
        operator.thaw()?;
        restarted?;
        let end = Instant::now() + RELIST_PATIENCE;
        while operator.metric("kubewarm_upstream_relists_total", "").await? < 1.0 {
            ensure!(Instant::now() < end, "no relist within {RELIST_PATIENCE:?}");
            sleep(Duration::from_millis(100)).await;
        }
        sleep(SETTLE).await;
        Ok(operator.usage().context("the operator did not survive the relist")?.peak_kib)
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.bench);
        command.args(arguments).arg("--kubeconfig").arg(self.cluster.kubeconfig());
        command
    }

    fn go(&self, kind: &str) -> Command {
        let mut command = Command::new(&self.programs.go);
        command.arg(kind).arg(self.cluster.kubeconfig());
        command
    }

    fn kube_rs(&self) -> Command {
        let mut command = Command::new(&self.programs.kube_rs);
        command.arg(self.cluster.kubeconfig());
        command
    }
}

fn corpus_arguments(corpus: Corpus) -> [String; 4] {
    let shape = format!("{:?}", corpus.shape).to_lowercase();
    ["--pods".into(), corpus.count.to_string(), "--shape".into(), shape]
}
