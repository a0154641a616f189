//! A scripted API server over plain HTTP/1.1: it answers only what the operator requests, and
//! generates its pods.
//!
//! Lists of pods are sent in protobuf while they are generated. Each TokenReview and access review
//! allows everything. After a request without a script the server ends with an error, so that the
//! bench fails.

use super::pods::{ScriptedCluster, namespace, to_json};
use crate::{operator, subject::reply, write::WriteResult};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fastrand::Rng;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kubewarm_wire::{BookmarkKind, JSON, PROTOBUF, protobuf};
use serde_json::{Value, json};
use std::{convert::Infallible, iter, ops::Range, sync::Arc, time::Duration};
use tokio::{io, io::AsyncBufReadExt as _, net, select, sync, time};

/// Interval of bookmarks, as in a real API server.
const BOOKMARKS: Duration = Duration::from_mins(1);
const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Pods in one chunk of a list.
const CHUNK: usize = 100;

type ScriptedResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

struct ScriptedApi {
    cluster: ScriptedCluster,
    /// The bytes of the pods of each namespace in a list.
    lengths: Vec<usize>,
    changes: sync::broadcast::Sender<PodChange>,
    unknown: sync::Notify,
}

#[derive(Clone)]
struct PodChange {
    index: u32,
    version: u64,
    event: Bytes,
}

/// Prints the address, serves, and changes pods after each command `events RATE SECONDS` on
/// standard input, until that ends.
///
/// # Errors
///
/// An unknown command or request, and a closed standard output.
pub async fn serve(cluster: ScriptedCluster) -> Result<()> {
    let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    let lengths = cluster.lengths();
    let (changes, unknown) = (sync::broadcast::Sender::new(1 << 14), sync::Notify::new());
    let api = Arc::new(ScriptedApi { cluster, lengths, changes, unknown });
    reply(&listener.local_addr()?).await?;
    let served = Arc::clone(&api);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer_all(Arc::clone(&served), connection));
        }
    });
    let mut commands = io::BufReader::new(io::stdin()).lines();
    let mut version = u64::from(cluster.count());
    loop {
        let command = select! {
            command = commands.next_line() => command?,
            () = api.unknown.notified() => bail!("add the request to scale/server.rs"),
        };
        let Some(command) = command else { return Ok(()) };
        let numbers = command.strip_prefix("events ").and_then(|rest| rest.split_once(' '));
        let (rate, seconds) = numbers.with_context(|| format!("unknown command {command:?}"))?;
        reply(&api.change(rate.parse()?, seconds.parse()?, &mut version).await?).await?;
    }
}

async fn answer_all(api: Arc<ScriptedApi>, connection: net::TcpStream) {
    // Without this setting, small responses wait for the acknowledgement of earlier ones.
    let _unchanged = connection.set_nodelay(true);
    let answer = service_fn(async |request| api.answer(request).await);
    // A client that leaves is no failure of the server.
    let _left = http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await;
}

