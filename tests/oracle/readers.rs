//! Reads from one replica. Each kind of read has a ServiceAccount of its own, because kubewarm
//! remembers read versions for each user.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::collection::{COLLECTIONS, STRICT};
use crate::observation::{
    CollectionIndex, Form, ObjectState, Observation, ObservedContent, ReaderId, StatedAge,
    named_state,
};
use crate::recorder::RunClock;
use crate::request::{OracleReply, send};
use crate::writers::random_name;

/// The longest time between two reads of a reader.
const PAUSE: Duration = Duration::from_millis(300);
/// The number of objects of a page.
const PAGE: usize = 4;

/// How a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OracleRead {
    Lists,
    Gets,
    Strict,
    Tables,
    Pages,
    /// Lists that are at least as new as the last list of [`OracleRead::Lists`] at either replica.
    NotOlderThan,
    /// Writes through the replica, and then reads.
    OwnWrites,
}

/// The identity and client of one reader, and what all readers of a run share.
#[derive(Clone)]
pub(crate) struct ReplicaReader {
    pub(crate) id: ReaderId,
    pub(crate) client: Client,
    pub(crate) clock: RunClock,
    pub(crate) observations: UnboundedSender<Observation>,
    pub(crate) stop: CancellationToken,
}

impl ReplicaReader {
    pub(crate) fn note(
        &self,
        collection: CollectionIndex,
        (sent, arrived): (Instant, Instant),
        content: ObservedContent,
    ) {
        let (sent, arrived) = (self.clock.at(sent), self.clock.at(arrived));
        let reader = self.id.clone();
        // Sending does not fail, because the receiver lives as long as the run.
        let _ = self.observations.send(Observation { reader, collection, sent, arrived, content });
    }

    /// Sends a read. Returns the response if it is 200, or 404 for an object. Records every other
    /// response as an observation, and returns `None`.
    async fn read(
        &self,
        collection: CollectionIndex,
        path: &str,
        form: Form,
    ) -> Option<(Instant, OracleReply)> {
        let sent = Instant::now();
        let reply = send(&self.client, ("GET", path), &[("accept", form.accept())], None).await;
        let code = reply.as_ref().map_or(0, OracleReply::code);
        if code != 200 && !reply.as_ref().is_some_and(is_absent_object) {
            self.note(collection, (sent, Instant::now()), ObservedContent::Refused { code });
            return None;
        }
        Some((sent, reply?))
    }

    /// Lists a collection that is at least as new as a version. Returns the version of the list.
    pub(crate) async fn list(
        &self,
        collection: CollectionIndex,
        form: Form,
        at_least: u64,
    ) -> Option<u64> {
        let mut path = COLLECTIONS[collection].path();
        if at_least > 0 {
            path = format!("{path}?resourceVersion={at_least}&resourceVersionMatch=NotOlderThan");
        }
        let (sent, reply) = self.read(collection, &path, form).await?;
        let (age, list) = (stated_age(&reply), reply.json());
        let parts = list_version(&list).zip(list_objects(&list, form));
        let version = parts.as_ref().map(|(version, _)| *version);
        let content = parts.map_or(ObservedContent::Malformed, |(version, objects)| {
            ObservedContent::List { form, version, at_least, objects, age }
        });
        self.note(collection, (sent, reply.arrived), content);
        version
    }

    /// Lists a collection in pages.
    async fn pages(&self, collection: CollectionIndex) -> Option<()> {
        let (form, at_least) = (Form::Whole, 0);
        let base = format!("{}?limit={PAGE}", COLLECTIONS[collection].path());
        let (mut path, mut objects) = (base.clone(), BTreeMap::new());
        let mut first = None;
        loop {
            let (sent, reply) = self.read(collection, &path, form).await?;
            let list = reply.json();
            let page = list_version(&list).zip(list_objects(&list, form));
            let (version, page) = page.unwrap_or_default();
            // The age of a list in pages is that of its first page, because all pages have the
            // version of the first.
            let (times, age, of_first) =
                *first.get_or_insert_with(|| ((sent, reply.arrived), stated_age(&reply), version));
            let count = objects.len() + page.len();
            objects.extend(page);
            if version == 0 || version != of_first || objects.len() != count {
                self.note(collection, (sent, reply.arrived), ObservedContent::Malformed);
                return None;
            }
            let next = list["metadata"]["continue"].as_str().unwrap_or_default();
            if next.is_empty() {
                let content = ObservedContent::List { form, version, at_least, objects, age };
                self.note(collection, times, content);
                return Some(());
            }
            path = format!("{base}&continue={next}");
        }
    }

