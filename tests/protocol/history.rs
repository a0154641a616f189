//! A simulated API server for one kind. It keeps its whole history of changes. A seeded random
//! generator decides its faults.

use crate::{
    reply::{BodyStep, Reply, bookmark, end_bookmark, event, list_with, object, quiet, status},
    server::{Kind, ReceivedQuery},
};
use bytes::Bytes;
use fastrand::Rng;
use futures::stream;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// The number of object names. It is small, so that objects are often deleted and created again.
const NAMES: usize = 40;

/// One version of one object.
#[derive(Clone, Debug)]
struct Change {
    version: u64,
    kind: &'static str,
    name: String,
    json: String,
    is_decodable: bool,
}

/// The simulated API server.
pub(crate) struct SimulatedCluster {
    past: Mutex<Past>,
    moved: watch::Sender<u64>,
}

struct Past {
    dice: Rng,
    log: Vec<Change>,
    now: u64,
    /// The lowest version that is not compacted.
    floor: u64,
    uids: u32,
    /// Whether faults have ended, so that the store can become equal to the server's objects.
    is_calm: bool,
}

impl SimulatedCluster {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let dice = Rng::with_seed(seed);
        let past = Past { dice, log: Vec::new(), now: 100, floor: 0, uids: 0, is_calm: false };
        let world = Self { past: Mutex::new(past), moved: watch::Sender::new(100) };
        Arc::new(world)
    }

    /// Changes a random object, or compacts the history.
    pub(crate) fn step(&self) {
        let mut past = self.past.lock();
        let name = format!("o{:02}", past.dice.usize(..NAMES));
        match (past.at(u64::MAX).contains_key(&name), past.dice.u8(..20)) {
            (_, 0) => past.floor = past.now.saturating_sub(past.dice.u64(..5)),
            (false, _) => past.create(&name),
            (true, 1..13) => past.change("MODIFIED", &name),
            (true, 13..16) => {
                past.change("DELETED", &name);
                past.create(&name);
            }
            (true, _) => past.change("DELETED", &name),
        }
        let now = past.now;
        drop(past);
        self.moved.send_replace(now);
    }

    /// Ends all faults.
    pub(crate) fn calm(&self) {
        let mut past = self.past.lock();
        past.is_calm = true;
    }

    /// The bodies that the store must contain in the end, by name. Objects that kubewarm cannot
    /// decode are left out.
    pub(crate) fn truth(&self) -> BTreeMap<String, String> {
        let objects = self.past.lock().at(u64::MAX).into_iter();
        objects
            .filter(|(_, last)| last.is_decodable)
            .map(|(name, last)| (name, last.json))
            .collect()
    }

    /// All bodies that any object had.
    pub(crate) fn bodies(&self) -> BTreeSet<String> {
        self.past.lock().log.iter().map(|change| change.json.clone()).collect()
    }

    /// The response to a request.
    pub(crate) fn answer(self: &Arc<Self>, asked: &ReceivedQuery) -> Reply {
        let mut past = self.past.lock();
        if past.has_trouble(6) && !matches!(asked.kind, Kind::Version | Kind::Namespace) {
            return match past.dice.u8(..5) {
                0 => Reply::refused(500, "InternalError"),
                1 => Reply::status(503, "", "<html>down</html>".to_owned()),
                2 => Reply::refused(403, "Forbidden"),
                3 => Reply::refused(410, "Expired"),
                _ => Reply::closed(),
            };
        }
        match asked.kind {
            Kind::Version | Kind::Namespace | Kind::Review => quiet(asked),
            Kind::Newest => Reply::json(list_with(past.now, "", &[])),
            Kind::List | Kind::First | Kind::Next => past.list(asked),
            Kind::Stream => {
                let from = past.now;
                let items = past.at(from).into_values();
                let mut lines: Vec<_> =
                    items.map(|change| event("ADDED", change.json) + "\n").collect();
                lines.push(end_bookmark(from) + "\n");
                self.follow(&mut past, lines.concat(), from)
            }
            Kind::Watch => {
                let from = asked.query("resourceVersion").parse().unwrap();
                if from < past.floor {
                    return Reply::lines([event("ERROR", status(410, "Expired"))]);
                }
                self.follow(&mut past, String::new(), from)
            }
            Kind::Probe => {
                let from = asked.query("resourceVersion").parse().unwrap();
                let mut lines: Vec<_> = past.after(from).map(Change::line).collect();
                lines.push(bookmark(past.now) + "\n");
                Reply::held(lines.concat())
            }
        }
    }

    /// A watch that begins with `lines` and continues with the changes after version `from`.
    fn follow(self: &Arc<Self>, past: &mut Past, lines: String, from: u64) -> Reply {
        let watcher = Watcher {
            world: Arc::clone(self),
            moved: self.moved.subscribe(),
            dice: past.dice.fork(),
            at: from,
            left: past.dice.u32(..15),
            ready: lines,
            is_over: false,
        };
        Reply::steps(stream::unfold(watcher, Watcher::next))
    }
}

impl Past {
    /// Returns true with probability 1 in `odds`, unless faults have ended.
    fn has_trouble(&mut self, odds: u32) -> bool {
        !self.is_calm && self.dice.u32(..odds) == 0
    }

    fn create(&mut self, name: &str) {
        self.uids += 1;
        self.change("ADDED", name);
    }

    fn change(&mut self, kind: &'static str, name: &str) {
        let uid = match self.at(u64::MAX).get(name) {
            // The UID of the object's last state, read from its body.
            Some(last) => last
                .json
                .split("-0000-0000-0000-")
                .nth(1)
                .map_or(0, |uid| uid.get(..12).unwrap_or_default().parse().unwrap_or_default()),
            None => self.uids,
        };
        self.now += self.dice.u64(1..4);
        let is_decodable = self.dice.u8(..4) > 0;
        let mut json = object(name, uid, self.now);
        if !is_decodable {
            json = json.replacen("\"name\"", "\"labels\":{\"a\":7},\"name\"", 1);
        }
        let version = self.now;
        self.log.push(Change { version, kind, name: name.to_owned(), json, is_decodable });
    }

