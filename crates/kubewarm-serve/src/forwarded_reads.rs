//! The list of reads that kubewarm forwarded because no profile declares their objects. It shows an
//! administrator which profiles are missing, at the path `/debug/forwarded` of kubewarm's admin
//! server.

use crate::metrics::HandlerLabel;
use jiff::Timestamp;
use kubewarm_api::model::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use std::{collections::HashMap, sync::Arc};

/// The maximum number of pairs of a resource and a user. A new pair replaces the pair whose last
/// read is the oldest.
const MAX_ENTRIES: usize = 256;
/// The maximum length of a stored user name in bytes. The names of ServiceAccounts have at most 342
/// bytes.
const MAX_USER_BYTES: usize = 384;

/// Counts forwarded reads of undeclared objects, by resource and user. Clones share the counts.
#[derive(Clone, Default)]
pub struct ForwardedReads(Arc<Mutex<ForwardedReadTable>>);

#[derive(Default)]
struct ForwardedReadTable {
    /// At most `MAX_ENTRIES` entries.
    entries: HashMap<(Resource, String), ForwardedReadCount>,
    /// The number of counted reads, which orders the entries by their last read.
    reads: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ForwardedReadCount {
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
    count: ForwardedReadCount,
}

impl ForwardedReads {
    /// Counts a read of `resource` by `user`. Call this only if the API server answered with
    /// success: then the API server serves the resource, and clients cannot fill the list with
    /// invented resources. Counts only gets, lists and watches.
    ///
    /// Cost: with 256 entries, a new pair visits all entries.
    pub(super) fn count(&self, kind: HandlerLabel, resource: Resource, user: &str, at: Timestamp) {
        let (gets, lists, watches) = match kind {
            HandlerLabel::Get => (1, 0, 0),
            HandlerLabel::List => (0, 1, 0),
            HandlerLabel::Watch => (0, 0, 1),
            HandlerLabel::Discovery | HandlerLabel::Forward | HandlerLabel::Other => return,
        };
        let mut table = self.0.lock();
        table.reads += 1;
        let last_read = table.reads;
        let pair = (resource, shorten(user).to_owned());
        if !table.entries.contains_key(&pair)
            && table.entries.len() >= MAX_ENTRIES
            && let Some(oldest) = table.entries.iter().min_by_key(|(_, count)| count.last_read)
        {
            let oldest = oldest.0.clone();
            table.entries.remove(&oldest);
        }
        let new = ForwardedReadCount { gets: 0, lists: 0, watches: 0, last_time: at, last_read };
        let count = table.entries.entry(pair).or_insert(new);
        (count.last_time, count.last_read) = (at, last_read);
        count.gets += gets;
        count.lists += lists;
        count.watches += watches;
    }

    /// Returns the list as `{"forwarded":[…]}`, sorted by kind and user.
    pub fn to_json(&self) -> String {
        let mut entries: Vec<_> =
            self.0.lock().entries.iter().map(|(pair, count)| (pair.clone(), *count)).collect();
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        let entries: Vec<_> = entries
            .iter()
            .map(|((resource, user), count)| ForwardedReadEntry {
                group: resource.group(),
                version: resource.version(),
                resource: resource.resource(),
                user,
                count: *count,
            })
            .collect();
        let entries = serde_json::to_string(&entries).unwrap_or_else(|_| "[]".to_owned());
        format!("{{\"forwarded\":{entries}}}\n")
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

    fn shown(reads: &ForwardedReads) -> Vec<Value> {
        let mut shown: Value = serde_json::from_str(&reads.to_json()).unwrap();
        serde_json::from_value(shown["forwarded"].take()).unwrap()
    }

    #[test]
    fn reads_are_counted_by_kind_user_and_verb() {
        let reads = ForwardedReads::default();
        let kinds = [HandlerLabel::List, HandlerLabel::Watch, HandlerLabel::Watch];
        for (at, kind) in (1..).zip(kinds) {
            let at = Timestamp::from_second(at).unwrap();
            reads.count(kind, resource("parts"), "jane", at);
        }
        let at = Timestamp::from_second(9).unwrap();
        reads.count(HandlerLabel::Get, resource("parts"), "john", at);
        reads.count(HandlerLabel::Forward, resource("wholes"), "john", at);
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
    fn the_pair_with_the_oldest_read_makes_way_and_names_are_short() {
        let reads = ForwardedReads::default();
        let count = |user: &str| {
            reads.count(HandlerLabel::List, resource("parts"), user, Timestamp::UNIX_EPOCH);
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
