//! The version of the API server: asked for when a reader asks, and known for a minute.

use bytes::Bytes;
use futures::future::FutureExt as _;
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

/// Asks for it as the operator, whose connections `runtime` serves. Who may know it is decided before.
pub(super) fn known(client: Client, runtime: Handle) -> Version {
    let known = Expiring::<(), Bytes>::new(1, KNOWN);
    Box::new(move || {
        let (client, known, runtime) = (client.clone(), known.clone(), runtime.clone());
        let fetch = || async move {
            let late = || Fault::new(Reason::TimedOut, "the API server takes too long");
            timeout(PATIENCE, version(client)).await.unwrap_or_else(|_| Err(late()))
        };
        async move { Ok(known.get_or_fetch(&runtime, (), None, fetch).await?.value) }.boxed()
    })
}

async fn version(client: Client) -> Result<Bytes, Fault> {
    let answer = get(&client, "/version").await?;
    if answer.status.is_success() { Ok(answer.body) } else { Err(answer.fault()) }
}
