//! A starting replica copies its stores from another replica instead of listing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use kubewarm_api::model::{
    GroupResource, InformerKey, InformerScope, ManagedFieldsPolicy, Projection, Resource,
};
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::api::{Served, Server, account, let_read, let_write, peer_flags, write_peer_token};
use crate::figures::Exposition;
use crate::operator::{NAMESPACE, Operator};
use crate::profile::Profile;
use crate::requests::requests;
use crate::world::{Failure, Outcome, SOON, World, eventually};

/// Objects in protobuf, only metadata, Secrets with their payload, and objects in JSON.
const SPEC: &str = "{targets: [{name: settings, resource: configmaps, projection: {type: Full, managedFields: Keep}},
  {name: names, resource: serviceaccounts, projection: {type: Metadata}},
  {name: secrets, resource: secrets, projection: {type: Full}, secretData: Allow},
  {name: parts, group: example.com, resource: parts}]}";

/// The informers of this module's profile.
const INFORMERS: f64 = 4.0;

/// An address at which nobody listens.
const NOBODY: &str = "127.0.0.1:1";

/// Starts replicas that trust each other.
struct Replicas<'a> {
    world: &'a World,
    kubeconfig: PathBuf,
    /// A file with a token of kubewarm's ServiceAccount for its peers.
    token: PathBuf,
}

impl<'a> Replicas<'a> {
    fn new(world: &'a World) -> Result<Self, Failure> {
        Operator::grant_rights(world)?;
        let kubeconfig = world.cluster.service_account_kubeconfig(NAMESPACE, "kubewarm")?;
        let token = write_peer_token(world, NAMESPACE, "kubewarm")?;
        Ok(Self { world, kubeconfig, token })
    }

    fn start(&self, pod: &str, peers: &str, authority: &Path) -> Result<Served, Failure> {
        let flags = peer_flags(peers, authority, &self.token);
        let more: Vec<_> = flags.iter().map(String::as_str).collect();
        Served::start_replica(self.world, pod, &self.kubeconfig, &more)
    }

    /// Starts a replica without another one.
    fn start_first(&self) -> Result<Served, Failure> {
        self.start("first", NOBODY, &self.world.cluster.folder().join("first.crt"))
    }

    /// Starts a replica beside `first`.
    fn start_beside(&self, first: &Served) -> Result<Served, Failure> {
        self.start("second", &first.address()?, first.authority())
    }
}

fn await_ready(replica: &Served) -> Outcome {
    eventually(SOON, || {
        let (code, body) = replica.operator.ask("/readyz?verbose")?;
        if code == 200 { Ok(()) } else { Err(body.into()) }
    })
}

fn warm(world: &World, namespace: &str, spec: &str) -> Outcome {
    let profile = Profile::apply(world, namespace, "all", spec)?;
    profile.await_manifests()?;
    profile.grant()?;
    profile.await_condition("Ready", "True", None, SOON)?;
    Ok(())
}

fn change(world: &World, namespace: &str, round: usize) -> Outcome {
    let objects: Vec<String> = (0..20)
        .flat_map(|number| {
            let metadata = format!("metadata: {{name: x{number}, namespace: {namespace}}}");
            [
                format!(
                    "{{apiVersion: v1, kind: ConfigMap, {metadata}, data: {{round: '{round}'}}}}"
                ),
                format!(
                    "{{apiVersion: v1, kind: Secret, {metadata}, stringData: {{round: '{round}'}}}}"
                ),
                format!("{{apiVersion: example.com/v1, kind: Part, {metadata}, round: {round}}}"),
            ]
        })
        .collect();
    world
        .cluster
        .apply(&format!("{{apiVersion: v1, kind: List, items: [{}]}}", objects.join(", ")))?;
    world.cluster.run(["delete", "configmap", &format!("x{round}"), "-n", namespace])?;
    Ok(())
}

/// The paths of the profile's kinds.
fn paths(namespace: &str) -> [String; 3] {
    [
        format!("/api/v1/namespaces/{namespace}/configmaps"),
        format!("/api/v1/namespaces/{namespace}/secrets"),
        format!("/apis/example.com/v1/namespaces/{namespace}/parts"),
    ]
}

