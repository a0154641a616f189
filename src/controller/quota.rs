//! Which profiles are read where there are too many: the oldest. Pure.

use crate::model::Uid;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Profiles, and bytes of their specs as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) profiles: usize,
    pub(super) bytes: usize,
}

/// Of the profiles of one namespace, the specs that are read. A spec has a few KiB, so the bytes are
/// for those that list names by the thousand. Whoever needs more than a hundred profiles in a namespace
/// has made one for each object, and wants a selector.
pub(super) const PER_NAMESPACE: Amount = Amount { profiles: 100, bytes: 4 << 20 };
/// Of all other namespaces than the operator's own together: a hundred that use up their number, or
/// sixteen that use up their bytes.
pub(super) const PER_PROCESS: Amount = Amount { profiles: 10_000, bytes: 64 << 20 };
/// Of one namespace, the profiles that are known at all: as many again are told that they are not
/// read. What lies beyond costs nothing here, and has no status.
const KNOWN: usize = 2 * PER_NAMESPACE.profiles;
/// The same of the process. One of those that are read is known in any case.
const ALL_KNOWN: usize = 2 * PER_PROCESS.profiles;

/// What a profile that is not read does not fit into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Over {
    Namespace,
    Process,
}

/// What is known of a profile without its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) created: Option<Timestamp>,
    pub(super) generation: Option<i64>,
    pub(super) uid: Uid,
    /// Bytes of its spec.
    pub(super) bytes: usize,
    /// Whom its spec names to read; `None` where that cannot be told.
    pub(super) reader: Option<ReadBy>,
}

/// Whom a spec names to read, which counts even where nothing else of it does.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadBy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_account_name: Option<Box<str>>,
}

impl ReadBy {
    /// Of this JSON of a spec; `None` too where the name is longer than the schema lets it be.
    pub(super) fn of(spec: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(spec).ok()?;
        let is_bounded = read.service_account_name.as_ref().is_none_or(|name| name.len() <= 253);
        is_bounded.then_some(read)
    }
}

/// A profile whose spec is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shed {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) outline: Outline,
    /// Why; `None`: nothing is to be known of it any more.
    pub(super) over: Option<Over>,
}

/// Every profile that is known, but those of the operator's own namespace, which nobody counts.
///
/// A list changes it like as many events: until it is complete, those that it has not named count as
/// before. So one that comes early in it takes no room of an older one that comes later.
#[derive(Debug, Default)]
pub(super) struct Quota {
    all: BTreeMap<Rank, Entry>,
    namespaces: BTreeMap<Arc<str>, Members>,
    /// Of those that fit into what their namespaces may have.
    taken: Amount,
    /// Whether they do not all fit into what the process may have.
    is_over: bool,
    /// Namespaces of which one may be read whose spec is not at hand.
    waiting: BTreeSet<Arc<str>>,
}

/// Whose profiles a list names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within<'a> {
    All,
    Namespace(&'a str),
}

/// Less is older.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    created: Timestamp,
    namespace: Arc<str>,
    name: Arc<str>,
}

#[derive(Debug)]
struct Entry {
    outline: Outline,
    /// Whether it fits into what its namespace may have.
    fits: bool,
    /// Whether its spec is at hand.
    is_whole: bool,
    /// Whether the list under way has named it, if there is one.
    is_named: bool,
}

#[derive(Debug, Default)]
struct Members {
    ranks: BTreeSet<Rank>,
    by_name: BTreeMap<Arc<str>, Rank>,
    /// Whether there are, or were, more than are known.
    has_unknown: bool,
}

impl Within<'_> {
    pub(super) fn has(self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(name) => name == namespace,
        }
    }
}

impl Amount {
    const NONE: Self = Self { profiles: 0, bytes: 0 };

    /// With one more profile.
    fn and(self, bytes: usize) -> Self {
        Self { profiles: self.profiles + 1, bytes: self.bytes.saturating_add(bytes) }
    }

    fn without(self, bytes: usize) -> Self {
        Self { profiles: self.profiles.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes) }
    }

    fn fits(self, into: Self) -> bool {
        self.profiles <= into.profiles && self.bytes <= into.bytes
    }
}