impl ScriptedApi {
    async fn answer(&self, request: Request<body::Incoming>) -> Result<ScriptedResponse> {
        let (head, sent) = request.into_parts();
        let body = sent.collect().await?.to_bytes();
        let mut sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let accept = head.headers.get(header::ACCEPT);
        let is_protobuf =
            accept.is_some_and(|accept| accept.as_bytes().starts_with(PROTOBUF.as_bytes()));
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let all = 0..self.cluster.namespaces;
        Ok(match (head.method.as_str(), parts.as_slice()) {
            ("GET", ["version"]) => {
                ok(&json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4"}))
            }
            ("GET", ["api"]) => group("", "v1", "pods", "Pod"),
            ("GET", ["apis"]) => group("kubewarm.io", "v1alpha1", "cacheprofiles", "CacheProfile"),
            ("GET", ["apis", "kubewarm.io", _, "cacheprofiles"]) => {
                let items = (0..self.cluster.profiles).map(|index| self.profile(index));
                self.answer_json(["kubewarm.io/v1alpha1", "CacheProfile"], query, items.collect())
            }
            ("GET", [.., "pods"]) if query.contains("limit=1") => {
                self.answer_first_pod(is_protobuf)
            }
            ("GET", [.., "pods"]) if !is_protobuf => {
                self.answer_json(["v1", "Pod"], query, json!([]))
            }
            ("GET", ["api", "v1", "pods"]) => self.answer_pods(all, query),
            ("GET", ["api", "v1", "namespaces", name, "pods"]) => {
                match all.into_iter().find(|index| namespace(*index) == **name) {
                    Some(index) => self.answer_pods(index..index + 1, query),
                    None => not_found(),
                }
            }
            ("POST", ["apis", "authentication.k8s.io" | "authorization.k8s.io", ..]) => {
                sent["status"] = allowed();
                ok(&sent)
            }
            // No lease exists, so the only operator takes it. There is no admission policy either,
            // which is optional.
            ("GET", [.., "leases", _] | ["apis", "admissionregistration.k8s.io", ..]) => {
                not_found()
            }
            ("PUT", [.., "leases", _]) => {
                sent["metadata"]["resourceVersion"] = "1".into();
                ok(&sent)
            }
            ("PATCH", [.., "cacheprofiles", _, "status"]) | ("POST", [.., "events"]) => ok(&sent),
            (method, _) => {
                tracing::error!(method, path, query, "a request without a script");
                self.unknown.notify_one();
                not_found()
            }
        })
    }

    /// One profile reads all namespaces, as an administrator's. Several profiles each read their
    /// own namespace.
    fn profile(&self, index: u32) -> Value {
        let (scope, namespace) = match self.cluster.profiles {
            1 => ("AllNamespaces", operator::NAMESPACE.to_owned()),
            _ => ("OwnNamespace", namespace(index)),
        };
        json!({
            "apiVersion": "kubewarm.io/v1alpha1", "kind": "CacheProfile",
            "metadata": {"name": "pods", "namespace": namespace, "uid": format!("profile-{index}"),
                "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"targets": [{"name": "pods", "resource": "pods", "scope": {"type": scope}}]},
        })
    }

    /// Answers a list or a watch of objects that never change.
    fn answer_json(&self, type_meta: [&str; 2], query: &str, items: Value) -> ScriptedResponse {
        let [api_version, kind] = type_meta;
        let metadata = json!({"resourceVersion": self.cluster.count().to_string()});
        if query.contains("watch=1") {
            let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
            let line = format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
            return self.watch(JSON, 0..0, query, move |_| line.clone().into());
        }
        let mut list = json!({"kind": format!("{kind}List"), "apiVersion": api_version});
        (list["metadata"], list["items"]) = (metadata, items);
        ok(&list)
    }

    /// Answers a list of one pod. The operator compares the pod's encodings before its first list.
    fn answer_first_pod(&self, is_protobuf: bool) -> ScriptedResponse {
        let pod = self.cluster.encode(0, None);
        if is_protobuf {
            let mut item = Vec::new();
            protobuf::write_item(&pod, &mut item);
            return self.answer_list(item.len(), iter::once(item));
        }
        let metadata = json!({"resourceVersion": self.cluster.count().to_string()});
        let head =
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#);
        streaming(JSON, stream::iter([head.into(), to_json(&pod).into(), "]}".into()]))
    }

    fn answer_pods(&self, namespaces: Range<u32>, query: &str) -> ScriptedResponse {
        let (generator, count) = (self.cluster, self.cluster.per_namespace);
        let pods = namespaces.start * count..namespaces.end * count;
        if query.contains("watch=1") {
            return self.watch(WATCH, pods, query, |version| {
                event(
                    "BOOKMARK",
                    &protobuf::bookmark_message(&version.to_string(), BookmarkKind::Progress),
                )
            });
        }
        let lengths = self.lengths.get(namespaces.start as usize..namespaces.end as usize);
        let chunks = pods.clone().step_by(CHUNK).map(move |start| {
            let mut out = Vec::new();
            for index in (start..pods.end).take(CHUNK) {
                protobuf::write_item(&generator.encode(index, None), &mut out);
            }
            out
        });
        self.answer_list(lengths.unwrap_or_default().iter().sum(), chunks)
    }

    /// Answers a list of pods in protobuf. `items` are encoded and have `length` bytes in total.
    fn answer_list(
        &self,
        length: usize,
        items: impl Iterator<Item = Vec<u8>> + Send + 'static,
    ) -> ScriptedResponse {
        let version = self.cluster.count().to_string();
        let metadata = protobuf::ListMeta { version: &version, ..protobuf::ListMeta::default() };
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        protobuf::write_list_head("v1", "PodList", &metadata, length, &mut head);
        protobuf::write_list_tail(&mut tail);
        let parts = iter::once(head).chain(items).chain([tail]);
        streaming(PROTOBUF, stream::iter(parts.map(Bytes::from)))
    }

    /// The events of a watch from the newest version. The operator opens no other watch.
    fn watch(
        &self,
        media_type: &'static str,
        pods: Range<u32>,
        query: &str,
        bookmark: impl Fn(u64) -> Bytes + Clone + Send + 'static,
    ) -> ScriptedResponse {
        let number = |key| query.split_once(key)?.1.split('&').next()?.parse::<u64>().ok();
        let since = number("resourceVersion=").unwrap_or_default();
        // A probe, the short watch with which kubewarm checks a silent watch, gets a bookmark
        // before its end.
        let half = number("timeoutSeconds=").unwrap_or(u64::MAX) / 2;
        let period = BOOKMARKS.min(Duration::from_secs(half.max(1)));
        let due = time::interval_at(time::Instant::now() + period, period);
        let state = (self.changes.subscribe(), due, since);
        let events = stream::unfold(state, move |(mut changes, mut due, mut version)| {
            let (pods, bookmark) = (pods.clone(), bookmark.clone());
            async move {
                let event = loop {
                    select! {
                        // In this order, so that a bookmark follows all changes up to its version.
                        biased;
                        // An error means that this watch fell behind. The watch then ends.
                        change = changes.recv() => {
                            let change = change.ok()?;
                            version = change.version;
                            if pods.contains(&change.index) {
                                break change.event;
                            }
                        }
                        _ = due.tick() => break bookmark(version),
                    }
                };
                Some((event, (changes, due, version)))
            }
        });
        streaming(media_type, events)
    }

    /// Changes random pods at a steady rate.
    async fn change(&self, rate: u32, seconds: u32, version: &mut u64) -> Result<WriteResult> {
        let mut due = time::interval(Duration::from_secs(1) / rate);
        let mut rng = Rng::with_seed(u64::from(rate));
        let (started, updates) = (time::Instant::now(), u64::from(rate) * u64::from(seconds));
        for _ in 0..updates {
            due.tick().await;
            *version += 1;
            let (index, now) = (rng.u32(..self.cluster.count()), Timestamp::now().as_nanosecond());
            let event = event("MODIFIED", &self.cluster.encode(index, Some((*version, now))));
            let change = PodChange { index, version: *version, event };
            self.changes.send(change).ok().context("the operator has no watch of pods")?;
        }
        Ok(WriteResult { updates, seconds: started.elapsed().as_secs_f64() })
    }
}

fn event(kind: &str, pod: &[u8]) -> Bytes {
    let mut out = Vec::new();
    let object = protobuf::Unknown { api_version: "v1", kind: "Pod", raw: pod };
    protobuf::write_watch_event(kind, &object, &mut out);
    out.into()
}

fn group(name: &str, version: &str, resource: &str, kind: &str) -> ScriptedResponse {
    let resource = json!({"resource": resource, "scope": "Namespaced",
        "verbs": ["get", "list", "watch"],
        "responseKind": {"group": name, "version": version, "kind": kind}});
    let version = json!({"version": version, "freshness": "Current", "resources": [resource]});
    ok(&json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [{"metadata": {"name": name}, "versions": [version]}]}))
}

/// The status of each review: any token is valid, and any action is allowed.
fn allowed() -> Value {
    let user = json!({"username": "system:serviceaccount:kubewarm-system:reader"});
    json!({"allowed": true, "authenticated": true, "user": user, "userInfo": user,
        "incomplete": false, "nonResourceRules": [],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]})
}

fn not_found() -> ScriptedResponse {
    let mut response = ok(&json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": 404, "reason": "NotFound", "message": "the bench has no script for this request"}));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn ok(body: &Value) -> ScriptedResponse {
    streaming(JSON, stream::iter([body.to_string().into()]))
}

fn streaming(
    media_type: &'static str,
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> ScriptedResponse {
    let frames = chunks.map(|chunk| Ok(body::Frame::data(chunk)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}
