//! The complete run: measures all figures of docs/performance.md on both shapes of pods and on many
//! small informers, and writes the document.

use crate::{
    cluster::Cluster,
    consistency,
    copies::CopyBench,
    corpus::{Corpus, Shape},
    forwarded_writes, informers, load, managers, operator,
    programs::Programs,
    reads::{ManagedFields, Reading},
    report::{Findings, Origin},
    rest,
    rounds::Rounds,
    samples::Samples,
    watchers,
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

/// The options of the run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of pods.
    pub pods: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The path of the document that the run writes.
    pub out: PathBuf,
}

/// Measures every figure and writes the document.
///
/// # Errors
///
/// The first step that failed. The samples until then stay in the file [`Programs::samples`].
///
/// # Cost
///
/// About 80 minutes with 50,000 pods and 3 rounds on two cores.
pub async fn run(plan: &Plan, programs: &Programs) -> Result<()> {
    // Each process inherits this limit. The operator opens up to 2,000 watches at the API server,
    // and clients open 1,000 watches at either server.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    ensure!(files.is_none_or(|files| files >= 8192), "too few open files: ulimit -n 8192");
    fs::create_dir_all(&programs.logs)?;
    let mut findings = Findings {
        origin: Origin::of_this_run(plan.pods, plan.rounds),
        plain: Samples::default(),
        status: Samples::default(),
        since: BTreeMap::new(),
    };
    for shape in [Shape::Plain, Shape::Status] {
        let result = measure(shape, plan, programs, &mut findings).await;
        fs::write(programs.samples(), serde_json::to_vec_pretty(&findings)?)?;
        result.with_context(|| format!("on {shape:?} pods"))?;
    }
    findings.write_document(&plan.out)?;
    tracing::info!(out = %plan.out.display(), "written");
    Ok(())
}

async fn measure(
    shape: Shape,
    plan: &Plan,
    programs: &Programs,
    findings: &mut Findings,
) -> Result<()> {
    let corpus = Corpus { shape, count: plan.pods };
    let samples = match shape {
        Shape::Plain => &mut findings.plain,
        Shape::Status => &mut findings.status,
    };
    let started = Instant::now();
    let cluster = loaded(corpus, programs).await?;
    let rounds = Rounds { cluster: &cluster, corpus, programs };
    rounds.rehearse().await?;
    for round in 1..=plan.rounds {
        rounds.round(samples).await.with_context(|| format!("in round {round}"))?;
        tracing::info!(round, of = plan.rounds, seconds = started.elapsed().as_secs(), "measured");
    }
    let reading = Reading::prepare(&cluster, corpus, programs).await?;
    reads(&reading, plan.rounds, samples).await?;
    if shape == Shape::Plain {
        watchers(&reading, plan.rounds, samples).await?;
        forwarded_writes(&reading, plan.rounds, samples).await?;
        managers(&reading, plan.rounds, samples).await?;
    }
    drop(cluster);
    if shape == Shape::Plain {
        start(plan.rounds, programs, samples).await?;
        full_informers(plan.rounds, programs, samples).await?;
        idle_informers(programs, samples).await?;
        consistencies(programs, samples).await?;
        copies(plan.pods, plan.rounds, programs, samples).await?;
        at_rest(programs, samples).await?;
    }
    Ok(())
}

/// Starts a control plane with the operator's CRD and these pods.
///
/// # Errors
///
/// If it does not start, or refuses an object.
pub async fn loaded(corpus: Corpus, programs: &Programs) -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    let started = Instant::now();
    load::pods(cluster.client(), corpus).await?;
    let (pods, shape) = (corpus.count, corpus.shape);
    tracing::info!(pods, ?shape, seconds = started.elapsed().as_secs(), "loaded");
    Ok(cluster)
}

/// Measures reads, first with managedFields, which is the default, then without them.
///
/// # Errors
///
/// If a step fails.
pub async fn reads(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    for managed in [ManagedFields::Kept, ManagedFields::Dropped] {
        reading.measure(managed, rounds, samples).await?;
        tracing::info!(?managed, "measured reads");
    }
    Ok(())
}

