//! The bench's command line.

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use kubewarm_bench::{
    all::{self, Plan},
    call,
    cluster::Cluster,
    corpus::{Corpus, Shape},
    drain::{self, Strategy},
    load,
    outage::{self, OutagePlan},
    programs::Programs,
    reads::Reading,
    report::{Findings, Origin, Part},
    rounds::Rounds,
    samples::Samples,
    scale::{self, ScaleLimits, ScriptedCluster},
    subject, warm, write,
};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

/// Measures kubewarm, its peers and the lower bound of the API server.
#[derive(Debug, Parser)]
struct BenchCli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start control planes, measure everything, write docs/performance.md.
    All {
        /// Pods to load; a multiple of 200.
        #[arg(long, default_value_t = 50_000)]
        pods: u32,
        /// Rounds that medians are taken of.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// The document.
        #[arg(long, default_value = "docs/performance.md")]
        out: PathBuf,
    },
    /// Write the document again from the samples of the last run.
    Report {
        /// The document.
        #[arg(long, default_value = "docs/performance.md")]
        out: PathBuf,
    },
    /// Start a control plane as the figures use it, print the path of its kubeconfig, and run until
    /// Ctrl-C.
    Up,
    /// Create the pods.
    Load {
        #[command(flatten)]
        on: On,
        #[command(flatten)]
        pods: Pods,
    },
    /// Receive all pods and drop them.
    Drain {
        /// The list method.
        strategy: Strategy,
        #[command(flatten)]
        on: On,
    },
    /// Run kubewarm's engine on all pods. It answers commands on standard input when it has synced.
    Warm {
        /// The list method.
        strategy: Strategy,
        #[command(flatten)]
        on: On,
    },
    /// Update pods at a steady rate.
    Write {
        /// Updates a second.
        #[arg(long, default_value_t = 500)]
        rate: u32,
        /// The duration in seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
        #[command(flatten)]
        on: On,
        #[command(flatten)]
        pods: Pods,
    },
    /// Measure the operator on pods, on a control plane of its own: first sync, idle state, relist.
    Operator {
        #[command(flatten)]
        pods: Pods,
    },
    /// Measure reads through the operator and at the API server, on a control plane of their own.
    Reads(Apart),
    /// Measure a thousand watches through the operator and at the API server, on a control plane of
    /// their own.
    Watchers(Apart),
    /// Measure writes that the operator forwards, and the same writes at the API server, on a
    /// control plane of their own.
    ForwardedWrites(Apart),
    /// Measure managers of controller-runtime that keep all pods, their metadata or nothing in
    /// memory, on a control plane of their own.
    Managers(Apart),
    /// Measure the operator without a profile and with a small one, on a control plane of its own.
    Start {
        /// The path of another build of kubewarm.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// The number of rounds.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
    },
    /// Measure the operator with 200 informers, on a control plane of its own.
    Informers,
    /// Measure a second replica that copies its stores, on control planes of its own.
    Copies {
        /// The number of pods; a multiple of 200.
        #[arg(long, default_value_t = 50_000)]
        pods: u32,
        /// The number of rounds.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// The document of the last complete run, which is rewritten with these figures.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Measure the operator with 2,000 idle informers, on a control plane of its own.
    Idle,
    /// Measure reads of each consistency, on a control plane of its own.
    Consistency,
    /// Measure the API server while no object changes, on a control plane of its own.
    Rest,
    /// Measure an agent on each node, directly at an API server and through kubewarm. It starts a
    /// control plane.
    Outage(OutagePlan),
    /// Write the document of the agents again from the samples of the last run.
    OutageReport {
        /// The document. The chart is written next to it.
        #[arg(long, default_value = "docs/outage.md")]
        out: PathBuf,
    },
    /// Measure how the operator grows with objects, watches and profiles, at a scripted server.
    Scale(ScaleLimits),
    /// Run the scripted server. It prints its address, and answers commands on standard input.
    ScriptedServer(ScriptedCluster),
}

