//! kube-rs watchers that read from the cache stay consistent with the API server during restarts,
//! relists and edits of the profile.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use kubewarm_client::{ApiServerConnection, ConnectionOptions};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::api::{Served, account, let_read};
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::world::{Failure, Outcome, SOON, World, eventually};
use crate::writers::{KINDS, WatchedKind, send, write};

const WRITERS: usize = 6;
/// The total number of writes that the API server accepts.
const WRITES: usize = 2_400;
const WHERE: &str = "followed";
const EVERYTHING: &str = "{targets: [
  {name: settings, resource: configmaps, scope: {type: AllNamespaces}},
  {name: leases, group: coordination.k8s.io, resource: leases, scope: {type: AllNamespaces}},
  {name: parts, group: example.com, resource: parts, scope: {type: AllNamespaces}}]}";

/// UID and version of each object, by name.
type ObjectVersions = BTreeMap<String, (String, u64)>;

/// The state that a client has received.
#[derive(Default)]
struct Known {
    objects: ObjectVersions,
    /// The objects of a list in progress.
    listed: ObjectVersions,
    lists: usize,
    /// The newest version of each object, and the errors found in later events.
    newest: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Known {
    fn on_event(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let (name, object) = self.look(&object, "listed");
                self.listed.insert(name, object);
            }
            watcher::Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                self.lists += 1;
            }
            watcher::Event::Apply(object) => {
                let (name, object) = self.look(&object, "applied");
                self.objects.insert(name, object);
            }
            watcher::Event::Delete(object) => {
                let (name, object) = self.look(&object, "deleted");
                if self.objects.remove(&name).is_some_and(|entry| entry.0 != object.0) {
                    self.faults.push(format!("another {name} was deleted"));
                }
            }
        }
    }

    fn look(&mut self, object: &DynamicObject, what: &str) -> (String, (String, u64)) {
        let metadata = &object.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let version = metadata.resource_version.as_deref().unwrap_or_default();
        let version: u64 = version.parse().unwrap_or_default();
        let newest = self.newest.entry(name.clone()).or_default();
        if version < *newest {
            self.faults.push(format!("{name} was {what} at {version}, after {newest}"));
        }
        *newest = version.max(*newest);
        (name, (metadata.uid.clone().unwrap_or_default(), version))
    }
}

/// A client (follower) that watches one kind in one namespace.
struct Follower {
    what: String,
    kind: WatchedKind,
    known: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn start(client: Client, kind: WatchedKind, name: &str, how: watcher::Config) -> Self {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let api = Api::<DynamicObject>::namespaced_with(client, WHERE, &resource);
        let known: Arc<Mutex<Known>> = Arc::default();
        let shared = Arc::clone(&known);
        let what = format!("{} {:?}", kind.plural, how.initial_list_strategy);
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(api, how).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(event) = event {
                    shared.lock().on_event(event);
                }
            }
        });
        Self { what, kind, known, task }
    }

    fn look<T>(&self, view: impl FnOnce(&Known) -> T) -> T {
        view(&self.known.lock())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The objects on the API server.
async fn list_versions(client: &Client, kind: WatchedKind) -> Result<ObjectVersions, Failure> {
    let list = send(client, "GET", &kind.path(WHERE), None).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |object: &Value| {
        let metadata = &object["metadata"];
        let version = text(&metadata["resourceVersion"]).parse()?;
        Ok::<_, Failure>((text(&metadata["name"]), (text(&metadata["uid"]), version)))
    };
    list["items"].as_array().into_iter().flatten().map(entry).collect()
}

async fn are_equal(client: &Client, followers: &[Follower], when: &str) -> Outcome {
    for follower in followers {
        let expected = list_versions(client, follower.kind).await?;
        eventually(SOON, || {
            let known = follower.look(|known| known.objects.clone());
            if known == expected {
                return Ok(());
            }
            let what = &follower.what;
            Err(format!("{when}: {what} has {known:?} instead of {expected:?}").into())
        })?;
        let faults = follower.look(|known| known.faults.clone());
        assert_eq!(faults, [""; 0], "{when}: {}", follower.what);
    }
    Ok(())
}

/// Writes until the total is `until`.
async fn write_some(client: &Client, written: &Arc<AtomicUsize>, until: usize) -> Outcome {
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let counted = (Arc::clone(written), writer + until);
            tokio::spawn(write(client.clone(), &[WHERE], counted, move |done| done < until))
        })
        .collect();
    for writer in writers {
        writer.await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_clients_stay_consistent_during_faults() -> Outcome {
    let world = World::alone()?;
    world.cluster.run(["create", "namespace", WHERE])?;
    world.define_parts()?;
    let served = Served::start(&world, &[])?;
    Operator::grant_reading(&world)?;
    let token = account(&world, WHERE, "reader")?;
    let_read(&world, (WHERE, "reader"), None)?;
    let profile = Profile::apply(&world, NAMESPACE, "everything", EVERYTHING)?;
    profile.await_condition("Ready", "True", None, SOON)?;
    let client =
        ApiServerConnection::load(&ConnectionOptions::of_file(world.cluster.kubeconfig()))?
            .client();
    let reads = served.client(&token)?;
    let names = ["ConfigMap", "Lease", "Part"];
    let followers: Vec<_> = KINDS
        .into_iter()
        .zip(names)
        .flat_map(|(kind, name)| {
            let ways = [watcher::Config::default(), watcher::Config::default().streaming_lists()];
            ways.map(|how| Follower::start(reads.clone(), kind, name, how))
        })
        .collect();
    let written = Arc::default();
    write_some(&client, &written, WRITES / 2).await?;
    are_equal(&client, &followers, "before any fault").await?;
    for follower in &followers {
        let lists = follower.look(|known| known.lists);
        assert_eq!(lists, 1, "{} listed again without a cause", follower.what);
    }

    // The API server restarts and loses its history of changes, so kubewarm lists again.
    let writing = write_some(&client, &written, WRITES);
    let restarting = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.cluster.apiserver().restart().map_err(Failure::from)
    };
    let (wrote, restarted) = tokio::join!(writing, restarting);
    wrote?;
    restarted?;
    are_equal(&client, &followers, "after the API server restarted").await?;

    // The profile is narrowed, and then widened again. No client may receive deletions of the
    // objects that the narrow profile lacks, because these objects still exist.
    let narrow = EVERYTHING.replace(
        "resource: configmaps}",
        "resource: configmaps}, labelSelector: {matchLabels: {writer: none}}",
    );
    Profile::apply(&world, NAMESPACE, "everything", &narrow)?;
    let is_empty = |follower: &Follower| follower.look(|known| known.objects.is_empty());
    tokio::time::sleep(Duration::from_secs(8)).await;
    for follower in &followers {
        assert!(!is_empty(follower), "{}", follower.what);
    }
    Profile::apply(&world, NAMESPACE, "everything", EVERYTHING)?;
    write_some(&client, &written, WRITES + 100).await?;
    are_equal(&client, &followers, "after the profile was edited").await?;

    served.operator.process.restart()?;
    write_some(&client, &written, WRITES + 200).await?;
    are_equal(&client, &followers, "after kubewarm restarted").await?;

    world.cluster.run(["delete", "cprof", "everything", "-n", NAMESPACE])?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    for follower in &followers {
        assert!(!is_empty(follower), "{}", follower.what);
    }
    write_some(&client, &written, WRITES + 300).await?;
    Profile::apply(&world, NAMESPACE, "everything", EVERYTHING)?;
    are_equal(&client, &followers, "after the profile was deleted and came back").await
}
