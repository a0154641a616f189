//! Updates pods at a steady rate. Each update contains the time at which it was sent.

use crate::{
    call::{self, Content},
    corpus::Corpus,
    lag::WRITTEN_AT,
};
use anyhow::{Result, ensure};
use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet, time};

/// The number of concurrent updates. If the server is too slow, the rate falls and the lag does not
/// grow without limit. [`WriteResult`] contains the rate.
const IN_FLIGHT: usize = 32;

/// The result of the writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteResult {
    /// The number of confirmed updates.
    pub updates: u64,
    /// The duration.
    pub seconds: f64,
}

/// Updates pods of `corpus`, `rate` times a second, for `seconds`.
///
/// # Errors
///
/// If more than one update in a hundred fails.
pub async fn updates(
    client: &Client,
    corpus: Corpus,
    rate: u32,
    seconds: u32,
) -> Result<WriteResult> {
    let mut rng = fastrand::Rng::with_seed(u64::from(rate));
    updates_of(client, rate, seconds, |_| {
        let (namespace, name) = corpus.name(rng.u32(..corpus.count));
        format!("/api/v1/namespaces/{namespace}/pods/{name}?fieldManager=bench-writer")
    })
    .await
}

/// As [`updates`], of the objects with the paths `path(0)`, `path(1)` and so on.
pub(crate) async fn updates_of(
    client: &Client,
    rate: u32,
    seconds: u32,
    mut path: impl FnMut(u32) -> String,
) -> Result<WriteResult> {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut tick = time::interval(Duration::from_secs(1) / rate.max(1));
    let mut under_way = JoinSet::new();
    let mut confirmed = 0;
    let started = time::Instant::now();
    for number in 0..rate * seconds {
        tick.tick().await;
        let slot = Arc::clone(&slots).acquire_owned().await?;
        let (client, path) = (client.clone(), path(number));
        under_way.spawn(async move {
            let updated = update(&client, &path).await;
            drop(slot);
            updated
        });
        while let Some(done) = under_way.try_join_next() {
            confirmed += u64::from(done?.is_ok());
        }
    }
    while let Some(done) = under_way.join_next().await {
        confirmed += u64::from(done?.is_ok());
    }
    let sent = u64::from(rate) * u64::from(seconds);
    ensure!(confirmed * 100 >= sent * 99, "only {confirmed} of {sent} updates succeeded");
    Ok(WriteResult { updates: confirmed, seconds: started.elapsed().as_secs_f64() })
}

async fn update(client: &Client, path: &str) -> Result<()> {
    let now = Timestamp::now().as_nanosecond().to_string();
    let body = json!({"metadata": {"annotations": {WRITTEN_AT: now}}});
    call::write(client, Method::PATCH, path, Content::MergePatch, serde_json::to_vec(&body)?).await
}