    /// The objects at a version.
    fn at(&self, version: u64) -> BTreeMap<String, Change> {
        let mut objects = BTreeMap::new();
        for change in self.log.iter().take_while(|change| change.version <= version) {
            if change.kind == "DELETED" {
                objects.remove(&change.name);
            } else {
                objects.insert(change.name.clone(), change.clone());
            }
        }
        objects
    }

    fn after(&self, version: u64) -> impl Iterator<Item = &Change> {
        self.log.iter().skip_while(move |change| change.version <= version)
    }

    /// A list or a page of the newest state, which is sometimes truncated. Lists of custom
    /// resources end with their version.
    fn list(&mut self, asked: &ReceivedQuery) -> Reply {
        let mut version = self.now;
        let mut after = String::new();
        if let Some((text, key)) = asked.query("continue").split_once(':') {
            version = text.parse().unwrap();
            if version < self.floor {
                return Reply::refused(410, "Expired");
            }
            key.clone_into(&mut after);
        }
        let limit = asked.query("limit").parse().unwrap_or(usize::MAX);
        let objects = self.at(version).into_iter().filter(|(name, _)| *name > after);
        let mut page: Vec<_> = objects.take(limit.saturating_add(1)).collect();
        let mut more = String::new();
        if page.len() > limit {
            page.truncate(limit);
            let last = page.last().map_or("", |(name, _)| name);
            more = format!(r#","continue":"{version}:{last}""#);
        }
        let items: Vec<_> = page.into_iter().map(|(_, change)| change.json).collect();
        let text = if asked.path.contains("widgets") {
            let items = items.join(",");
            format!(r#"{{"items":[{items}],"metadata":{{"resourceVersion":"{version}"{more}}}}}"#)
        } else {
            list_with(version, &more, &items)
        };
        if self.has_trouble(5) {
            let end = self.dice.usize(..text.len());
            let part = text.get(..end).unwrap_or_default();
            return if self.dice.bool() { Reply::cut(part) } else { Reply::json(part) };
        }
        Reply::json(text)
    }
}

impl Change {
    fn line(&self) -> String {
        event(self.kind, &self.json) + "\n"
    }
}

/// One open watch.
struct Watcher {
    world: Arc<SimulatedCluster>,
    moved: watch::Receiver<u64>,
    dice: Rng,
    at: u64,
    /// The number of steps until the next fault.
    left: u32,
    /// Text that the watch sends before the next event.
    ready: String,
    is_over: bool,
}

impl Watcher {
    async fn next(mut self) -> Option<(BodyStep, Self)> {
        if self.is_over {
            return None;
        }
        if self.ready.is_empty() {
            // Sends a bookmark if nothing changes for 30 ms.
            let changed = timeout(Duration::from_millis(30), async {
                while *self.moved.borrow_and_update() <= self.at {
                    if self.moved.changed().await.is_err() {
                        break;
                    }
                }
            });
            let _quiet = changed.await;
            // Waits until several changes have happened: only events that the server sends together
            // can be swapped.
            if self.dice.bool() {
                sleep(Duration::from_millis(10)).await;
            }
            if self.left == 0 && !self.world.past.lock().is_calm {
                return self.fail().await;
            }
            self.left = self.left.saturating_sub(1);
            self.ready = self.lines();
        }
        let text = std::mem::take(&mut self.ready);
        Some((BodyStep::Bytes(Bytes::from(text)), self))
    }

    /// The next one or two events of the watch. Some are swapped, and some follow an event that is
    /// replayed.
    ///
    /// The last events of a watch are never swapped. If a watch ended between two swapped events,
    /// the informer would have only the newer one, and would resume after both. No client can
    /// notice that.
    fn lines(&mut self) -> String {
        let past = self.world.past.lock();
        let next: Vec<_> = past.after(self.at).take(2).cloned().collect();
        let mut lines: Vec<_> = next.iter().map(Change::line).collect();
        if !past.is_calm && !self.is_over && self.dice.u8(..2) == 0 {
            lines.reverse();
        }
        if !past.is_calm && self.dice.u8(..12) == 0 {
            let old = past.log.iter().take_while(|change| change.version <= self.at).count();
            if old > 0
                && let Some(replayed) = past.log.get(self.dice.usize(..old))
            {
                lines.insert(0, replayed.line());
            }
        }
        if let Some(last) = next.last() {
            self.at = last.version;
        } else {
            self.at = self.at.max(past.now);
            lines.push(bookmark(self.at) + "\n");
        }
        lines.concat()
    }

    /// Ends the watch with a random fault.
    async fn fail(mut self) -> Option<(BodyStep, Self)> {
        self.is_over = true;
        let line = self.lines();
        let text = match self.dice.u8(..8) {
            0 => return Some((BodyStep::Cut, self)),
            1 => return None,
            // The watch stays open without data.
            2 => return std::future::pending().await,
            3 => event("ERROR", status(410, "Expired")) + "\n",
            4 => "<html>gateway</html>\n".to_owned(),
            5 => event("DELETED", r#"{"metadata":{"resourceVersion":"1"}}"#) + "\n",
            6 => bookmark(self.at.saturating_sub(50)) + "\n",
            // The connection ends normally in the middle of a line.
            _ => line.get(..line.len() / 2).unwrap_or_default().to_owned(),
        };
        Some((BodyStep::Bytes(Bytes::from(text)), self))
    }
}
