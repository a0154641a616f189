//! The protocol between the bench and a measured cache. The cache prints one line of JSON when it
//! has synced, and one line for each command on standard input, until that ends.
//!
//! | command | response |
//! |---|---|
//! | `list KEY VALUE,VALUE,…` | [`Listed`]: one read by label for each value |
//! | `usage` | [`Memory`] |
//! | `lag-start` | `{}` when events are being collected |
//! | `lag-stop` | [`Lag`] |
//!
//! The Go peers use the same protocol.

use crate::{
    lag::{Lag, LagRecorder},
    quantile::quantile,
    usage::Usage,
};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};

/// The wait before resident memory is measured: allocators and garbage collectors return some
/// memory.
const SETTLE: Duration = Duration::from_secs(2);

/// The first line of each cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Synced {
    /// The time from the first request, connection included, to the complete first state.
    pub seconds: f64,
    /// The processor time until then.
    pub cpu_seconds: f64,
    /// The number of objects.
    pub objects: u64,
    /// The memory after two seconds.
    #[serde(flatten)]
    pub memory: Memory,
}

/// Resident memory of the process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// The current value, in KiB.
    pub rss_kb: f64,
    /// The largest value so far, in KiB.
    pub peak_kb: f64,
}

/// The latency of reads by one label.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// The median.
    pub p50_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The number of objects in the last response.
    pub objects: u64,
}

/// A synced cache of all pods.
pub trait SyncedCache {
    /// The number of objects.
    fn objects(&self) -> u64;

    /// Reads all objects whose label `key` is `value`, in the form that users of the cache get.
    /// Returns their number.
    ///
    /// # Errors
    ///
    /// If the cache cannot answer.
    fn list(&self, key: &str, value: &str) -> Result<u64>;

    /// Records every event once readers can see it.
    fn lag(&self) -> &LagRecorder;
}

/// Prints that `subject` has synced, and answers commands until standard input ends.
///
/// # Errors
///
/// Unknown commands, failed reads, and a closed standard output.
pub async fn serve(subject: &impl SyncedCache, took: Duration) -> Result<()> {
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
/// If standard output is closed.
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

fn time_lists(subject: &impl SyncedCache, key: &str, values: &str) -> Result<Listed> {
    let mut took = Vec::new();
    let mut objects = 0;
    for value in values.split(',') {
        let started = Instant::now();
        objects = subject.list(key, value)?;
        took.push(started.elapsed().as_secs_f64());
    }
    Ok(Listed { p50_seconds: quantile(&took, 0.5), p99_seconds: quantile(&took, 0.99), objects })
}