impl Quota {
    /// Takes note of a profile whose spec is at hand, and says which specs are to go, this one's
    /// perhaps among them.
    ///
    /// Those that may stay are the oldest: one that does not fit lets none that is younger fit. So
    /// new profiles push nobody out, and which are read does not depend on what has been read.
    ///
    /// # Cost
    ///
    /// That of looking at the 200 known profiles of the namespace; while the process has too many, at
    /// all of those, some 0.3 ms.
    pub(super) fn put(&mut self, namespace: &str, name: &str, outline: Outline) -> Vec<Shed> {
        self.forget(namespace, name);
        let (namespace, name): (Arc<str>, Arc<str>) = (namespace.into(), name.into());
        let created = outline.created.unwrap_or(Timestamp::MAX);
        let rank = Rank { created, namespace: Arc::clone(&namespace), name: Arc::clone(&name) };
        let members = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        members.ranks.insert(rank.clone());
        members.by_name.insert(name, rank.clone());
        self.all
            .insert(rank.clone(), Entry { outline, fits: false, is_whole: true, is_named: true });
        let mut shed = self.settle(&namespace);
        let is_whole = self.all.get(&rank).is_some_and(|entry| entry.is_whole);
        if self.all.len() > ALL_KNOWN && !is_whole {
            shed.retain(|it| (&it.namespace, &it.name) != (&rank.namespace, &rank.name));
            shed.extend(self.drop(&rank));
        }
        shed
    }

    /// The profile is gone. One that has room now may take that of a younger one elsewhere.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Vec<Shed> {
        if self.forget(namespace, name).is_none() {
            return Vec::new();
        }
        self.settle(namespace)
    }

    /// A list begins to name these profiles.
    pub(super) fn begin(&mut self, within: Within<'_>) {
        for (_, entry) in self.all.iter_mut().filter(|(rank, _)| within.has(&rank.namespace)) {
            entry.is_named = false;
        }
        for (_, members) in self.namespaces.iter_mut().filter(|(name, _)| within.has(name)) {
            members.has_unknown = false;
        }
    }

    /// The list has named all that there are. Those that it has not named are gone; of these are
    /// returned, with what else is to go, the ones without a spec, which may have been written since it
    /// began.
    pub(super) fn end(&mut self, within: Within<'_>) -> Vec<Shed> {
        let is_gone =
            |(rank, entry): &(&Rank, &Entry)| within.has(&rank.namespace) && !entry.is_named;
        let gone: Vec<_> = self.all.iter().filter(is_gone).map(|(rank, _)| rank.clone()).collect();
        let mut shed = Vec::new();
        for rank in gone {
            let is_whole = self.all.get(&rank).is_some_and(|entry| entry.is_whole);
            let Some(outline) = self.forget(&rank.namespace, &rank.name) else { continue };
            if !is_whole {
                let Rank { namespace, name, .. } = rank;
                shed.push(Shed { namespace, name, outline, over: None });
            }
        }
        self.waiting.retain(|namespace| !within.has(namespace));
        let here: Vec<_> =
            self.namespaces.keys().filter(|name| within.has(name)).cloned().collect();
        for namespace in here {
            shed.extend(self.settle(&namespace));
        }
        shed
    }

    /// Forgets these profiles: nobody reads them before a list has named them anew.
    pub(super) fn clear(&mut self, within: Within<'_>) {
        self.all.retain(|rank, entry| {
            let stays = !within.has(&rank.namespace);
            if !stays && entry.fits {
                self.taken = self.taken.without(entry.outline.bytes);
            }
            stays
        });
        self.namespaces.retain(|namespace, _| !within.has(namespace));
        self.waiting.retain(|namespace| !within.has(namespace));
        if self.is_over {
            // Nothing is shed where something has gone: there may be room elsewhere.
            self.settle_process(&mut Vec::new());
        }
    }

    /// Whether there is room for one of these profiles whose spec is not at hand: a list would bring it.
    pub(super) fn is_waiting(&self, within: Within<'_>) -> bool {
        self.waiting.iter().any(|namespace| within.has(namespace))
    }

    fn forget(&mut self, namespace: &str, name: &str) -> Option<Outline> {
        let members = self.namespaces.get_mut(namespace)?;
        let rank = members.by_name.remove(name)?;
        members.ranks.remove(&rank);
        let Entry { outline, fits, .. } = self.all.remove(&rank)?;
        if fits {
            self.taken = self.taken.without(outline.bytes);
        }
        Some(outline)
    }

    /// Drops one that is not to be known any more.
    fn drop(&mut self, rank: &Rank) -> Option<Shed> {
        let outline = self.forget(&rank.namespace, &rank.name)?;
        self.namespaces.get_mut(&rank.namespace)?.has_unknown = true;
        let (namespace, name) = (Arc::clone(&rank.namespace), Arc::clone(&rank.name));
        Some(Shed { namespace, name, outline, over: None })
    }

    /// Decides anew, after a change in this namespace.
    fn settle(&mut self, namespace: &str) -> Vec<Shed> {
        let Some(members) = self.namespaces.get(namespace) else { return Vec::new() };
        let (mut taken, mut is_full) = (Amount::NONE, false);
        for rank in &members.ranks {
            let Some(entry) = self.all.get_mut(rank) else { continue };
            let bytes = entry.outline.bytes;
            is_full |= !taken.and(bytes).fits(PER_NAMESPACE);
            if !is_full {
                taken = taken.and(bytes);
            }
            if entry.fits == is_full {
                entry.fits = !is_full;
                let of_process = self.taken;
                self.taken =
                    if is_full { of_process.without(bytes) } else { of_process.and(bytes) };
            }
        }
        let has_room = !is_full && taken.and(1).fits(PER_NAMESPACE);
        if members.has_unknown && has_room {
            self.waiting.insert(namespace.into());
        }
        let beyond: Vec<_> = members.ranks.iter().skip(KNOWN).cloned().collect();
        let of_namespace: Vec<_> = members.ranks.iter().take(KNOWN).cloned().collect();
        if members.ranks.is_empty() && !members.has_unknown {
            self.namespaces.remove(namespace);
        }
        let mut shed: Vec<_> = beyond.iter().filter_map(|rank| self.drop(rank)).collect();
        if self.is_over || !self.taken.fits(PER_PROCESS) {
            self.settle_process(&mut shed);
        } else {
            for rank in of_namespace {
                if let Some(entry) = self.all.get_mut(&rank) {
                    let may_stay = entry.fits;
                    if decide(&rank, entry, may_stay, &mut shed) {
                        self.waiting.insert(rank.namespace);
                    }
                }
            }
        }
        shed
    }

    /// The same where there may be more than the process reads.
    fn settle_process(&mut self, shed: &mut Vec<Shed>) {
        let (mut taken, mut is_full) = (Amount::NONE, false);
        for (rank, entry) in &mut self.all {
            if entry.fits {
                is_full |= !taken.and(entry.outline.bytes).fits(PER_PROCESS);
                taken = taken.and(entry.outline.bytes);
            }
            let may_stay = entry.fits && !is_full;
            if decide(rank, entry, may_stay, shed) {
                self.waiting.insert(Arc::clone(&rank.namespace));
            }
        }
        self.is_over = is_full;
    }
}

