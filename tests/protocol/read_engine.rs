//! An engine whose stores serve the read API's reads.

use crate::{
    engine::{ByName, Engine, informer, quick},
    reply::Reply,
    server::{ReceivedQuery, ScriptedServer},
};
use futures::future::{FutureExt as _, pending};
use kubewarm_api::model::{
    DeltaSink, GroupResource, Identity, InformerKey, InformerScope, InformerSpec, ProfileMode,
    ProfileRef, ReadConsistency, ReadPolicy, ResolvedProfile, ResolvedTarget, Resource,
    TargetRequirement,
};
use kubewarm_cache::store::StoreWriter;
use kubewarm_client::{ClientProvider as _, KeyedSemaphore, PeerReplicas, ServedResources};
use kubewarm_serve::{
    callers::{LimitKey, PERMIT_BYTES, ReaderLimits, UserPermits},
    metrics::ReadMetrics,
    reads::{KindResolver, ReadBody, ReadDependencies, ReadService, ServingIndex},
};
use kubewarm_wire::{ObjectRequest, RequestInfo, RequestTarget, StatusError};
use serde_json::Value;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{runtime::Handle, sync::watch};

/// An engine whose stores of pods serve reads.
pub(crate) struct ReadEngine {
    pub(crate) engine: Engine,
    /// The informer of all namespaces.
    pub(crate) key: InformerKey,
    pub(crate) reads: Arc<ReadService>,
    pub(crate) server: ScriptedServer,
    forwards: bool,
    _discovery: watch::Sender<Option<Arc<ServedResources>>>,
}

/// What the informers of a [`ReadEngine`] serve, and how.
#[derive(Default)]
pub(crate) struct ReadSetup {
    /// Further informers. For each one, the profile `p` in this namespace declares it.
    pub(crate) more: Vec<(&'static str, InformerSpec)>,
    /// Whether kubewarm runs with `--forward`, so that the API server can answer instead.
    pub(crate) forwards: bool,
    pub(crate) consistency: ReadConsistency,
    /// The profiles' mode: `Active`, or `Paused` before the first list.
    pub(crate) mode: ProfileMode,
    /// The profiles' staleness limit; `None` for the default of 2 minutes.
    pub(crate) max_staleness: Option<Duration>,
    /// The kinds that discovery lists; `None` for only pods.
    pub(crate) served: Option<Arc<ServedResources>>,
    /// Replaces the sink of each informer, which receives the writer of the store.
    pub(crate) sink: Option<fn(StoreWriter) -> Box<dyn DeltaSink>>,
    /// The other replicas.
    pub(crate) peers: Option<PeerReplicas>,
}

impl ReadEngine {
    /// Starts an informer of all namespaces, which the profile `home/p` declares.
    pub(crate) async fn start(
        script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(ReadSetup::default(), script).await
    }

    /// Starts an informer of all namespaces, which the profile `home/p` declares, and the further
    /// informers.
    pub(crate) async fn start_with(
        ReadSetup { more, forwards, consistency, mode, max_staleness, served, sink, peers }: ReadSetup,
        script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let server = ScriptedServer::start(script).await;
        let mut engine = Engine::new(&server, quick());
        if let Some(sink) = sink {
            engine = engine.with_sinks(move |_, writer| sink(writer));
        }
        let mut pods = informer("pods");
        pods.key.scope = InformerScope::AllNamespaces;
        let key = pods.key.clone();
        let declared: Vec<_> = [("home", pods)].into_iter().chain(more).collect();
        for (_, pods) in &declared {
            if mode == ProfileMode::Paused {
                engine.pause(pods);
                continue;
            }
            engine.start(pods);
            engine.until(&pods.key, |report| report.synced_at.is_some()).await;
        }
        let resource = Resource::new(GroupResource::new("", "pods").unwrap(), "v1").unwrap();
        let only_pods = || Arc::new(ServedResources::with_resource(&resource, "Pod"));
        let (discovery, snapshots) = watch::channel(Some(served.unwrap_or_else(only_pods)));
        let client = operator_client(&server);
        let profile = |(owner, pods): &(&str, InformerSpec)| {
            let profile = profile(owner, pods, consistency);
            let max_staleness = max_staleness.unwrap_or(profile.max_staleness);
            Arc::new(ResolvedProfile { max_staleness, mode, ..profile })
        };
        let profiles: Vec<_> = declared.iter().map(profile).collect();
        let serving_index = Arc::new(ServingIndex::of(&profiles));
        let metrics = ReadMetrics::register(&prometheus::Registry::new()).unwrap();
        let dependencies = ReadDependencies {
            catalog: engine.catalog.clone(),
            reports: engine.reports.clone(),
            changes: engine.changes(),
            freshness_checker: engine.freshness_checker(),
            informer_metrics: Arc::clone(&engine.metrics),
            metrics,
            serving_index: Box::new(move || Some(Arc::clone(&serving_index))),
            serving_index_change: Box::new(|| pending().boxed()),
            kinds: KindResolver::new(client, snapshots, &[], Handle::current()),
            peers,
            operator_namespace: "home".into(),
        };
        let change_cache_bytes = ReaderLimits::default().change_cache_bytes;
        let reads = Arc::new(ReadService::new(dependencies, change_cache_bytes));
        Self { engine, key, reads, server, forwards, _discovery: discovery }
    }