/// Measures a thousand watches.
///
/// # Errors
///
/// If a step fails.
pub async fn watchers(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    watchers::measure(reading, rounds, samples).await?;
    tracing::info!("measured watches");
    Ok(())
}

/// Measures forwarded writes.
///
/// # Errors
///
/// If a step fails.
pub async fn forwarded_writes(
    reading: &Reading<'_>,
    rounds: u32,
    samples: &mut Samples,
) -> Result<()> {
    forwarded_writes::measure(reading, rounds, samples).await?;
    tracing::info!("measured forwarded writes");
    Ok(())
}

/// Measures managers of controller-runtime.
///
/// # Errors
///
/// If a step fails.
pub async fn managers(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    managers::measure(reading, rounds, samples).await?;
    tracing::info!("measured managers");
    Ok(())
}

/// Measures an operator without a profile and with a small one, on a control plane of its own.
///
/// # Errors
///
/// If a step fails.
pub async fn start(rounds: u32, programs: &Programs, samples: &mut Samples) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    informers::create_few(cluster.client()).await?;
    // The first start is not counted, because the API server prepares a kind at the kind's first
    // request.
    informers::measure_start(&cluster, programs, &mut Samples::default()).await?;
    for _ in 0..rounds {
        informers::measure_start(&cluster, programs, samples).await?;
    }
    tracing::info!("measured the start");
    Ok(())
}

/// Measures 200 informers of small objects, on a control plane of its own.
///
/// # Errors
///
/// If a step fails.
pub async fn full_informers(rounds: u32, programs: &Programs, samples: &mut Samples) -> Result<()> {
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    informers::create_full(cluster.client()).await?;
    for _ in 0..rounds {
        informers::measure_full(&cluster, programs, samples).await?;
    }
    tracing::info!("measured 200 informers");
    Ok(())
}

/// Measures a second replica that copies its stores, on control planes of its own: with these pods,
/// and with 200 informers.
///
/// # Errors
///
/// If a step fails.
pub async fn copies(
    pods: u32,
    rounds: u32,
    programs: &Programs,
    samples: &mut Samples,
) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    let cluster = loaded(Corpus { shape: Shape::Plain, count: pods }, programs).await?;
    let all_pods =
        [json!({"name": "pods", "resource": "pods", "scope": {"type": "AllNamespaces"}})];
    let bench = CopyBench {
        cluster: &cluster,
        programs,
        name: "pods",
        targets: &all_pods,
        label: "resource=\"pods\"",
    };
    bench.measure(rounds, samples).await?;
    drop(cluster);
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    informers::create_full(cluster.client()).await?;
    let targets = informers::full_targets();
    let label = format!("group=\"{}\"", informers::GROUP);
    let bench = CopyBench {
        cluster: &cluster,
        programs,
        name: "informers",
        targets: &targets,
        label: &label,
    };
    bench.measure(rounds, samples).await
}

/// Measures 2,000 idle informers, on a control plane of its own. It runs once, because it takes
/// over a minute and varies little.
///
/// # Errors
///
/// If a step fails.
pub async fn idle_informers(programs: &Programs, samples: &mut Samples) -> Result<()> {
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    informers::create_idle(cluster.client()).await?;
    informers::measure_idle(&cluster, programs, samples).await?;
    tracing::info!("measured 2,000 idle informers");
    Ok(())
}

/// Measures what kubewarm costs the API server while no object changes, on a control plane of its
/// own. It runs once, because it takes ten minutes.
///
/// # Errors
///
/// If a step fails.
pub async fn at_rest(programs: &Programs, samples: &mut Samples) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    rest::create(cluster.client()).await?;
    rest::measure(&cluster, programs, samples).await
}

/// Measures what each consistency of reads costs, on a control plane of its own. It runs once,
/// because it takes eight minutes.
///
/// # Errors
///
/// If a step fails.
pub async fn consistencies(programs: &Programs, samples: &mut Samples) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    consistency::create(cluster.client()).await?;
    consistency::measure(&cluster, programs, samples).await?;
    tracing::info!("measured consistencies");
    Ok(())
}
