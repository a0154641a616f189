//! Parallel writers that create, change, delete and replace objects of several kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use kubewarm_api::model::ListStrategy;
use serde_json::{Value, json};

/// The number of names, which is small so that each object is created and deleted many times.
const NAMES: usize = 60;

/// A kind that is written and watched.
#[derive(Clone, Copy)]
pub(crate) struct WatchedKind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    name: &'static str,
    pub(crate) strategy: ListStrategy,
}

pub(crate) const KINDS: [WatchedKind; 3] = [
    WatchedKind {
        group: "",
        version: "v1",
        plural: "configmaps",
        name: "ConfigMap",
        strategy: ListStrategy::List,
    },
    WatchedKind {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        name: "Lease",
        strategy: ListStrategy::WatchList,
    },
    WatchedKind {
        group: "example.com",
        version: "v1",
        plural: "parts",
        name: "Part",
        strategy: ListStrategy::PagedList,
    },
];

impl WatchedKind {
    fn api_version(self) -> String {
        let separator = if self.group.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", self.group, self.version)
    }

    /// The path of the collection in a namespace.
    pub(crate) fn path(self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural)
    }
}

/// Sends one request. Returns `Ok` if the server accepted it.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> kube::Result<Value> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(
            "content-type",
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
        )
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Writes objects in `namespaces` while `goes_on` returns true for the number of accepted writes,
/// which `written` counts.
pub(crate) async fn write(
    client: Client,
    namespaces: &[&str],
    (written, writer): (Arc<AtomicUsize>, usize),
    goes_on: impl Fn(usize) -> bool,
) {
    let mut random = fastrand::Rng::with_seed(writer as u64);
    while goes_on(written.load(Ordering::Relaxed)) {
        let Some(kind) = random.choice(KINDS) else { return };
        let Some(namespace) = random.choice(namespaces) else { return };
        let name = format!("object-{}", random.usize(..NAMES));
        let size = random.usize(..400);
        let noise: String = (0..size).map(|_| random.alphanumeric()).collect();
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.name,
            "metadata": {"name": name, "labels": {"writer": writer.to_string()},
                "annotations": {"noise": noise, "escaped": "\"\\\n\u{e9}\u{1f600}"}},
        });
        if kind.name == "Part" {
            object["spec"] = json!({"size": 1.50, "large": 12_345_678_901_234_567_u64, "none": []});
        }
        let path = kind.path(namespace);
        let one = format!("{path}/{name}");
        let done = match random.u8(..10) {
            0..4 => send(&client, "POST", &path, Some(&object)).await,
            4..7 => send(&client, "PATCH", &one, Some(&object)).await,
            7..9 => send(&client, "DELETE", &one, None).await,
            _ => match send(&client, "DELETE", &one, None).await {
                Ok(_) => send(&client, "POST", &path, Some(&object)).await,
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
            // Another writer was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
