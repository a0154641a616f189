//! Counts of the reads of each user, at the path `/debug/forwarded` of kubewarm's admin server. The
//! reads that kubewarm forwarded because no profile declares their objects show an administrator
//! which profiles are missing. The lists and watches that kubewarm served show how much it saves.

use crate::metrics::HandlerLabel;
use jiff::Timestamp;
use kubewarm_api::model::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// The maximum number of pairs of a resource and a user, and of users whose reads kubewarm served.
/// A new entry replaces the entry whose last read is the oldest.
const MAX_ENTRIES: usize = 256;
/// The maximum length of a stored user name in bytes. The names of ServiceAccounts have at most 342
/// bytes.
const MAX_USER_BYTES: usize = 384;

/// Counts forwarded reads of undeclared objects by resource and user, and served lists and watches
/// by user. Clones share the counts.
#[derive(Clone, Default)]
pub struct UserReads(Arc<Mutex<UserReadTables>>);

#[derive(Default)]
struct UserReadTables {
    forwarded: ReadTable<(Resource, String)>,
    served: ReadTable<String>,
}

/// Counts of reads by key.
struct ReadTable<K> {
    /// At most `MAX_ENTRIES` entries.
    entries: HashMap<K, UserReadCount>,
    /// The number of counted reads, which orders the entries by their last read.
    reads: u64,
}

impl<K> Default for ReadTable<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), reads: 0 }
    }
}

impl<K: Clone + Eq + Hash> ReadTable<K> {
    /// Counts a get, list or watch. A new key replaces the one with the oldest read.
    fn count(&mut self, key: K, kind: HandlerLabel, at: Timestamp) {
        let (gets, lists, watches) = match kind {
            HandlerLabel::Get => (1, 0, 0),
            HandlerLabel::List => (0, 1, 0),
            HandlerLabel::Watch => (0, 0, 1),
            HandlerLabel::Discovery
            | HandlerLabel::Forward
            | HandlerLabel::Peer
            | HandlerLabel::Other => return,
        };
        self.reads += 1;
        let last_read = self.reads;
        if !self.entries.contains_key(&key)
            && self.entries.len() >= MAX_ENTRIES
            && let Some((oldest, _)) = self.entries.iter().min_by_key(|(_, count)| count.last_read)
        {
            let oldest = oldest.clone();
            self.entries.remove(&oldest);
        }
        let new = UserReadCount { gets: 0, lists: 0, watches: 0, last_time: at, last_read };
        let count = self.entries.entry(key).or_insert(new);
        (count.last_time, count.last_read) = (at, last_read);
        count.gets += gets;
        count.lists += lists;
        count.watches += watches;
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UserReadCount {
    gets: u64,
    lists: u64,
    watches: u64,
    last_time: Timestamp,
    #[serde(skip)]
    last_read: u64,
}

/// One pair of a resource and a user, as `/debug/forwarded` prints it.
#[derive(Serialize)]
struct ForwardedReadEntry<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    user: &'a str,
    #[serde(flatten)]
    count: UserReadCount,
}

/// A user whose reads kubewarm served from stores.
#[derive(Serialize)]
struct ServedReadEntry<'a> {
    user: &'a str,
    lists: u64,
    watches: u64,
    #[serde(rename = "lastTime")]
    last_time: Timestamp,
}

#[derive(Serialize)]
struct UserReadDocument<'a> {
    forwarded: Vec<ForwardedReadEntry<'a>>,
    served: Vec<ServedReadEntry<'a>>,
}

impl UserReads {
    /// Counts a forwarded read of `resource` by `user`. Call this only if the API server answered
    /// with success: then the API server serves the resource, and clients cannot fill the list with
    /// invented resources. Counts only gets, lists and watches.
    ///
    /// Cost: with 256 entries, a new pair visits all entries.
    pub(super) fn count_forwarded(
        &self,
        kind: HandlerLabel,
        resource: Resource,
        user: &str,
        at: Timestamp,
    ) {
        self.0.lock().forwarded.count((resource, shorten(user).to_owned()), kind, at);
    }

    /// Counts a list or watch of `user` that kubewarm served from a store. Gets do not count,
    /// because they are many and cost the API server little.
    ///
    /// Cost: with 256 entries, a new user visits all entries.
    pub(super) fn count_served(&self, kind: HandlerLabel, user: &str, at: Timestamp) {
        if matches!(kind, HandlerLabel::List | HandlerLabel::Watch) {
            self.0.lock().served.count(shorten(user).to_owned(), kind, at);
        }
    }

