//! Word of changed roles, where the operator may watch them: what they mean is then asked at once.

use super::{reports::AccessReports, rules::attributes};
use crate::{
    cluster::{Clients, is_allowed},
    informer::hearsay,
    model::{CellKey, Extent, GroupResource, ManagedFields, Projection, Resource, Verb},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// Between two questions whether roles may be watched.
const ASK_AGAIN: Duration = Duration::from_mins(5);
/// After a watch that failed.
const RETRY: Duration = Duration::from_secs(10);

/// What can change what anybody may do.
pub(super) fn kinds() -> Vec<CellKey> {
    let key = |resource, extent: &Extent| {
        let of = GroupResource::new("rbac.authorization.k8s.io", resource).ok()?;
        Some(CellKey::all(
            Resource::new(of, "v1").ok()?,
            extent.clone(),
            Projection::MetadataOnly(ManagedFields::Drop),
        ))
    };
    let kinds = [
        ("roles", Extent::AllNamespaces),
        ("rolebindings", Extent::AllNamespaces),
        ("clusterroles", Extent::Cluster),
        ("clusterrolebindings", Extent::Cluster),
    ];
    kinds.iter().filter_map(|(resource, extent)| key(resource, extent)).collect()
}

/// Watches each of them for ever, where that is allowed.
pub(super) fn watch(clients: &Arc<dyn Clients>, reports: &AccessReports) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for key in kinds() {
        let (clients, reports) = (Arc::clone(clients), reports.clone());
        watches.spawn(async move {
            loop {
                let client = clients.client_for(&key.identity);
                // Asked first: a request that is refused again and again looks like an attack.
                if !may_watch(&client, &key).await {
                    sleep(ASK_AGAIN.mul_f64(1.0 + fastrand::f64() / 10.0)).await;
                    continue;
                }
                tracing::debug!(cell = %key, "listening for changes");
                let tell = |namespace: Option<&str>| {
                    reports.book.write().changed(namespace, Instant::now());
                };
                let fault = hearsay(&client, &key, tell).await;
                tracing::debug!(cell = %key, %fault, "not listening any more");
                sleep(RETRY.mul_f64(1.0 + fastrand::f64())).await;
                // Whatever changed meanwhile was not heard.
                reports.book.write().changed(None, Instant::now());
            }
        });
    }
    watches
}

async fn may_watch(client: &kube::Client, key: &CellKey) -> bool {
    for verb in [Verb::List, Verb::Watch] {
        if is_allowed(client, attributes(key, verb)).await != Ok(true) {
            return false;
        }
    }
    true
}
