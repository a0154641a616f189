//! Tests of informers at an API server that has protobuf, and sends fields that kubewarm does not
//! know.

use crate::{
    engine::{ByName, Engine, informer, quick},
    reply::{Feed, Reply, quiet},
    server::{Kind, ReceivedQuery, ScriptedServer},
};
use kubewarm_api::model::{DecodedObject, InformerSpec, ObjectEncoding};
use kubewarm_cache::{
    informer::{InformerReport, SampleProjection, SampleRequest, fetch_sample_page},
    store::{FollowerEvent, StoreReader},
};
use kubewarm_client::ClientProvider as _;
use kubewarm_wire::{
    JsonBuffer, ObjectBody,
    protobuf::{
        ListMeta, Unknown, item_length, message_of_kind, write_item, write_list_head,
        write_list_tail, write_watch_event,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The number of a field that no message of Kubernetes has.
const UNKNOWN: u8 = 99;

/// A protobuf field. The value must be shorter than 128 bytes and the number below 16, so that each
/// takes one byte.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

/// A `ConfigMap`, or an object of another kind with only metadata, in the namespace `ns`.
pub(crate) fn message(name: &str, version: u32) -> Vec<u8> {
    let version = version.to_string();
    let metadata = [
        field(1, name.as_bytes()),
        field(3, b"ns"),
        field(5, name.as_bytes()),
        field(6, version.as_bytes()),
    ];
    field(1, &metadata.concat())
}

/// The object of [`message`] in JSON.
fn json(name: &str, version: u32) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{name}","resourceVersion":"{version}"}}}}"#
    )
}

fn with_unknown_field(mut object: Vec<u8>) -> Vec<u8> {
    object.extend([(UNKNOWN & 0xf) << 3 | 0x80, UNKNOWN >> 4, 1]);
    object
}

fn list(version: &str, items: &[Vec<u8>]) -> Reply {
    let length = items.iter().map(|item| item_length(item.len())).sum();
    let meta = ListMeta { version, ..ListMeta::default() };
    let mut out = Vec::new();
    write_list_head("v1", "ConfigMapList", &meta, length, &mut out);
    for item in items {
        write_item(item, &mut out);
    }
    write_list_tail(&mut out);
    Reply::protobuf(out)
}

fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let object = Unknown { api_version: "v1", kind: "ConfigMap", raw: object };
    write_watch_event(kind, &object, &mut out);
    out
}

/// Answers the request that compares the encodings of the first object, and lists two objects in
/// JSON.
fn answer(asked: &ReceivedQuery) -> Reply {
    match (asked.kind, asked.accepts_protobuf) {
        (Kind::Newest, true) => list("7", &[message("a", 3)]),
        (Kind::Newest, false) if asked.query("resourceVersionMatch") == "Exact" => {
            Reply::json(crate::reply::list(7, &[json("a", 3)]))
        }
        (Kind::List, false) => Reply::json(crate::reply::list(9, &[json("a", 3), json("b", 9)])),
        _ => quiet(asked),
    }
}

struct ProtobufEngine {
    server: ScriptedServer,
    engine: Engine,
    settings: InformerSpec,
}

impl ProtobufEngine {
    async fn start(script: impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static) -> Self {
        let server = ScriptedServer::with_protobuf(script).await;
        let mut timing = quick();
        timing.server_version_ttl = Duration::from_millis(50);
        let mut engine = Engine::new(&server, timing);
        let settings = informer("configmaps");
        engine.start(&settings);
        Self { server, engine, settings }
    }

    fn reader(&self) -> StoreReader {
        self.engine.catalog.reader(&self.settings.key).unwrap()
    }

    async fn until_shown(&self, expected: &[&str]) -> InformerReport {
        self.engine.until_shown(&self.settings.key, expected).await
    }

    fn fallbacks(&self) -> u64 {
        self.engine.count(|metrics| metrics.protobuf_fallbacks.get())
    }

    /// The JSON of all stored objects.
    fn stored(&self) -> Vec<String> {
        let objects = self.engine.objects(&self.settings.key);
        let json = |object: &kubewarm_cache::store::StoredObject| {
            let mut buffer = JsonBuffer::default();
            String::from_utf8(object.body().to_json(&mut buffer).unwrap().to_vec()).unwrap()
        };
        objects.iter().map(json).collect()
    }
}

fn protobuf() -> ObjectEncoding {
    ObjectEncoding::Protobuf(message_of_kind("v1", "ConfigMap").unwrap())
}