/// Options of a part that runs alone.
#[derive(Debug, Args)]
struct Apart {
    #[command(flatten)]
    pods: Pods,
    /// The number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The document of the last complete run, which is rewritten with these figures.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The cluster.
#[derive(Debug, Args)]
struct On {
    /// A kubeconfig with the rights of cluster-admin.
    #[arg(long)]
    kubeconfig: PathBuf,
}

/// The pods.
#[derive(Debug, Args)]
struct Pods {
    /// The number of pods; a multiple of 200.
    #[arg(long, default_value_t = 50_000)]
    pods: u32,
    /// The shape of the pods.
    #[arg(long, value_enum, default_value_t = Shape::Plain)]
    shape: Shape,
}

impl Pods {
    fn corpus(&self) -> Corpus {
        Corpus { shape: self.shape, count: self.pods }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = EnvFilter::new("kubewarm_bench=info,kubewarm_cache::informer=info,kubewarm=warn");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let programs = Programs::next_to_this_one()?;
    match BenchCli::parse().command {
        Command::All { pods, rounds, out } => {
            ensure_writable(&out)?;
            all::run(&Plan { pods, rounds, out }, &programs).await
        }
        Command::Report { out } => report(&programs, &out),
        Command::Up => {
            let cluster = Cluster::start().await?;
            subject::reply(&serde_json::json!({ "kubeconfig": cluster.kubeconfig() })).await?;
            Ok(tokio::signal::ctrl_c().await?)
        }
        Command::Load { on, pods } => {
            load::pods(&call::connect(&on.kubeconfig).await?, pods.corpus()).await
        }
        Command::Drain { strategy, on } => {
            let client = call::connect(&on.kubeconfig).await?;
            subject::reply(&drain::drain(&client, strategy).await?).await
        }
        Command::Warm { strategy, on } => warm::serve(&on.kubeconfig, strategy).await,
        Command::Write { rate, seconds, on, pods } => {
            let client = call::connect(&on.kubeconfig).await?;
            subject::reply(&write::updates(&client, pods.corpus(), rate, seconds).await?).await
        }
        Command::Operator { pods } => {
            let mut samples = Samples::default();
            let corpus = pods.corpus();
            let cluster = all::loaded(corpus, &programs).await?;
            let rounds = Rounds { cluster: &cluster, corpus, programs: &programs };
            rounds.operator(&mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Reads(apart) => by_itself("reads", apart, &programs, all::reads).await,
        Command::Watchers(apart) => by_itself("watchers", apart, &programs, all::watchers).await,
        Command::ForwardedWrites(apart) => {
            by_itself("forwarded-writes", apart, &programs, all::forwarded_writes).await
        }
        Command::Managers(apart) => by_itself("managers", apart, &programs, all::managers).await,
        Command::Start { program, rounds } => {
            let mut samples = Samples::default();
            let kubewarm = program.unwrap_or_else(|| programs.kubewarm.clone());
            let programs = Programs { kubewarm, ..programs };
            all::start(rounds, &programs, &mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Informers => {
            let mut samples = Samples::default();
            all::full_informers(1, &programs, &mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Copies { pods, rounds, out } => {
            let mut samples = Samples::default();
            all::copies(pods, rounds, &programs, &mut samples).await?;
            if let Some(out) = out {
                let origin = Origin::of_this_run(pods, rounds);
                add("copies", Part { origin, plain: samples.clone() }, &programs, &out)?;
            }
            subject::reply(&samples).await
        }
        Command::Idle => {
            let mut samples = Samples::default();
            all::idle_informers(&programs, &mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Consistency => {
            let mut samples = Samples::default();
            all::consistencies(&programs, &mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Rest => {
            let mut samples = Samples::default();
            all::at_rest(&programs, &mut samples).await?;
            subject::reply(&samples).await
        }
        Command::Outage(plan) => {
            ensure_writable(plan.out())?;
            outage::run(&plan, &programs).await
        }
        Command::OutageReport { out } => outage::report(&programs, &out),
        Command::Scale(limits) => scale::run(&limits, &programs).await,
        Command::ScriptedServer(cluster) => scale::serve(cluster).await,
    }
}

async fn reading<'a>(
    cluster: &'a Cluster,
    pods: &Pods,
    programs: &'a Programs,
) -> Result<Reading<'a>> {
    std::fs::create_dir_all(&programs.logs)?;
    Reading::prepare(cluster, pods.corpus(), programs).await
}

fn report(programs: &Programs, out: &Path) -> Result<()> {
    read_findings(programs)?.write_document(out)
}

/// Measures a part on a control plane of its own.
async fn by_itself(
    command: &str,
    Apart { pods, rounds, out }: Apart,
    programs: &Programs,
    measure: impl AsyncFnOnce(&Reading<'_>, u32, &mut Samples) -> Result<()>,
) -> Result<()> {
    let is_plain = pods.shape == Shape::Plain;
    ensure!(out.is_none() || is_plain, "--out has a column for {command} of plain pods only");
    if let Some(out) = &out {
        ensure_writable(out)?;
    }
    let mut samples = Samples::default();
    let cluster = all::loaded(pods.corpus(), programs).await?;
    let reading = reading(&cluster, &pods, programs).await?;
    measure(&reading, rounds, &mut samples).await?;
    if let Some(out) = out {
        let origin = Origin::of_this_run(pods.pods, rounds);
        add(command, Part { origin, plain: samples.clone() }, programs, &out)?;
    }
    subject::reply(&samples).await
}

/// Adds the results of one command to the results of the last complete run.
fn add(command: &str, part: Part, programs: &Programs, out: &Path) -> Result<()> {
    let mut findings = read_findings(programs)?;
    findings.since.insert(command.to_owned(), part);
    std::fs::write(programs.samples(), serde_json::to_vec_pretty(&findings)?)?;
    findings.write_document(out)
}

fn read_findings(programs: &Programs) -> Result<Findings> {
    let samples = programs.samples();
    let json = std::fs::read(&samples)
        .with_context(|| format!("no samples in {}: run `all` first", samples.display()))?;
    Ok(serde_json::from_slice(&json)?)
}

/// Fails before a long measurement whose results could not be written.
fn ensure_writable(out: &Path) -> Result<()> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(out);
    opened.map(drop).with_context(|| format!("cannot write {}", out.display()))
}
