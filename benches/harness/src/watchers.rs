//! A thousand watches of one kind: their memory, and the time until each receives a change. Each
//! watch has a token of its own, as in pods. kubewarm reviews each token and its access by itself,
//! so watches with one token would hide that cost.

use crate::{
    lag::{Lag, LagRecorder},
    load_client::LoadClient,
    reads::{ManagedFields, MeasuredServer, Reading, SETTLE},
    samples::Samples,
    write::{self, WriteResult},
};
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{
    runtime::Builder,
    select,
    sync::oneshot,
    task::{JoinHandle, JoinSet, LocalSet, spawn_blocking},
    time::{Instant, sleep},
};

/// The number of watches, slightly below the limit for one user.
const WATCHERS: u32 = 1_000;
/// The number of watches from one address. The clients use several addresses of 127.0.0.0/8.
const OF_ADDRESS: usize = 500;
/// Changes a second, and their duration in seconds.
const RATE: u32 = 20;
const SECONDS: u32 = 10;
/// The time limit until all watches have received the last change.
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures both servers, `rounds` times, one after another.
///
/// # Errors
///
/// If a watch is refused, ends, or misses a change.
///
/// # Cost
///
/// About a minute a round.
pub async fn measure(reading: &Reading<'_>, rounds: u32, samples: &mut Samples) -> Result<()> {
    let tokens = reading.tokens(WATCHERS).await?;
    let updates = || write::updates(reading.cluster.client(), reading.corpus, RATE, SECONDS);
    let gather = async |client: &LoadClient| {
        let since = reading.newest_version().await?;
        WatchClients::gather(client, &tokens, &since, |_| String::new()).await
    };
    for _ in 0..rounds {
        let served = MeasuredServer::start(reading, ManagedFields::Kept, &[]).await?;
        let before = served.operator.usage()?;
        let audience = gather(&served.client).await.context("at kubewarm")?;
        sleep(SETTLE).await;
        let more = served.operator.usage()?.rss_kib - before.rss_kib;
        samples.push("watchers.kib_per_watch", more / f64::from(WATCHERS));
        push(samples, "watchers", &audience.hear(updates()).await.context("at kubewarm")?);
        served.end(reading.cluster).await?;
        let audience = gather(&reading.api).await.context("at the API server")?;
        sleep(SETTLE).await;
        let lag = audience.hear(updates()).await.context("at the API server")?;
        push(samples, "watchers.api", &lag);
    }
    Ok(())
}

fn push(samples: &mut Samples, name: &str, lag: &Lag) {
    samples.push(&format!("{name}.lag.p50_seconds"), lag.p50_seconds);
    samples.push(&format!("{name}.lag.p99_seconds"), lag.p99_seconds);
}

/// The clients of the watches, on a separate thread.
pub(crate) struct WatchClients {
    count: u32,
    lag: Arc<LagRecorder>,
    /// Closes the watches when it is dropped.
    stay: oneshot::Sender<()>,
    listening: JoinHandle<Result<()>>,
}

impl WatchClients {
    /// Opens a watch from the version `since` with each of `tokens`. `selector` returns the end of
    /// each watch's query, for instance `&labelSelector=a`.
    pub(crate) async fn gather(
        client: &LoadClient,
        tokens: &[String],
        since: &str,
        selector: impl Fn(usize) -> String,
    ) -> Result<Self> {
        let path = |number| {
            let selector = selector(number);
            format!("/api/v1/pods?watch=1&resourceVersion={since}&timeoutSeconds=600{selector}")
        };
        let lag = Arc::new(LagRecorder::default());
        let (open, opened) = oneshot::channel();
        let (stay, left) = oneshot::channel();
        let count = u32::try_from(tokens.len())?;
        let clients = tokens.iter().map(|token| client.with_token(token));
        let clients: Vec<_> =
            clients.enumerate().map(|(number, client)| (client, path(number))).collect();
        let recorder = Arc::clone(&lag);
        let listening = spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, listen(&clients, recorder, open, left))
        });
        if opened.await.is_err() {
            listening.await??;
            bail!("the watches were not opened");
        }
        Ok(Self { count, lag, stay, listening })
    }

    /// Waits for `updates` of pods, and returns the lag of every event of every watch.
    pub(crate) async fn hear(
        self,
        updates: impl Future<Output = Result<WriteResult>>,
    ) -> Result<Lag> {
        self.lag.start();
        let expected = updates.await?.updates * u64::from(self.count);
        let end = Instant::now() + PATIENCE;
        while self.lag.seen_so_far() < expected && Instant::now() < end {
            ensure!(!self.listening.is_finished(), "a watch ended");
            sleep(Duration::from_millis(100)).await;
        }
        let lag = self.lag.stop();
        ensure!(lag.events >= expected, "{} of {expected} events arrived", lag.events);
        self.leave().await?;
        Ok(lag)
    }

    /// Closes the watches. An error if one of them has ended before.
    pub(crate) async fn leave(self) -> Result<()> {
        drop(self.stay);
        self.listening.await?
    }
}

async fn listen(
    clients: &[(LoadClient, String)],
    recorder: Arc<LagRecorder>,
    open: oneshot::Sender<()>,
    left: oneshot::Receiver<()>,
) -> Result<()> {
    let mut watches = JoinSet::new();
    for (number, (client, path)) in clients.iter().enumerate() {
        let host = u8::try_from(2 + number / OF_ADDRESS)?;
        let body = client.watch(path, Ipv4Addr::new(127, 0, 0, host)).await?;
        watches.spawn_local(follow(body, Arc::clone(&recorder)));
    }
    open.send(()).map_err(|()| anyhow!("the receiver of the opened watches ended"))?;
    select! {
        _ = left => Ok(()),
        Some(ended) = watches.join_next() => bail!("a watch ended: {ended:?}"),
    }
}

/// Reads lines until the watch ends, and records the time at which each line is complete.
async fn follow(mut body: Incoming, recorder: Arc<LagRecorder>) -> Result<()> {
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        lines(&mut rest, &data, |line| recorder.seen_object(line));
    }
    Ok(())
}

/// Appends `data` to `rest`, calls `whole` for each complete line, and keeps the incomplete one.
fn lines(rest: &mut Vec<u8>, data: &Bytes, mut whole: impl FnMut(&[u8])) {
    let mut data = &data[..];
    while let Some(end) = memchr::memchr(b'\n', data) {
        let (line, behind) = data.split_at(end + 1);
        if rest.is_empty() {
            whole(line);
        } else {
            rest.extend_from_slice(line);
            whole(rest);
            rest.clear();
        }
        data = behind;
    }
    rest.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_when_it_is_whole() {
        let (mut rest, mut seen) = (Vec::new(), Vec::new());
        for part in ["a\nb", "c", "d\n\ne\nf"] {
            let part = Bytes::from(part);
            lines(&mut rest, &part, |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!((seen.concat(), rest), ("a\nbcd\n\ne\n".to_owned(), b"f".to_vec()));
    }
}
