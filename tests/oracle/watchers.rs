//! Lists and watches a collection at one replica, as a client's reflector does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;

use crate::collection::COLLECTIONS;
use crate::observation::{
    ChangeType, CollectionIndex, Form, ObservedContent, ReaderId, named_state,
};
use crate::readers::{ReplicaReader, list_objects};
use crate::request::open;

/// Pause after a refused or ended watch.
const RETRY: Duration = Duration::from_millis(200);

/// The version that each watch has reached, by reader and collection.
pub(crate) type WatchPositions = Arc<Mutex<BTreeMap<(ReaderId, CollectionIndex), u64>>>;

/// Why a watch ended.
enum WatchEnd {
    /// The watch ended, and the client opens another from the last version.
    Resume,
    /// The server does not have the changes any more, so the client lists.
    Expired,
}

/// One client with a watch.
pub(crate) struct OracleWatcher {
    pub(crate) observer: ReplicaReader,
    pub(crate) collection: CollectionIndex,
    pub(crate) form: Form,
    pub(crate) positions: WatchPositions,
}

impl OracleWatcher {
    /// Lists and watches until the run ends.
    pub(crate) async fn run(self) {
        let stop = self.observer.stop.clone();
        let follow = async {
            loop {
                if let Some(version) = self.observer.list(self.collection, self.form, 0).await {
                    self.follow(version).await;
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => (),
            () = follow => (),
        }
    }

    /// Watches from a version, again and again, until the server returns 410.
    async fn follow(&self, mut version: u64) {
        let mut resumes = false;
        loop {
            self.note(ObservedContent::WatchOpened { version, resumes });
            self.reach(version);
            if matches!(self.watch(&mut version).await, WatchEnd::Expired) {
                return;
            }
            resumes = true;
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn watch(&self, version: &mut u64) -> WatchEnd {
        let path = COLLECTIONS[self.collection].path();
        let path = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        let headers = [("accept", self.form.accept())];
        let sent = Instant::now();
        let reply = open(&self.observer.client, ("GET", &path), &headers, None).await;
        let code = reply.as_ref().map_or(0, |reply| reply.status().as_u16());
        let Some(reply) = reply.filter(|_| code == 200) else {
            let content = ObservedContent::Refused { code };
            self.observer.note(self.collection, (sent, Instant::now()), content);
            return if code == 410 { WatchEnd::Expired } else { WatchEnd::Resume };
        };
        let (mut body, mut rest) = (reply.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event = serde_json::from_slice(&line).unwrap_or_default();
                if let Some(end) = self.receive(&event, version) {
                    return end;
                }
            }
        }
        WatchEnd::Resume
    }

    /// Records an event as an observation. If the event is an error, returns how the watch ends.
    fn receive(&self, event: &Value, version: &mut u64) -> Option<WatchEnd> {
        let object = &event["object"];
        let change = match event["type"].as_str()? {
            "ADDED" => ChangeType::Added,
            "MODIFIED" => ChangeType::Modified,
            "DELETED" => ChangeType::Deleted,
            "BOOKMARK" => {
                let reached = object["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
                *version = reached;
                self.note(ObservedContent::Bookmark { version: reached });
                self.reach(reached);
                return None;
            }
            _ => {
                let code = object["code"].as_u64().and_then(|code| code.try_into().ok());
                self.note(ObservedContent::Refused { code: code.unwrap_or_default() });
                return Some(if code == Some(410) { WatchEnd::Expired } else { WatchEnd::Resume });
            }
        };
        let (name, object) = match self.form {
            Form::Whole => named_state(object, self.form)?,
            Form::Metadata => list_objects(object, self.form)?.pop_first()?,
        };
        *version = object.version;
        self.note(ObservedContent::Event { form: self.form, change, name, object });
        self.reach(object.version);
        None
    }

    fn note(&self, content: ObservedContent) {
        let now = Instant::now();
        self.observer.note(self.collection, (now, now), content);
    }

    fn reach(&self, version: u64) {
        let key = (self.observer.id.clone(), self.collection);
        self.positions.lock().insert(key, version);
    }
}