    async fn get(&self, collection: CollectionIndex, name: String) -> Option<()> {
        let path = format!("{}/{name}", COLLECTIONS[collection].path());
        let (sent, reply) = self.read(collection, &path, Form::Whole).await?;
        let age = stated_age(&reply);
        let content = if is_absent_object(&reply) {
            ObservedContent::Get { name, object: None, age }
        } else {
            match named_state(&reply.json(), Form::Whole) {
                Some((key, state)) if key == name => {
                    ObservedContent::Get { name, object: Some(state), age }
                }
                _ => ObservedContent::Malformed,
            }
        };
        self.note(collection, (sent, reply.arrived), content);
        Some(())
    }

    /// Writes an object that belongs to this reader only, through the replica.
    async fn write(&self, collection: CollectionIndex, name: &str, content: u64) -> Option<()> {
        let sent = Instant::now();
        let path = COLLECTIONS[collection].path();
        let object = COLLECTIONS[collection].object(name, &content.to_string());
        let one = format!("{path}/{name}");
        let change = json!({"data": object["data"]});
        let mut reply = send(&self.client, ("PATCH", &one), &[], Some(&change)).await;
        if reply.as_ref().is_some_and(is_absent_object) {
            reply = send(&self.client, ("POST", &path), &[], Some(&object)).await;
        }
        let code = reply.as_ref().map_or(0, OracleReply::code);
        let written = reply.filter(|_| matches!(code, 200 | 201));
        let state = written.and_then(|reply| named_state(&reply.json(), Form::Whole));
        let is_written = state.is_some();
        let content = state.map_or(ObservedContent::Refused { code }, |(name, state)| {
            ObservedContent::Written { name, version: state.version }
        });
        self.note(collection, (sent, Instant::now()), content);
        is_written.then_some(())
    }

    /// Reads until the run ends.
    pub(crate) async fn run(
        self,
        kind: OracleRead,
        last: Arc<AtomicU64>,
        mut random: fastrand::Rng,
    ) {
        while !self.stop.is_cancelled() {
            let collection = random.usize(..STRICT);
            match kind {
                OracleRead::Lists => {
                    let version = self.list(collection, Form::Whole, 0).await;
                    last.store(version.unwrap_or_default(), Ordering::Relaxed);
                }
                OracleRead::Gets => {
                    let collection = random.usize(..COLLECTIONS.len());
                    self.get(collection, random_name(&mut random)).await;
                }
                OracleRead::Strict if random.bool() => {
                    self.list(STRICT, Form::Whole, 0).await;
                }
                OracleRead::Strict => {
                    self.get(STRICT, random_name(&mut random)).await;
                }
                OracleRead::Tables => {
                    self.list(collection, Form::Metadata, 0).await;
                }
                OracleRead::Pages => {
                    self.pages(collection).await;
                }
                OracleRead::NotOlderThan => {
                    let at_least = last.load(Ordering::Relaxed);
                    self.list(collection, Form::Whole, at_least).await;
                }
                OracleRead::OwnWrites => {
                    let name = format!("own-{}", self.id.replica);
                    if self.write(collection, &name, random.u64(..)).await.is_some() {
                        self.get(collection, name).await;
                        self.list(collection, Form::Whole, 0).await;
                    }
                }
            }
            tokio::time::sleep(PAUSE.mul_f64(random.f64())).await;
        }
    }
}

fn stated_age(reply: &OracleReply) -> StatedAge {
    let headers = &reply.head.headers;
    let freshness = headers.get("kubewarm-freshness-milliseconds");
    let freshness = freshness.and_then(|value| value.to_str().ok()?.parse().ok());
    StatedAge { freshness, has_warning: headers.contains_key("warning") }
}

/// The version of a list.
fn list_version(list: &Value) -> Option<u64> {
    list["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Whether the response says that the object does not exist.
fn is_absent_object(reply: &OracleReply) -> bool {
    reply.code() == 404 && reply.json()["details"]["name"].is_string()
}

/// The objects of a list or a Table. `None` if an object cannot be parsed or occurs twice.
pub(crate) fn list_objects(list: &Value, form: Form) -> Option<BTreeMap<String, ObjectState>> {
    let items = list[if form == Form::Whole { "items" } else { "rows" }].as_array()?;
    let state = |item: &Value| match form {
        Form::Whole => named_state(item, form),
        Form::Metadata => named_state(&item["object"], form),
    };
    let objects: Option<BTreeMap<_, _>> = items.iter().map(state).collect();
    objects.filter(|objects| objects.len() == items.len())
}