#[test]
fn a_second_replica_copies_stores_and_event_logs_without_a_list() -> Outcome {
    let world = World::alone()?;
    world.define_parts()?;
    let namespace = world.namespace("team")?;
    let replicas = Replicas::new(&world)?;
    let first = replicas.start_first()?;
    let reader = account(&world, &namespace, "reader")?;
    let_read(&world, (&namespace, "reader"), Some(&namespace))?;
    warm(&world, &namespace, SPEC)?;
    change(&world, &namespace, 0)?;
    let kinds = paths(&namespace);
    let version = |reply: &Value| {
        reply.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned)
    };
    let seen = kinds.each_ref().map(|path| -> Result<String, Failure> {
        let list = first.server()?.get(&reader, path)?.json();
        version(&list).ok_or_else(|| list.to_string().into())
    });
    change(&world, &namespace, 1)?;
    change(&world, &namespace, 2)?;

    let before = std::fs::read_to_string(world.cluster.audit_log())?.len();
    let second = replicas.start_beside(&first)?;
    await_ready(&second)?;
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let listed: Vec<String> = requests(&log[before..])
        .into_iter()
        .filter(|request| request.is_whole_list() && request.resource != "cacheprofiles")
        .map(|request| request.resource)
        .collect();
    assert!(listed.is_empty(), "{listed:?}");
    let figures = Exposition::read(&second.operator)?;
    let copied = figures.sum("kubewarm_warmup_duration_seconds_count", &[r#"strategy="peer""#]);
    assert!(copied >= INFORMERS, "{copied}");

    for (path, seen) in kinds.iter().zip(seen) {
        let [here, there] = [&second, &first].map(|replica| -> Result<Value, Failure> {
            Ok(replica.server()?.get(&reader, path)?.json())
        });
        let (here, there) = (here?, there?);
        assert_eq!(here["items"], there["items"], "{path}");
        // A watch that began at the first replica continues at the second one.
        let seen = seen?;
        let query = format!("{path}?watch=1&resourceVersion={seen}&timeoutSeconds=2");
        let watched = |replica: &Served| -> Result<Vec<Value>, Failure> {
            let mut events = replica.server()?.get(&reader, &query)?.events()?;
            events.retain(|event| event["type"] != "BOOKMARK");
            Ok(events)
        };
        let (here, there) = (watched(&second)?, watched(&first)?);
        assert!(here.len() >= 20, "{path}: {here:?}");
        assert_eq!(here, there, "{path}");
    }

    // The copies continue with their own watches.
    change(&world, &namespace, 3)?;
    let path = &kinds[0];
    eventually(SOON, || {
        let list = second.server()?.get(&reader, path)?.json();
        let is_new = list.to_string().contains(r#""round":"3""#);
        if is_new { Ok(()) } else { Err(list.to_string().into()) }
    })
}

#[test]
fn only_replicas_of_the_same_service_account_get_a_copy() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("team")?;
    let replicas = Replicas::new(&world)?;
    let first = replicas.start_first()?;
    warm(&world, &namespace, "{targets: [{name: settings, resource: configmaps}]}")?;
    let resource = Resource::new(GroupResource::new("", "configmaps")?, "v1")?;
    let scope = InformerScope::Namespace(namespace.as_str().into());
    let projection = Projection::Full(ManagedFieldsPolicy::Keep);
    let key = InformerKey::all(resource, scope, projection);
    let key = InformerKey { declared_in: Some(namespace.as_str().into()), ..key };
    let path = &kubewarm_wire::peer_store_path(&key);
    let ask = |token: &str| -> Result<u16, Failure> { Ok(first.server()?.get(token, path)?.code) };
    let peer = std::fs::read_to_string(&replicas.token)?;
    let peer_token = |name| -> Result<String, Failure> {
        Ok(std::fs::read_to_string(write_peer_token(&world, &namespace, name)?)?)
    };
    assert_eq!(ask(&peer)?, 200);
    assert_eq!(first.server()?.get(&peer, "/kubewarm.io/peer/v1/stores/0")?.code, 404);
    let api = world.cluster.run(["create", "token", "kubewarm", "-n", NAMESPACE])?;
    assert_eq!(ask(&api)?, 401, "a token for another audience");
    let other = account(&world, &namespace, "other")?;
    assert_eq!(ask(&other)?, 401);
    let other = peer_token("other")?;
    assert_eq!(ask(&other)?, 403, "another ServiceAccount");
    // Even a cluster administrator has no access, because no RBAC rule can grant it.
    world.cluster.run([
        "create",
        "clusterrolebinding",
        "other",
        "--clusterrole=cluster-admin",
        &format!("--serviceaccount={namespace}:other"),
    ])?;
    assert_eq!(ask(&other)?, 403);
    world.cluster.run(["create", "serviceaccount", "kubewarm", "-n", &namespace])?;
    assert_eq!(ask(&peer_token("kubewarm")?)?, 403, "another namespace");
    Ok(())
}

/// Clients of two replicas. A new replica replaces each of the two in turn.
struct UpdateClients<'a> {
    api: Server,
    /// The replica to which the Service sends new connections.
    replica: RwLock<Arc<Server>>,
    token: &'a str,
    path: String,
    is_over: AtomicBool,
}

