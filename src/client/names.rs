//! Names of profiles and targets, for shells that complete what somebody types.

use super::text::is_unsafe;
use crate::{api::CacheProfile, cli::Sought, cluster::Connection};
use kube::{Api, Client, api::ListParams};
use std::time::Duration;
use tokio::time::timeout;

/// Whoever pressed a key waits so long at most.
const PATIENCE: Duration = Duration::from_secs(2);
/// Profiles that are named, and those that are named with their targets, whose statuses come along.
const MAX_NAMES: u32 = 500;
const MAX_WITH_TARGETS: u32 = 50;

/// What `sought` asks for; nothing where no cluster answers in time.
pub async fn names(sought: &Sought) -> Vec<String> {
    let names = timeout(PATIENCE, read(sought)).await.ok().flatten().unwrap_or_default();
    names.into_iter().filter(|name| !name.contains(is_unsafe)).collect()
}

async fn read(sought: &Sought) -> Option<Vec<String>> {
    let from = &sought.connection;
    let found = Connection::load(from.kubeconfig.as_deref(), from.context.as_deref()).ok()?;
    let namespace = sought.namespace.as_deref().unwrap_or_else(|| found.namespace());
    let client: Client = found.client();
    let api = Api::<CacheProfile>::namespaced(client, namespace);
    if !sought.targets {
        let listed = api.list_metadata(&ListParams::default().limit(MAX_NAMES)).await.ok()?;
        return Some(listed.items.into_iter().filter_map(|it| it.metadata.name).collect());
    }
    let listed = api.list(&ListParams::default().limit(MAX_WITH_TARGETS)).await.ok()?;
    let of_profile = |profile: CacheProfile| {
        let name = profile.metadata.name.unwrap_or_default();
        let target = |target: crate::api::Target| format!("{name}/{}", target.name);
        profile.spec.targets.into_iter().map(target).collect::<Vec<_>>()
    };
    Some(listed.items.into_iter().flat_map(of_profile).collect())
}
