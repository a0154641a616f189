//! Follows the cache with reflectors of kube-rs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::world::{Failure, Outcome, eventually};

/// States by object name.
type ObjectStates = BTreeMap<String, ObjectContent>;

/// UID, version and contents of an object.
#[derive(Clone, Debug, PartialEq)]
struct ObjectContent {
    version: u64,
    /// The body without `managedFields`, which profiles can drop, and without the kind, which items
    /// of lists lack.
    body: Value,
}

/// Several reflectors, each with its own client.
pub(super) struct Reflectors {
    runtime: Runtime,
    all: Vec<Reflector>,
}

struct Reflector {
    title: String,
    kind: ApiResource,
    labels: Option<&'static str>,
    api: Api<DynamicObject>,
    seen: Arc<Mutex<ReflectorObservations>>,
}

#[derive(Default)]
struct ReflectorObservations {
    objects: ObjectStates,
    /// The objects of a list in progress.
    coming: ObjectStates,
    newest: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl ReflectorObservations {
    fn on(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                let (name, state) = self.state(object);
                self.coming.insert(name, state);
            }
            Event::InitDone => self.objects = std::mem::take(&mut self.coming),
            Event::Apply(object) => {
                let (name, state) = self.state(object);
                self.objects.insert(name, state);
            }
            Event::Delete(object) => {
                let (name, _) = self.state(object);
                self.objects.remove(&name);
            }
        }
    }

    /// Returns name and state of the object, and records an error if the state is older than an
    /// earlier one.
    fn state(&mut self, object: DynamicObject) -> (String, ObjectContent) {
        let (name, state) = state(object);
        let newest = self.newest.entry(name.clone()).or_default();
        if state.version < *newest {
            self.faults.push(format!("{name} went back from {newest} to {}", state.version));
        }
        *newest = state.version.max(*newest);
        (name, state)
    }
}

fn state(mut object: DynamicObject) -> (String, ObjectContent) {
    (object.types, object.metadata.managed_fields) = (None, None);
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let name = text(&object.metadata.name);
    let version = text(&object.metadata.resource_version).parse().unwrap_or_default();
    (name, ObjectContent { version, body: json!(object) })
}

impl Reflectors {
    /// Starts reflectors of each kind and strategy, and returns when all have synced.
    pub(super) fn start((api, through): (&Path, &Path), namespace: &str) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let mut all = Vec::new();
        let direct = runtime.block_on(client(api))?;
        for (group, kind, labels) in [
            ("", "ConfigMap", None),
            ("example.com", "Part", None),
            ("", "ConfigMap", Some("app=web")),
        ] {
            for (strategy, config) in [
                ("list and watch", watcher::Config::default()),
                ("streaming", watcher::Config::default().streaming_lists()),
            ] {
                let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
                let cached = runtime.block_on(client(through))?;
                let config = labels.iter().fold(config, |config, labels| config.labels(labels));
                let followed = Api::namespaced_with(cached, namespace, &kind);
                let seen = Arc::new(Mutex::new(ReflectorObservations::default()));
                let into = Arc::clone(&seen);
                runtime.spawn(watcher(followed, config).default_backoff().for_each(move |event| {
                    if let Ok(event) = event {
                        into.lock().on(event);
                    }
                    std::future::ready(())
                }));
                let api = Api::namespaced_with(direct.clone(), namespace, &kind);
                let title = format!("kube-rs, {strategy}, {} {labels:?}", kind.plural);
                all.push(Reflector { title, kind, labels, api, seen });
            }
        }
        Ok(Self { runtime, all })
    }

    /// Waits until each reflector has the API server's objects, and checks that no object went back
    /// to an older state.
    pub(super) fn agree(&self, when: &str, limit: Duration) -> Outcome {
        for one in &self.all {
            let selected =
                one.labels.iter().fold(ListParams::default(), |list, labels| list.labels(labels));
            eventually(limit, || {
                let listed = self.runtime.block_on(one.api.list(&selected))?;
                let truth: ObjectStates = listed.items.into_iter().map(state).collect();
                let seen = one.seen.lock();
                if seen.objects == truth {
                    return Ok(());
                }
                let entry = |name: &String| seen.objects.get(name);
                let differs = |(name, is): &(&String, &ObjectContent)| entry(name) != Some(is);
                let lost: Vec<_> = truth.iter().filter(differs).take(5).collect();
                let lost: Vec<_> = lost.into_iter().map(|(name, is)| (entry(name), is)).collect();
                let title = &one.title;
                Err(format!(
                    "{when}, {title}: {} for {}; {lost:?}",
                    seen.objects.len(),
                    truth.len()
                )
                .into())
            })?;
            let faults = one.seen.lock().faults.clone();
            assert!(faults.is_empty(), "{when}, {} {}: {faults:?}", one.title, one.kind.kind);
        }
        Ok(())
    }
}

async fn client(kubeconfig: &Path) -> Result<Client, Failure> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