    /// The response to a get or list of `caller`, or the error. If `profile` is given, only its
    /// informers answer.
    pub(crate) async fn read_as(
        &self,
        caller: &str,
        profile: Option<&ProfileRef>,
        path: &str,
    ) -> Result<Value, StatusError> {
        let answer = self
            .reads
            .read(&request(path), profile, &caller, &large_object_permits(), self.forwards)
            .await?;
        let body = match answer.body {
            ReadBody::Whole(body) => body,
            ReadBody::List(mut list) => list.first_piece(1 << 20).await.unwrap().0,
        };
        Ok(serde_json::from_slice(&body).unwrap())
    }

    pub(crate) async fn read_json(&self, path: &str) -> Result<Value, StatusError> {
        self.read_as("caller", None, path).await
    }

    /// The names in the response to a get or list, or the error.
    pub(crate) async fn read(&self, path: &str) -> Result<Vec<String>, StatusError> {
        let body = self.read_json(path).await?;
        let items = body["items"].as_array().cloned().unwrap_or_else(|| vec![body]);
        Ok(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect())
    }

    pub(crate) async fn until_undecodable(&self, expected: &[&str]) {
        let is_named = |object: &str| expected.contains(&object);
        self.engine
            .until(&self.key, |report| {
                let all = &report.undecodable;
                all.len() == expected.len() && all.iter().all(|object| is_named(&object.object))
            })
            .await;
    }
}

/// Permits for large objects that no other response uses.
pub(crate) fn large_object_permits() -> UserPermits {
    let permits = ReaderLimits::default().large_object_bytes / PERMIT_BYTES;
    let user = LimitKey::Address(Ipv4Addr::LOCALHOST.into());
    UserPermits::new(&KeyedSemaphore::new(permits, permits), user)
}

pub(crate) fn operator_client(server: &ScriptedServer) -> kube::Client {
    kube::Client::clone(&ByName(server.address).client_for(&Identity::Operator))
}

/// The profile `p` in the namespace `owner`, with one target.
fn profile(owner: &str, pods: &InformerSpec, consistency: ReadConsistency) -> ResolvedProfile {
    let named = ProfileRef { namespace: owner.into(), name: "p".into() };
    let target = ResolvedTarget {
        name: "pods".into(),
        requirement: TargetRequirement::Required,
        declared_as: "pods".into(),
        resolved: None,
        informers: [pods.clone()].into(),
        namespaces: None,
        serving: None,
        named: [].into(),
        left_out: [].into(),
        limited: None,
    };
    let empty = ResolvedProfile::without_targets(named, "u".into(), 1);
    let reads = ReadPolicy { consistency, ..empty.reads };
    ResolvedProfile { targets: vec![target], reads, ..empty }
}

pub(crate) fn request(path: &str) -> ObjectRequest {
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let target = RequestInfo::parse("GET", path, query, None).unwrap().target;
    let objects = match target {
        RequestTarget::Objects(objects) => Some(*objects),
        RequestTarget::Document(..) => None,
    };
    objects.unwrap()
}
