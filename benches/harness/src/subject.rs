//! How a cache that is measured talks to the bench: one line of JSON when it has synced, then one
//! line for every command on standard input, until that ends.
//!
//! | command | answer |
//! |---|---|
//! | `list KEY VALUE,VALUE,…` | [`Listed`]: one read by label for each value |
//! | `usage` | [`Memory`] |
//! | `lag-start` | `{}` when events are being collected |
//! | `lag-stop` | [`Lag`] |
//!
//! The Go peers speak the same.

use crate::{
    lag::{Lag, LagRecorder},
    quantile::quantile,
    usage::Usage,
};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};

/// How long after the sync resident memory is taken: allocators and collectors give some back.
const SETTLE: Duration = Duration::from_secs(2);

/// What every subject says first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Synced {
    /// From the first request, connection included, to the complete first state.
    pub seconds: f64,
    /// Of the process until then.
    pub cpu_seconds: f64,
    /// Objects held.
    pub objects: u64,
    /// After two seconds of rest.
    #[serde(flatten)]
    pub memory: Memory,
}

/// Resident memory of the process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// In KiB.
    pub rss_kb: f64,
    /// Its largest value so far, in KiB.
    pub peak_kb: f64,
}

/// What reads by one label cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// Half were faster.
    pub p50_seconds: f64,
    /// All but one in a hundred were faster.
    pub p99_seconds: f64,
    /// Objects in the last answer.
    pub objects: u64,
}

/// A synced cache of all pods.
pub trait Subject {
    /// Objects held.
    fn objects(&self) -> u64;

    /// Reads all objects whose label `key` is `value`, as the subject's users would get them, and
    /// returns how many there are.
    ///
    /// # Errors
    ///
    /// If the subject cannot answer.
    fn list(&self, key: &str, value: &str) -> Result<u64>;

    /// Told about every event once the subject's readers can see it.
    fn lag(&self) -> &LagRecorder;
}

/// Says that `subject` has synced and answers commands until standard input ends.
///
/// # Errors
///
/// Unknown commands, reads that fail, and a bench that does not listen any more.
pub async fn serve(subject: &impl Subject, took: Duration) -> Result<()> {
    let at_sync = Usage::of_this_process()?;
    tokio::time::sleep(SETTLE).await;
    let synced = Synced {
        seconds: took.as_secs_f64(),
        cpu_seconds: at_sync.cpu_seconds,
        objects: subject.objects(),
        memory: memory()?,
    };
    reply(&synced).await?;
    let mut commands = BufReader::new(stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["list", key, values] => reply(&time_lists(subject, key, values)?).await?,
            ["usage"] => reply(&memory()?).await?,
            ["lag-start"] => {
                subject.lag().start();
                reply(&serde_json::json!({})).await?;
            }
            ["lag-stop"] => reply::<Lag>(&subject.lag().stop()).await?,
            _ => bail!("unknown command {command:?}"),
        }
    }
    Ok(())
}

/// Writes one line of JSON to standard output.
///
/// # Errors
///
/// If nobody reads it.
pub async fn reply<T: Serialize + Sync>(answer: &T) -> Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = stdout();
    out.write_all(&line).await?;
    Ok(out.flush().await?)
}

fn memory() -> Result<Memory> {
    let usage = Usage::of_this_process()?;
    Ok(Memory { rss_kb: usage.rss_kib, peak_kb: usage.peak_kib })
}

fn time_lists(subject: &impl Subject, key: &str, values: &str) -> Result<Listed> {
    let mut took = Vec::new();
    let mut objects = 0;
    for value in values.split(',') {
        let started = Instant::now();
        objects = subject.list(key, value)?;
        took.push(started.elapsed().as_secs_f64());
    }
    Ok(Listed { p50_seconds: quantile(&took, 0.5), p99_seconds: quantile(&took, 0.99), objects })
}
