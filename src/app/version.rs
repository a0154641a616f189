//! The version of the API server: asked for when a reader asks, and known for a minute.

use bytes::Bytes;
use futures::FutureExt as _;
use kube::Client;
use kubewarm_api::model::{Fault, Reason};
use kubewarm_client::{Expiring, get};
use kubewarm_serve::server::Version;
use std::time::Duration;
use tokio::{runtime::Handle, time::timeout};

/// How long it counts: it changes with an upgrade.
const KNOWN: Duration = Duration::from_mins(1);
/// How long a reader waits for the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for it as the operator, over connections of `runtime`. Who may know it is decided before.
pub(super) fn known(client: Client, runtime: Handle) -> Version {
    let known = Expiring::new(1, KNOWN);
    Box::new(move || {
        let (known, client, runtime) = (known.clone(), client.clone(), runtime.clone());
        let asking = async move {
            let entry = known.get_or_fetch(&runtime, (), || version(client)).await?;
            Ok(entry.value)
        };
        let late = || Fault::new(Reason::TimedOut, "the API server takes too long");
        async move { timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(late())) }.boxed()
    })
}

async fn version(client: Client) -> Result<Bytes, Fault> {
    let answer = get(&client, "/version").await?;
    if answer.status.is_success() { Ok(answer.body) } else { Err(answer.fault()) }
}
