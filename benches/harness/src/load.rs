//! Creates the pods over 32 connections: a POST for each pod, and a PATCH of its status where it
//! has one.

use crate::{
    call::{self, Content},
    corpus::{self, Corpus},
};
use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube::Client;
use serde_json::json;

/// The number of concurrent requests, each on its own HTTP/1.1 connection. On two cores, more
/// connections do not make the server faster.
pub(crate) const CONNECTIONS: usize = 32;

/// Creates namespaces and pods. An existing pod is an error, because the figures need known
/// objects.
///
/// # Errors
///
/// The first request that failed.
///
/// # Cost
///
/// About 1.3 ms a write on two cores.
pub async fn pods(client: &Client, corpus: Corpus) -> Result<()> {
    for index in 0..corpus::NAMESPACES {
        namespace(client, &corpus::namespace(index)).await?;
    }
    stream::iter((0..corpus.count).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(CONNECTIONS, |index| async move {
            let pod = corpus.pod(index);
            let pods = format!("/api/v1/namespaces/{}/pods", pod.namespace);
            let body = serde_json::to_vec(&pod.object)?;
            let path = format!("{pods}?fieldManager=kube-controller-manager");
            call::write(client, Method::POST, &path, Content::Json, body).await?;
            if let Some(status) = pod.status {
                let path = format!("{pods}/{}/status?fieldManager=kubelet", pod.name);
                let body = serde_json::to_vec(&json!({ "status": status }))?;
                call::write(client, Method::PATCH, &path, Content::MergePatch, body).await?;
            }
            Ok(())
        })
        .await
}

/// Creates a namespace, and the ServiceAccount that pods need if no controller creates it.
///
/// # Errors
///
/// If the namespace cannot be created.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(client, "/api/v1/namespaces", &body).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default"}});
    // The result is ignored: if a controller manager runs, it has already created the account.
    let _exists =
        create(client, &format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await;
    Ok(())
}

/// Creates many objects below one path, 32 at a time.
///
/// # Errors
///
/// The first request that failed.
pub async fn objects(
    client: &Client,
    all: impl Iterator<Item = (String, serde_json::Value)>,
) -> Result<()> {
    stream::iter(all)
        .map(|(path, object)| async move { create(client, &path, &object).await })
        .buffer_unordered(CONNECTIONS)
        .try_collect()
        .await
}

/// Creates one object.
///
/// # Errors
///
/// If the server refuses it.
pub async fn create(client: &Client, path: &str, object: &serde_json::Value) -> Result<()> {
    call::write(client, Method::POST, path, Content::Json, serde_json::to_vec(object)?).await
}
