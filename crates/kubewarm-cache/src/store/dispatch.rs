//! Dispatches each change of a store to the followers that the change can concern, so that the cost
//! of a change does not depend on the number of other followers.
//!
//! A follower whose query contains an equality registers under one key: the queried namespace, if
//! there is one, together with the most selective equality. The writer computes the keys of the
//! object before and after each change. It adds the change's number to the feeds of these keys, and
//! wakes their followers. A follower without a key reads every change of the event log.

use super::{
    event_log::StoreChange,
    index_entries::IndexEntries,
    select::{BodyPredicate, ObjectQuery},
};
use kubewarm_api::model::{FieldPath, LabelRequirement, LabelSelectorOperator};
use kubewarm_wire::json::FieldPathSet;
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
    mem,
    sync::Arc,
};
use tokio::sync::Notify;

/// Maximum number of entries in the feeds of one store, which take 6 MiB. The feeds drop older
/// entries, although the event log can still have their changes: the log has at most 102,400
/// changes, but one object can have the keys of many followers.
const MAX_ENTRIES: usize = 1 << 18;

/// The feeds of a store's followers. Only the holder of the store's write lock changes it. So each
/// change is either in the event log when a follower registers, or dispatched to the follower.
#[derive(Debug, Default)]
pub(super) struct DispatchIndex {
    /// Hashes keys. The seed is random, so that clients cannot choose queries with one hash. The
    /// followers of keys with one hash share a feed. They then read more changes than necessary,
    /// which their queries exclude.
    hasher: RandomState,
    /// The feeds by the hashes of their keys. Contains no more feeds than open followers.
    feeds: HashMap<u64, DispatchFeed>,
    /// The change number and the key's hash of each entry in the feeds, in ascending order of the
    /// numbers. So the oldest entries are dropped first. At most [`MAX_ENTRIES`], and only of
    /// changes in the event log.
    entries: VecDeque<(u64, u64)>,
    label_feeds: usize,
    /// Wakes the followers without a key.
    every_change: Arc<Notify>,
    /// The event log's `epoch` when the store last woke its followers. If the log's `epoch` is
    /// higher, the log has since dropped all its changes, and every follower must wake to end.
    epoch: u64,
    /// Wakes the followers of the change that the writer is publishing. Empty between changes.
    woken: Vec<Arc<Notify>>,
}

/// The changes under one key.
#[derive(Debug)]
struct DispatchFeed {
    changed: Arc<Notify>,
    /// The numbers of the changes, in ascending order.
    numbers: VecDeque<u64>,
    /// The number after the last change that `numbers` has dropped. A follower that has not reached
    /// this number has missed a change.
    dropped_until: u64,
    followers: usize,
    source: FeedSource,
}

/// What the writer must read from each object to find out whether its key is the feed's key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FeedSource {
    Identity,
    Field(FieldPath),
    Labels,
}

/// A property of an object. A follower's key consists of one such property, and of the namespace if
/// the follower's query names one.
#[derive(Clone, Copy, Hash)]
enum ObjectProperty<'a> {
    /// The property of every object, for queries that select only a namespace.
    Existence,
    Name(&'a [u8]),
    Field(&'a FieldPath, &'a str),
    Label(&'a str, &'a str),
}

/// Whether the writer also reads an object's labels if the change keeps them. The label index does
/// not need these labels, but a follower whose key contains a label does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptLabels {
    Ignored,
    Read,
}

/// The registration of a follower under a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct DispatchKey {
    hash: u64,
    /// The number of the first change that is dispatched to the follower.
    pub(super) since: u64,
}

impl DispatchIndex {
    /// Registers a follower (the reader of one client's watch) of the changes from number `next` on
    /// that can concern `query`. Returns `None` if the follower must read every change, usually
    /// because its query compares no name, field, label or namespace with one value. `paths` are
    /// the indexed field paths: only by them does the writer dispatch changes of fields.
    pub(super) fn register(
        &mut self,
        query: &ObjectQuery,
        paths: &FieldPathSet,
        next: u64,
    ) -> Option<(DispatchKey, Arc<Notify>)> {
        let property = ObjectProperty::of_query(query, paths)?;
        let hash = self.hasher.hash_one((query.namespace.as_deref(), property));
        let source = property.source();
        let feed = self.feeds.entry(hash).or_insert_with(|| {
            self.label_feeds += usize::from(source == FeedSource::Labels);
            DispatchFeed {
                changed: Arc::default(),
                numbers: VecDeque::new(),
                dropped_until: 0,
                followers: 0,
                source: source.clone(),
            }
        });
        if feed.source != source {
            // Another key has the same hash, and the writer would not read what this key needs. So
            // this follower reads every change.
            return None;
        }
        feed.followers += 1;
        Some((DispatchKey { hash, since: next }, Arc::clone(&feed.changed)))
    }

