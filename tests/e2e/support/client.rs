//! A client that reads single objects over one connection, for tests that poll a state five times a
//! second.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use kube::Client;
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use serde_json::Value;
use testbed::ControlPlane;
use tokio::runtime::Runtime;

use crate::world::Failure;

/// Timeout of one read. A frozen or restarting server does not answer, and the caller tries again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The administrator's client. It has a runtime of its own: tests are synchronous functions, and
/// some of them run inside another runtime.
#[derive(Default)]
pub(crate) struct Reader {
    client: OnceLock<Client>,
}

impl Reader {
    /// The object at a path of the API server.
    ///
    /// # Errors
    ///
    /// The API server's message, or that it does not answer.
    pub(crate) fn get(&self, cluster: &ControlPlane, path: &str) -> Result<Value, Failure> {
        let client = self.client(cluster)?;
        let request = http::Request::get(path).body(Vec::new())?;
        let (sender, receiver) = mpsc::channel();
        runtime()?.spawn(async move {
            let answer = tokio::time::timeout(TIMEOUT, client.request(request)).await;
            let answer = answer.map_err(|_elapsed| format!("no answer within {TIMEOUT:?}"));
            let answer = answer.and_then(|answer| answer.map_err(|error| error.to_string()));
            // The caller waits for this message.
            let _ = sender.send(answer);
        });
        Ok(receiver.recv()??)
    }

    fn client(&self, cluster: &ControlPlane) -> Result<Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let _inside = runtime()?.enter();
        let client =
            ApiServerConnection::load(&ConnectionOptions::of_file(cluster.kubeconfig()))?.client();
        Ok(self.client.get_or_init(|| client).clone())
    }
}

fn runtime() -> Result<&'static Runtime, Failure> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let start = || Runtime::new().map_err(|error| error.to_string());
    RUNTIME.get_or_init(start).as_ref().map_err(|error| error.as_str().into())
}
