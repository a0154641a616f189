//! The whole run: both shapes of pods, all rounds, the cells, and the document.

use crate::{
    cells,
    cluster::Cluster,
    corpus::{Corpus, Shape},
    load, operator,
    programs::Programs,
    reads::{ManagedFields, Reading},
    report::{Findings, Origin},
    rounds::Rounds,
    samples::Samples,
    watchers,
};
use anyhow::{Context, Result, ensure};
use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

/// What the run should be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many pods.
    pub pods: u32,
    /// How many rounds the medians are of.
    pub rounds: u32,
    /// Where the document goes.
    pub out: PathBuf,
}

/// Measures everything and writes the document.
///
/// # Errors
///
/// The first thing that failed; the samples until then are kept, [`Programs::samples`].
///
/// # Cost
///
/// About 25 minutes with 50,000 pods and 3 rounds on two cores.
pub async fn run(plan: &Plan, programs: &Programs) -> Result<()> {
    // 2,000 watches of the operator, and as many at the API server.
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
    let out = plan.out.display();
    fs::write(&plan.out, findings.to_markdown()).with_context(|| format!("cannot write {out}"))?;
    tracing::info!(%out, "written");
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
    }
    drop(cluster);
    if shape == Shape::Plain {
        start(plan.rounds, programs, samples).await?;
        full_cells(plan.rounds, programs, samples).await?;
        idle_cells(programs, samples).await?;
    }
    Ok(())
}

/// A control plane with the operator's CRD and these pods.
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

/// The figures of reads: without managedFields as by default, and with them.
///
/// # Errors
///
/// If a step fails.
pub async fn reads(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    for managed in [ManagedFields::Dropped, ManagedFields::Kept] {
        reading.measure(managed, rounds, samples).await?;
        tracing::info!(?managed, "measured reads");
    }
    Ok(())
}

/// The figures of a thousand watches.
///
/// # Errors
///
/// If a step fails.
pub async fn watchers(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    watchers::measure(reading, rounds, samples).await?;
    tracing::info!("measured watches");
    Ok(())
}

/// The figures of an operator that has next to nothing to do, on a control plane of their own.
///
/// # Errors
///
/// If a step fails.
pub async fn start(rounds: u32, programs: &Programs, samples: &mut Samples) -> Result<()> {
    fs::create_dir_all(&programs.logs)?;
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    cells::create_few(cluster.client()).await?;
    // At first the server itself has to make ready what it is asked for.
    cells::measure_start(&cluster, programs, &mut Samples::default()).await?;
    for _ in 0..rounds {
        cells::measure_start(&cluster, programs, samples).await?;
    }
    tracing::info!("measured the start");
    Ok(())
}

/// The figures of 200 cells, on a control plane of their own: they are about many small things.
///
/// # Errors
///
/// If a step fails.
pub async fn full_cells(rounds: u32, programs: &Programs, samples: &mut Samples) -> Result<()> {
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    cells::create_full(cluster.client()).await?;
    for _ in 0..rounds {
        cells::measure_full(&cluster, programs, samples).await?;
    }
    tracing::info!("measured 200 cells");
    Ok(())
}

/// The figures of 2,000 idle cells, once: they last over a minute, and hardly vary.
///
/// # Errors
///
/// If a step fails.
pub async fn idle_cells(programs: &Programs, samples: &mut Samples) -> Result<()> {
    let cluster = Cluster::start().await?;
    operator::install(cluster.client(), &programs.kubewarm).await?;
    cells::create_idle(cluster.client()).await?;
    cells::measure_idle(&cluster, programs, samples).await?;
    tracing::info!("measured 2,000 idle cells");
    Ok(())
}