    pub(super) fn unregister(&mut self, key: DispatchKey) {
        let Some(feed) = self.feeds.get_mut(&key.hash) else { return };
        feed.followers -= 1;
        if feed.followers == 0 {
            self.label_feeds -= usize::from(feed.source == FeedSource::Labels);
            self.feeds.remove(&key.hash);
        }
    }

    /// The `Notify` of the followers without a key.
    pub(super) fn every_change(&self) -> Arc<Notify> {
        Arc::clone(&self.every_change)
    }

    pub(super) fn kept_labels(&self) -> KeptLabels {
        if self.label_feeds > 0 { KeptLabels::Read } else { KeptLabels::Ignored }
    }

    /// The field paths that the writer must read for the registered followers.
    pub(super) fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.feeds.values().filter_map(|feed| match &feed.source {
            FeedSource::Field(path) => Some(path),
            FeedSource::Identity | FeedSource::Labels => None,
        })
    }

    /// Dispatches the change with the number `number`. `sides` contains the index entries of the
    /// object before and after the change, and the labels that the change keeps. A side is `None`
    /// if the object is not readable; the change then goes to every feed. `paths` are the field
    /// paths of the entries.
    ///
    /// # Cost
    ///
    /// Constant if no follower has a key. Otherwise about 0.1 µs for each label and field value.
    pub(super) fn dispatch(
        &mut self,
        number: u64,
        change: &StoreChange,
        sides: &[Option<&IndexEntries>],
        paths: &FieldPathSet,
    ) {
        self.woken.push(self.every_change());
        if self.feeds.is_empty() {
            return;
        }
        let sides: Option<Vec<_>> =
            sides.iter().map(|side| side.filter(|side| side.is_whole())).collect();
        let hashes = match sides {
            Some(sides) => self.hashes(change, &sides, paths),
            // An unreadable object can have every key.
            None => self.feeds.keys().copied().collect(),
        };
        for hash in hashes {
            if let Some(feed) = self.feeds.get_mut(&hash)
                // The object often has the same key before and after the change.
                && feed.numbers.back() != Some(&number)
            {
                feed.numbers.push_back(number);
                self.entries.push_back((number, hash));
                self.woken.push(Arc::clone(&feed.changed));
            }
        }
    }

    /// The hashes of all keys that the object has before or after `change`.
    fn hashes(
        &self,
        change: &StoreChange,
        sides: &[&IndexEntries],
        paths: &FieldPathSet,
    ) -> Vec<u64> {
        let labels = sides.iter().flat_map(|side| side.labels());
        let labels = labels.map(|(key, value)| ObjectProperty::Label(key, value));
        let fields = sides.iter().flat_map(|side| side.values(paths));
        let fields = fields.map(|(path, value)| ObjectProperty::Field(path, value));
        let both = [ObjectProperty::Existence, ObjectProperty::Name(change.name())];
        let namespaces = [None, Some(change.namespace())];
        let of_property = |property| namespaces.map(|namespace| (namespace, property));
        both.into_iter()
            .chain(labels)
            .chain(fields)
            .flat_map(of_property)
            .map(|key| self.hasher.hash_one(key))
            .collect()
    }

    /// Drops the entries of changes before the number `first`, and the entries above the limit.
    pub(super) fn trim(&mut self, first: u64) {
        while let Some(&(number, hash)) = self.entries.front()
            && (number < first || self.entries.len() > MAX_ENTRIES)
        {
            self.entries.pop_front();
            // The feed lacks the number if all followers of its key left, and new followers created
            // the feed again later.
            if let Some(feed) = self.feeds.get_mut(&hash)
                && feed.numbers.front() == Some(&number)
            {
                feed.numbers.pop_front();
                feed.dropped_until = number + 1;
                if feed.numbers.is_empty() {
                    feed.numbers = VecDeque::new();
                }
            }
        }
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    /// Returns the number of the first change in the key's feed whose number is `from` or higher,
    /// or `end` if the feed has no such change. Returns `None` if the feed has dropped such a
    /// change, so that the follower has missed it.
    pub(super) fn next_number(&self, key: DispatchKey, from: u64, end: u64) -> Option<u64> {
        let feed = self.feeds.get(&key.hash)?;
        let at = feed.numbers.partition_point(|number| *number < from);
        (feed.dropped_until <= from).then(|| feed.numbers.get(at).copied().unwrap_or(end))
    }

    /// Returns the number of changes in the key's feed whose number is `from` or higher.
    pub(super) fn count(&self, key: DispatchKey, from: u64) -> u64 {
        self.feeds.get(&key.hash).map_or(0, |feed| {
            let read = feed.numbers.partition_point(|number| *number < from);
            (feed.numbers.len() - read) as u64
        })
    }

    /// Returns the `Notify`s of the current change's followers. If `epoch`, the event log's current
    /// epoch, is new, the log has dropped all its changes, so returns the `Notify`s of all
    /// followers. The caller wakes the followers without the store's lock, which they take next.
    pub(super) fn take_woken(&mut self, epoch: u64) -> Vec<Arc<Notify>> {
        let woken = mem::take(&mut self.woken);
        if mem::replace(&mut self.epoch, epoch) == epoch { woken } else { self.all() }
    }

    /// Returns the `Notify`s of all followers.
    pub(super) fn all(&self) -> Vec<Arc<Notify>> {
        let keyed = self.feeds.values().map(|feed| Arc::clone(&feed.changed));
        keyed.chain([self.every_change()]).collect()
    }

    /// The memory of the entries in bytes. The memory of the registrations does not count, because
    /// it belongs to the clients' watches.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, u64)>() + self.entries.len() * size_of::<u64>()
    }
}

