//! The version of the API server: asked for when a reader asks, and known for a minute.

use bytes::Bytes;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::{self, ask_on};
use kubewarm_serve::server::Version;
use std::{sync::Arc, time::Duration};
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long it counts: it changes with an upgrade.
const KNOWN: Duration = Duration::from_mins(1);
/// How long a reader waits for the API server, and for others who ask.
const PATIENCE: Duration = Duration::from_secs(10);

/// Locked while it is asked for.
type Known = Arc<Mutex<Option<(Instant, Bytes)>>>;

/// Asks for it as the operator. Who may know it is decided before.
pub(super) fn known(client: Client, runtime: Handle) -> Version {
    let known = Known::default();
    Box::new(move || {
        let asking = version(client.clone(), Arc::clone(&known));
        // It goes on with the operator's own connections.
        ask_on(&runtime, async {
            let late = || Fault::new(Reason::TimedOut, "the API server takes too long");
            timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late()))
        })
    })
}

async fn version(client: Client, known: Known) -> Result<Bytes, Fault> {
    let mut known = known.lock().await;
    if let Some((at, version)) = &*known
        && at.elapsed() < KNOWN
    {
        return Ok(version.clone());
    }
    let answer = kubewarm_client::get(&client, "/version").await?;
    if !answer.status.is_success() {
        return Err(answer.fault());
    }
    *known = Some((Instant::now(), answer.body.clone()));
    Ok(answer.body)
}
