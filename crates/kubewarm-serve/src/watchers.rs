//! The watches that are open, for a look from outside: whose, of what, how far.

use crate::reads::{Feed, Progress};
use jiff::Timestamp;
use kubewarm_wire::Objects;
use parking_lot::Mutex;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Those that are open. Cheap to clone; clones have the same. As many as have places.
#[derive(Clone, Default)]
pub struct Watchers(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    by_number: BTreeMap<u64, Arc<Watcher>>,
}

/// One of them.
struct Watcher {
    view: View,
    progress: Option<Progress>,
}

/// It is open until this is dropped.
pub(super) struct Entered {
    watchers: Watchers,
    number: u64,
}

/// As it is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    who: String,
    group: String,
    version: String,
    resource: String,
    namespace: Option<String>,
    label_selector: String,
    field_selector: String,
    cell: Option<String>,
    since: Timestamp,
    position: Option<String>,
    behind: u64,
}

impl Watchers {
    /// Notes that someone, by a name that says nothing, watches this since `since`; `cell` is such a name,
    /// too.
    pub(super) fn enter(
        &self,
        (who, cell): (String, Option<String>),
        asked: &Objects,
        feed: &Feed,
        since: Timestamp,
    ) -> Entered {
        let of = &asked.resource;
        let view = View {
            who,
            group: of.group().to_owned(),
            version: of.version().to_owned(),
            resource: of.resource().to_owned(),
            namespace: asked.namespace.as_deref().map(str::to_owned),
            label_selector: asked.labels.to_string(),
            field_selector: asked.fields.to_string(),
            cell,
            since,
            position: None,
            behind: 0,
        };
        let mut open = self.0.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::new(Watcher { view, progress: feed.progress() }));
        drop(open);
        Entered { watchers: self.clone(), number }
    }

    /// `{"watchers":[…]}`, the oldest first. Cost: some 2 µs each.
    pub fn json(&self) -> String {
        let all: Vec<_> = self.0.lock().by_number.values().map(Arc::clone).collect();
        let views: Vec<_> = all.iter().map(|watcher| watcher.look()).collect();
        // Strings and numbers only: this does not fail.
        let views = serde_json::to_string(&views).unwrap_or_else(|_| "[]".to_owned());
        format!("{{\"watchers\":{views}}}\n")
    }
}

impl Watcher {
    fn look(&self) -> View {
        let position = self.progress.as_ref().and_then(Progress::position);
        View {
            position: position.map(|version| version.to_string()),
            behind: self.progress.as_ref().map_or(0, Progress::behind),
            ..self.view.clone()
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let gone = self.watchers.0.lock().by_number.remove(&self.number);
        drop(gone);
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watchers").field(&self.0.lock().by_number.len()).finish()
    }
}