impl<'a> ObjectProperty<'a> {
    /// Returns the most selective property that every object of the query has: its name, a field
    /// that the writer reads, a label, or only its existence in the queried namespace. Returns
    /// `None` if the query selects objects without a common property.
    fn of_query(query: &'a ObjectQuery, paths: &FieldPathSet) -> Option<Self> {
        let name = query.name.as_deref().map(|name| Self::Name(name.as_bytes()));
        let field = || {
            query.tests.all().iter().find_map(|test| match test {
                // An object without the field can meet a test for the value `absent`.
                BodyPredicate::Field { path, absent, is_equality: true, value }
                    if absent != value && paths.all().contains(path) =>
                {
                    Some(Self::Field(path, value))
                }
                BodyPredicate::Field { .. } | BodyPredicate::Label(_) => None,
            })
        };
        let label = || query.labels.requirements().find_map(Self::of_requirement);
        name.or_else(field)
            .or_else(label)
            .or_else(|| query.namespace.is_some().then_some(Self::Existence))
    }

    fn of_requirement(requirement: &'a LabelRequirement) -> Option<Self> {
        let mut values = requirement.values();
        let only = values.next().filter(|_| values.next().is_none());
        let is_in = requirement.operator() == LabelSelectorOperator::In;
        only.filter(|_| is_in).map(|value| Self::Label(requirement.key(), value))
    }

    fn source(self) -> FeedSource {
        match self {
            Self::Existence | Self::Name(_) => FeedSource::Identity,
            Self::Field(path, _) => FeedSource::Field(path.clone()),
            Self::Label(..) => FeedSource::Labels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::{field_query, version};
    use kubewarm_api::model::ObjectEncoding;
    use kubewarm_wire::{ObjectBody, protobuf::message_of_kind};

    fn change() -> StoreChange {
        StoreChange {
            arrived: None,
            namespace: "a".into(),
            version: version("1"),
            before: None,
            now: None,
            is_replacement: false,
        }
    }

    #[test]
    fn a_change_of_an_unreadable_object_goes_to_all_feeds() {
        let node = FieldPath::parse("spec.nodeName").unwrap();
        let (mut index, paths) = (DispatchIndex::default(), [node.clone()].into_iter().collect());
        let (key, _) = index.register(&field_query(&node, "n"), &paths, 0).unwrap();
        let encoding = ObjectEncoding::Protobuf(message_of_kind("v1", "Pod").unwrap());
        let malformed = IndexEntries::read(ObjectBody { encoding, bytes: &[0xff] }, &paths);
        let other = IndexEntries::read(ObjectBody::json(br#"{"spec":{"nodeName":"m"}}"#), &paths);
        let sides = [None, Some(&malformed), Some(&other)];
        for (number, side) in (0..).zip(sides) {
            index.dispatch(number, &change(), &[side], &paths);
        }
        assert_eq!((index.count(key, 0), index.count(key, 1), index.count(key, 2)), (2, 1, 0));
    }

    #[test]
    fn feeds_have_a_limit_and_a_follower_that_missed_an_entry_ends() {
        let (mut index, paths) = (DispatchIndex::default(), FieldPathSet::default());
        let query = ObjectQuery { namespace: Some("a".into()), ..ObjectQuery::default() };
        let (key, _) = index.register(&query, &paths, 0).unwrap();
        let (change, last) = (change(), MAX_ENTRIES as u64);
        for number in 0..=last {
            index.dispatch(number, &change, &[], &paths);
            index.take_woken(0);
            index.trim(0);
        }
        assert_eq!((index.entries.len(), index.count(key, 0)), (MAX_ENTRIES, last));
        assert_eq!(index.next_number(key, 0, last + 1), None, "the feed has dropped number 0");
        assert_eq!(index.next_number(key, 1, last + 1), Some(1));
        index.trim(last + 1);
        assert_eq!((index.bytes(), index.next_number(key, last, last + 1)), (0, None));
        assert_eq!(index.next_number(key, last + 1, last + 9), Some(last + 9));
        index.unregister(key);
        assert!(index.feeds.is_empty());
    }
}