impl UpdateClients<'_> {
    /// Writes 50 times a second, and returns the number of writes.
    fn write(&self) -> Result<u64, String> {
        let path = format!("{}/written", self.path);
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written"}});
        self.api
            .write(self.token, ("POST", &self.path), &body)
            .map_err(|error| error.to_string())?;
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            let body = json!({"data": {"number": number.to_string()}});
            let written = self.api.write(self.token, ("PATCH", &path), &body);
            let written = written.map_err(|error| error.to_string())?;
            if written.code != 200 {
                return Err(written.text);
            }
            sleep(Duration::from_millis(20));
        }
        Ok(number)
    }

    /// Reads, and returns the number of responses. None may fail or be older than the one before.
    fn read(&self) -> Result<u64, String> {
        let (mut count, mut newest) = (0, 0);
        while !self.is_over.load(Ordering::Relaxed) {
            let server = Arc::clone(&self.replica.read());
            let reply = server.get(self.token, &self.path).map_err(|error| error.to_string())?;
            let list = reply.json();
            let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let version = version.and_then(|version| version.parse::<u64>().ok());
            match version {
                Some(version) if reply.code == 200 && version >= newest => newest = version,
                _ => return Err(format!("{version:?} after {newest}: {} {list}", reply.code)),
            }
            count += 1;
        }
        Ok(count)
    }

    /// Watches with bookmarks, and continues each ended watch at its last version. Returns how
    /// often it continued, and the written numbers.
    fn watch(&self) -> Result<(u64, Vec<u64>), String> {
        let (mut count, mut numbers, mut version) = (0, Vec::new(), "0".to_owned());
        while !self.is_over.load(Ordering::Relaxed) {
            let server = Arc::clone(&self.replica.read());
            let query =
                format!("{}?watch=1&allowWatchBookmarks=1&resourceVersion={version}", self.path);
            let watch = server.watch(self.token, &query, "application/json");
            let watch = watch.map_err(|error| error.to_string())?;
            let mut seen = 0;
            loop {
                let is_last = watch.is_over() || self.is_over.load(Ordering::Relaxed);
                let events = watch.events();
                for event in events.get(seen..).unwrap_or_default() {
                    if watch.code != 200 || event["type"] == "ERROR" {
                        return Err(format!("{} {event}", watch.code));
                    }
                    let text = |pointer| event.pointer(pointer).and_then(Value::as_str);
                    if let Some(reached) = text("/object/metadata/resourceVersion") {
                        reached.clone_into(&mut version);
                    }
                    numbers.extend(text("/object/data/number").and_then(|n| n.parse::<u64>().ok()));
                }
                seen = events.len();
                if is_last {
                    break;
                }
                sleep(Duration::from_millis(20));
            }
            count += 1;
        }
        Ok((count, numbers))
    }
}

#[test]
fn a_rolling_update_fails_no_read_and_no_client_gets_an_older_version_or_lists_again() -> Outcome {
    let world = World::alone()?;
    let namespace = world.namespace("team")?;
    let replicas = Replicas::new(&world)?;
    let mut replica = replicas.start_first()?;
    let token = account(&world, &namespace, "client")?;
    let_read(&world, (&namespace, "client"), Some(&namespace))?;
    let_write(&world, (&namespace, "client"), Some(&namespace))?;
    warm(&world, &namespace, "{targets: [{name: settings, resource: configmaps}]}")?;
    let clients = UpdateClients {
        api: Server::api(&world)?,
        replica: RwLock::new(Arc::new(replica.server()?)),
        token: &token,
        path: format!("/api/v1/namespaces/{namespace}/configmaps"),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| -> Outcome {
        let written = scope.spawn(|| clients.write());
        let read: Vec<_> = (0..4).map(|_| scope.spawn(|| clients.read())).collect();
        let watched: Vec<_> = (0..4).map(|_| scope.spawn(|| clients.watch())).collect();
        let mut update = || -> Outcome {
            for pod in ["second", "third"] {
                sleep(Duration::from_secs(2));
                let next = replicas.start(pod, &replica.address()?, replica.authority())?;
                await_ready(&next)?;
                // The Service first sends clients to the new replica, and then the old one ends.
                *clients.replica.write() = Arc::new(next.server()?);
                replica.operator.process.term()?;
                replica = next;
            }
            sleep(Duration::from_secs(2));
            Ok(())
        };
        let updated = update();
        clients.is_over.store(true, Ordering::Relaxed);
        let written = joined(written)?;
        assert!(written > 100, "{written} writes");
        for count in read.into_iter().map(joined) {
            assert!(count? > 50);
        }
        for watched in watched.into_iter().map(joined) {
            let (count, numbers) = watched?;
            assert!(count >= 3, "the watch continued at {count} replicas");
            let first = numbers.first().copied().unwrap_or_default();
            let expected: Vec<u64> = (first..).take(numbers.len()).collect();
            assert_eq!(numbers, expected, "each write is one event");
            assert!(written - numbers.last().copied().unwrap_or_default() < 100);
        }
        updated
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, Failure> {
    let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    ended.map_err(Failure::from)
}