/// A script whose list is in protobuf. The test sends the events of the first watch.
fn with_watch() -> (Feed, impl Fn(&ReceivedQuery) -> Reply + Send + Sync + 'static) {
    let (feed, watch) = Reply::fed();
    let watch = parking_lot::Mutex::new(Some(watch.in_protobuf()));
    let script = move |asked: &ReceivedQuery| match (asked.kind, asked.accepts_protobuf) {
        (Kind::List, true) => list("8", &[message("a", 3), message("b", 5)]),
        (Kind::Watch, true) => watch.lock().take().unwrap_or_else(|| quiet(asked).in_protobuf()),
        _ => answer(asked),
    };
    (feed, script)
}

#[tokio::test]
async fn a_built_in_kind_is_read_in_protobuf_and_returned_as_json() {
    let (feed, script) = with_watch();
    let world = ProtobufEngine::start(script).await;
    world.until_shown(&["a@3", "b@5"]).await;
    assert_eq!(world.reader().encoding(), protobuf());
    feed.frame(event("MODIFIED", &message("b", 11)));
    feed.frame(event("DELETED", &message("a", 12)));
    feed.frame(event("ADDED", &message("c", 13)));
    let report = world.until_shown(&["b@11", "c@13"]).await;
    assert_eq!(world.stored(), [json("b", 11), json("c", 13)]);
    assert_eq!((report.json_fallback, world.fallbacks()), (None, 0));
    assert_eq!(world.server.count(Kind::List), 1);
}

#[tokio::test]
async fn an_object_that_differs_from_its_json_makes_the_informer_read_json() {
    let world = ProtobufEngine::start(|asked| match (asked.kind, asked.accepts_protobuf) {
        (Kind::Newest, true) => list("7", &[message("a", 4)]),
        _ => answer(asked),
    })
    .await;
    let report = world.until_shown(&["a@3", "b@9"]).await;
    assert!(report.json_fallback.is_some_and(|cause| cause.contains("differs")));
    assert_eq!((world.reader().encoding(), world.fallbacks()), (ObjectEncoding::Json, 1));
}

#[tokio::test]
async fn an_informer_that_must_read_json_copies_no_store_of_a_peer() {
    let server =
        ScriptedServer::with_protobuf(|asked| match (asked.kind, asked.accepts_protobuf) {
            (Kind::Newest, true) => list("7", &[message("a", 4)]),
            _ => answer(asked),
        })
        .await;
    let peer = ScriptedServer::start(|_| Reply::refused(404, "NotFound")).await;
    let mut engine = Engine::new(&server, quick()).with_peers(&[&peer]);
    let mut configmaps = informer("configmaps");
    configmaps.key.declared_in = Some("ns".into());
    engine.start(&configmaps);
    engine.until_shown(&configmaps.key, &["a@3", "b@9"]).await;
    assert_eq!(peer.asked().len(), 0);
}

#[tokio::test]
async fn an_unknown_field_in_a_list_makes_the_informer_list_in_json() {
    let world = ProtobufEngine::start(|asked| match (asked.kind, asked.accepts_protobuf) {
        (Kind::List, true) => list("8", &[message("a", 3), with_unknown_field(message("b", 5))]),
        _ => answer(asked),
    })
    .await;
    let report = world.until_shown(&["a@3", "b@9"]).await;
    assert_eq!(world.reader().encoding(), ObjectEncoding::Json);
    assert_eq!(world.stored(), [json("a", 3), json("b", 9)]);
    let cause = report.json_fallback.unwrap();
    assert!(cause.contains("core/v1.ConfigMap") && cause.contains("99"), "{cause}");
    assert_eq!((world.fallbacks(), report.last_relist), (1, None));
}

#[tokio::test]
async fn an_unknown_field_in_an_event_ends_watches_and_makes_the_informer_list_in_json() {
    let (feed, script) = with_watch();
    let world = ProtobufEngine::start(script).await;
    world.until_shown(&["a@3", "b@5"]).await;
    let mut follower = world.reader().follow_from_now();
    feed.frame(event("MODIFIED", &with_unknown_field(message("b", 9))));
    let report = world.until_shown(&["a@3", "b@9"]).await;
    assert_eq!(world.reader().encoding(), ObjectEncoding::Json);
    assert!(matches!(follower.next_event(), FollowerEvent::Lost));
    assert!(report.json_fallback.is_some());
    assert_eq!(world.fallbacks(), 1);
}

/// A `ConfigMap` whose name is not UTF-8.
fn with_bad_name(version: u32) -> Vec<u8> {
    let mut object = message("b", version);
    let at = object.iter().position(|byte| *byte == b'b').unwrap();
    object[at] = 0xff;
    object
}