    /// Returns `{"forwarded":[…],"served":[…]}`, sorted by kind and user.
    pub fn to_json(&self) -> String {
        let tables = self.0.lock();
        let mut forwarded: Vec<_> = tables.forwarded.entries.clone().into_iter().collect();
        let mut served: Vec<_> = tables.served.entries.clone().into_iter().collect();
        drop(tables);
        forwarded.sort_by(|(left, _), (right, _)| left.cmp(right));
        served.sort_by(|(left, _), (right, _)| left.cmp(right));
        let forwarded = forwarded.iter().map(|((resource, user), count)| ForwardedReadEntry {
            group: resource.group(),
            version: resource.version(),
            resource: resource.resource(),
            user,
            count: *count,
        });
        let served = served.iter().map(|(user, count)| ServedReadEntry {
            user,
            lists: count.lists,
            watches: count.watches,
            last_time: count.last_time,
        });
        let document =
            UserReadDocument { forwarded: forwarded.collect(), served: served.collect() };
        serde_json::to_string(&document).unwrap_or_default() + "\n"
    }
}

/// Returns the beginning of `user` with at most `MAX_USER_BYTES` bytes.
fn shorten(user: &str) -> &str {
    user.get(..user.floor_char_boundary(MAX_USER_BYTES)).unwrap_or(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewarm_api::model::GroupResource;
    use serde_json::{Value, json};

    fn resource(name: &str) -> Resource {
        Resource::new(GroupResource::new("x.io", name).unwrap(), "v1").unwrap()
    }

    fn shown(reads: &UserReads) -> Vec<Value> {
        let mut shown: Value = serde_json::from_str(&reads.to_json()).unwrap();
        serde_json::from_value(shown["forwarded"].take()).unwrap()
    }

    #[test]
    fn reads_are_counted_by_kind_user_and_verb() {
        let reads = UserReads::default();
        let kinds = [HandlerLabel::List, HandlerLabel::Watch, HandlerLabel::Watch];
        for (at, kind) in (1..).zip(kinds) {
            let at = Timestamp::from_second(at).unwrap();
            reads.count_forwarded(kind, resource("parts"), "jane", at);
        }
        let at = Timestamp::from_second(9).unwrap();
        reads.count_forwarded(HandlerLabel::Get, resource("parts"), "john", at);
        reads.count_forwarded(HandlerLabel::Forward, resource("wholes"), "john", at);
        let entry = |user: &str, [gets, lists, watches]: [u64; 3], second: u8| {
            json!({
                "group": "x.io", "version": "v1", "resource": "parts", "user": user,
                "gets": gets, "lists": lists, "watches": watches,
                "lastTime": format!("1970-01-01T00:00:0{second}Z"),
            })
        };
        assert_eq!(shown(&reads), [entry("jane", [0, 1, 2], 3), entry("john", [1, 0, 0], 9)]);
    }

    #[test]
    fn served_lists_and_watches_are_counted_by_user() {
        let reads = UserReads::default();
        for (at, kind) in (1..).zip([HandlerLabel::Watch, HandlerLabel::List, HandlerLabel::Get]) {
            reads.count_served(kind, "jane", Timestamp::from_second(at).unwrap());
        }
        let shown: Value = serde_json::from_str(&reads.to_json()).unwrap();
        let jane =
            json!({"user": "jane", "lists": 1, "watches": 1, "lastTime": "1970-01-01T00:00:02Z"});
        assert_eq!(shown, json!({"forwarded": [], "served": [jane]}));
    }

    #[test]
    fn the_pair_with_the_oldest_read_makes_way_and_names_are_short() {
        let reads = UserReads::default();
        let count = |user: &str| {
            reads.count_forwarded(
                HandlerLabel::List,
                resource("parts"),
                user,
                Timestamp::UNIX_EPOCH,
            );
        };
        count("active");
        for n in 0..2 * MAX_ENTRIES {
            count(&format!("user-{n}"));
            count("active");
        }
        let users: Vec<_> =
            shown(&reads).iter().map(|entry| entry["user"].as_str().unwrap().to_owned()).collect();
        assert_eq!(users.len(), MAX_ENTRIES);
        assert!(users.contains(&"active".to_owned()) && !users.contains(&"user-0".to_owned()));
        count(&"ö".repeat(MAX_USER_BYTES));
        let longest = shown(&reads).iter().map(|entry| entry["user"].as_str().unwrap().len()).max();
        assert_eq!(longest, Some(MAX_USER_BYTES));
    }
}