/// Sheds a spec that may not stay; `true` for one that might, and is not at hand.
fn decide(rank: &Rank, entry: &mut Entry, may_stay: bool, shed: &mut Vec<Shed>) -> bool {
    if !may_stay && entry.is_whole {
        entry.is_whole = false;
        shed.push(Shed {
            namespace: Arc::clone(&rank.namespace),
            name: Arc::clone(&rank.name),
            outline: entry.outline.clone(),
            over: Some(if entry.fits { Over::Process } else { Over::Namespace }),
        });
    }
    may_stay && !entry.is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(second: i64, bytes: usize) -> Outline {
        let created = Some(Timestamp::from_second(second).unwrap());
        Outline { created, generation: Some(1), uid: Uid::parse("u"), bytes, reader: None }
    }

    /// Adds one that was made in that second, and says who is shed.
    fn put(quota: &mut Quota, at: &str, second: i64, bytes: usize) -> Vec<(String, Option<Over>)> {
        let (namespace, name) = at.split_once('/').unwrap();
        let shed = quota.put(namespace, name, outline(second, bytes));
        shed.into_iter().map(|it| (format!("{}/{}", it.namespace, it.name), it.over)).collect()
    }

    fn fill(quota: &mut Quota, namespace: &str, seconds: std::ops::Range<i64>, bytes: usize) {
        for second in seconds {
            assert_eq!(put(quota, &format!("{namespace}/p{second}"), second, bytes), []);
        }
    }

    #[test]
    fn beyond_a_hundred_the_oldest_of_a_namespace_are_read_and_no_other_namespace_is_touched() {
        let mut quota = Quota::default();
        fill(&mut quota, "a", 100..200, 1);
        fill(&mut quota, "b", 100..200, 1);
        let over = Some(Over::Namespace);
        assert_eq!(put(&mut quota, "a/new", 300, 1), [("a/new".to_owned(), over)]);
        assert_eq!(put(&mut quota, "a/old", 1, 1), [("a/p199".to_owned(), over)]);
        // Of those of the same second the first by name.
        assert_eq!(put(&mut quota, "b/a", 199, 1), [("b/p199".to_owned(), over)]);
        assert_eq!(put(&mut quota, "b/z", 198, 1), [("b/a".to_owned(), over)]);
    }

    #[test]
    fn large_specs_fill_a_namespace_sooner_and_nothing_younger_slips_through() {
        let mut quota = Quota::default();
        fill(&mut quota, "a", 1..5, 1 << 20);
        let over = Some(Over::Namespace);
        assert_eq!(put(&mut quota, "a/large", 10, 1), [("a/large".to_owned(), over)]);
        assert_eq!(put(&mut quota, "a/p4", 4, (1 << 20) + 1), [("a/p4".to_owned(), over)]);
        // There would be room for it, but an older one has none.
        assert_eq!(put(&mut quota, "a/small", 11, 1), [("a/small".to_owned(), over)]);
    }

    #[test]
    fn room_is_for_the_oldest_that_waits() {
        let mut quota = Quota::default();
        fill(&mut quota, "a", 0..100, 1);
        put(&mut quota, "a/x", 200, 1);
        quota.remove("b", "x");
        quota.remove("a", "unknown");
        assert!(!quota.is_waiting(Within::All));
        quota.remove("a", "p7");
        assert!(quota.is_waiting(Within::All));
        quota.begin(Within::All);
        assert_eq!(put(&mut quota, "a/x", 200, 1), []);
        fill(&mut quota, "a", 0..7, 1);
        fill(&mut quota, "a", 8..100, 1);
        assert_eq!(quota.end(Within::All), []);
        assert!(!quota.is_waiting(Within::All));
    }

    #[test]
    fn what_a_list_names_first_takes_no_room_of_what_it_has_not_named() {
        let mut quota = Quota::default();
        fill(&mut quota, "a", 0..100, 1);
        let over = Some(Over::Namespace);
        assert_eq!(put(&mut quota, "a/left-out", 200, 1), [("a/left-out".to_owned(), over)]);
        quota.begin(Within::All);
        for name in ["a/left-out", "a/new"] {
            assert_eq!(put(&mut quota, name, 200, 1), [(name.to_owned(), over)]);
        }
        // One that is older takes the room of the youngest, which it has not named either.
        assert_eq!(put(&mut quota, "a/older", 50, 1), [("a/p99".to_owned(), over)]);
        assert!(!quota.is_waiting(Within::All));
        fill(&mut quota, "a", 0..98, 1);
        // Two are gone, p99 with the row that was written of it, and left the others their room.
        let gone = quota.end(Within::All);
        let gone: Vec<_> = gone.iter().map(|it| (&*it.name, it.over)).collect();
        assert_eq!(gone, [("p99", None)]);
        assert_eq!(quota.all.len(), 101);
        assert!(quota.is_waiting(Within::All), "for one of the two");
    }

    #[test]
    fn each_namespace_may_be_listed_by_itself() {
        let mut quota = Quota::default();
        for namespace in 0..100 {
            fill(&mut quota, &format!("n{namespace:03}"), 0..100, 1);
        }
        let over = Some(Over::Process);
        assert_eq!(put(&mut quota, "x/new", 500, 1), [("x/new".to_owned(), over)]);
        let (here, there) = (Within::Namespace("n007"), Within::Namespace("x"));
        quota.begin(here);
        fill(&mut quota, "n007", 1..100, 1);
        assert!(!quota.is_waiting(there));
        assert_eq!(quota.end(here), []);
        assert!(quota.is_waiting(there) && !quota.is_waiting(here), "one of another namespace");
        quota.clear(there);
        assert!(!quota.is_waiting(Within::All));
        assert_eq!(put(&mut quota, "x/new", 500, 1), []);
        assert_eq!(put(&mut quota, "y/new", 501, 1), [("y/new".to_owned(), over)]);
        quota.clear(Within::Namespace("n001"));
        assert!(quota.is_waiting(Within::Namespace("y")), "what is closed leaves its room");
    }

    #[test]
    fn of_thousands_only_as_many_again_are_known() {
        let mut quota = Quota::default();
        for second in 0..5_000 {
            put(&mut quota, &format!("a/p{second}"), second, 1);
        }
        assert_eq!(quota.all.len(), KNOWN);
        assert_eq!(put(&mut quota, "a/x", 9_000, 1), [("a/x".to_owned(), None)]);
        // As soon as one that is not known could be read.
        for second in 100..200 {
            quota.remove("a", &format!("p{second}"));
        }
        assert!(!quota.is_waiting(Within::All));
        quota.remove("a", "p3");
        assert!(quota.is_waiting(Within::All));
    }

    #[test]
    fn the_process_reads_the_oldest_of_all_and_a_namespace_beyond_its_own_bound_takes_no_more() {
        let mut quota = Quota::default();
        for namespace in 0..100 {
            fill(&mut quota, &format!("n{namespace:03}"), 0..100, 1);
            // What does not fit here takes no place there.
            put(&mut quota, &format!("n{namespace:03}/more"), 200, 1 << 30);
        }
        assert!(!quota.is_over);
        let told = put(&mut quota, "x/new", 500, 1);
        assert_eq!(told, [("x/new".to_owned(), Some(Over::Process))]);
        let told = put(&mut quota, "x/old", 98, 1);
        assert_eq!(told, [("n099/p99".to_owned(), Some(Over::Process))]);
        assert!(!quota.is_waiting(Within::All));
        quota.remove("n000", "p0");
        assert!(quota.is_waiting(Within::All), "one of another namespace");
    }
}