#[tokio::test]
async fn a_name_that_is_not_utf8_makes_the_informer_list_in_json() {
    let world = ProtobufEngine::start(|asked| match (asked.kind, asked.accepts_protobuf) {
        (Kind::List, true) => list("8", &[message("a", 3), with_bad_name(5)]),
        _ => answer(asked),
    })
    .await;
    let report = world.until_shown(&["a@3", "b@9"]).await;
    assert_eq!(world.reader().encoding(), ObjectEncoding::Json);
    assert!(report.undecodable.is_empty());
    assert!(report.json_fallback.is_some_and(|cause| cause.contains("not UTF-8")));
}

#[tokio::test]
async fn an_unreadable_object_decides_nothing_for_profiles_of_other_namespaces() {
    let mut world = ProtobufEngine::start(|asked| match (asked.kind, asked.accepts_protobuf) {
        (Kind::List, true) if asked.nth == 0 => list("8", &[message("a", 3), with_bad_name(5)]),
        (Kind::List, true) => list("8", &[message("a", 3)]),
        _ => answer(asked),
    })
    .await;
    world.until_shown(&["a@3", "b@9"]).await;
    assert_eq!(world.reader().encoding(), ObjectEncoding::Json);
    let mut of_other = world.settings.clone();
    of_other.key.declared_in = Some("other".into());
    world.engine.start(&of_other);
    world.engine.until_shown(&of_other.key, &["a@3"]).await;
    let reader = world.engine.catalog.reader(&of_other.key).unwrap();
    assert_ne!(reader.encoding(), ObjectEncoding::Json);
}

#[tokio::test]
async fn a_name_that_is_not_utf8_in_an_event_makes_the_informer_list_in_json() {
    let (feed, script) = with_watch();
    let world = ProtobufEngine::start(script).await;
    world.until_shown(&["a@3", "b@5"]).await;
    let mut follower = world.reader().follow_from_now();
    feed.frame(event("ADDED", &with_bad_name(9)));
    let report = world.until_shown(&["a@3", "b@9"]).await;
    assert!(matches!(follower.next_event(), FollowerEvent::Lost));
    assert!(report.undecodable.is_empty() && report.json_fallback.is_some());
}

#[tokio::test]
async fn another_version_of_the_api_server_is_read_in_protobuf_again() {
    let is_upgraded = Arc::new(AtomicBool::new(false));
    let upgraded = Arc::clone(&is_upgraded);
    let world = ProtobufEngine::start(move |asked| {
        let is_new = upgraded.load(Ordering::Relaxed);
        match (asked.kind, asked.accepts_protobuf) {
            (Kind::Version, _) if is_new => Reply::json(
                r#"{"major":"1","minor":"37","gitVersion":"v1.37.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#,
            ),
            (Kind::List, true) if is_new => list("10", &[message("a", 3), message("b", 10)]),
            (Kind::List, true) => list("8", &[with_unknown_field(message("a", 3))]),
            (Kind::Watch, true) => quiet(asked).in_protobuf(),
            (Kind::Watch, false) => Reply::lines([crate::reply::bookmark(9)]).after(Duration::from_millis(300)),
            _ => answer(asked),
        }
    })
    .await;
    world.until_shown(&["a@3", "b@9"]).await;
    is_upgraded.store(true, Ordering::Relaxed);
    let report = world.until_shown(&["a@3", "b@10"]).await;
    assert_eq!((world.reader().encoding(), report.json_fallback), (protobuf(), None));
}

#[tokio::test]
async fn a_sample_is_in_protobuf_if_accepted() {
    let server = ScriptedServer::with_protobuf(|asked| {
        if asked.accepts_protobuf {
            list("8", &[message("a", 3), message("b", 5)])
        } else {
            Reply::json(crate::reply::list(8, &[json("a", 3), json("b", 5)]))
        }
    })
    .await;
    let key = informer("configmaps").key;
    let client = ByName(server.address).client_for(&key.identity);
    for (can_use_protobuf, encoding) in [(true, protobuf()), (false, ObjectEncoding::Json)] {
        let projection = SampleProjection::AsDeclared;
        let request = SampleRequest { projection, limit: 20, token: "", can_use_protobuf };
        let mut seen = Vec::new();
        let visit = |encoding, item: &DecodedObject<'_>| {
            let body = ObjectBody { encoding, bytes: item.body };
            let json = body.to_json(&mut JsonBuffer::default()).unwrap().to_vec();
            seen.push((encoding, String::from_utf8(json).unwrap()));
        };
        let page = fetch_sample_page(&client, &key, request, visit).await.unwrap();
        assert_eq!(page.objects, 2);
        assert_eq!(seen, [json("a", 3), json("b", 5)].map(|json| (encoding, json)));
    }
}
