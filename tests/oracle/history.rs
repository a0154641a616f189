//! Every change of the collections, as etcd stored it. After an etcd restore, revisions occur again
//! with other contents, so a restore begins another epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::{ChangeType, CollectionIndex, Form, Millis, ObjectState};

/// One write in etcd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EtcdChange {
    pub(crate) revision: u64,
    /// When `etcdctl` printed the change. etcd committed the change earlier, so an age that is
    /// computed from this time is never too high.
    pub(crate) known: Millis,
    pub(crate) collection: CollectionIndex,
    pub(crate) name: String,
    /// The new content; `None` for a deletion.
    pub(crate) content: Option<Digests>,
}

/// Hashes of one object: of the whole object, and of its metadata. A response can contain either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digests {
    pub(crate) whole: u64,
    pub(crate) metadata: u64,
}

impl Digests {
    pub(crate) fn of(self, form: Form) -> u64 {
        match form {
            Form::Whole => self.whole,
            Form::Metadata => self.metadata,
        }
    }
}

/// The changes between two restores of etcd.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Epoch {
    /// The highest revision that this epoch shares with the earlier epochs: the revision of the
    /// restored snapshot.
    pub(crate) base: u64,
    pub(crate) began: Millis,
    /// When the restore began that ended this epoch. `None` for the last epoch.
    pub(crate) ended: Option<Millis>,
    pub(crate) changes: Vec<EtcdChange>,
    /// The last revision of the epoch.
    pub(crate) head: u64,
    /// The number of objects that the recorder could not decode.
    pub(crate) undecodable: usize,
}

/// The changes of one collection in one epoch, ordered by revision.
pub(crate) struct Timeline<'a> {
    pub(crate) changes: Vec<&'a EtcdChange>,
    pub(crate) epoch: &'a Epoch,
}

/// The history of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EtcdHistory {
    pub(crate) epochs: Vec<Epoch>,
}

impl EtcdHistory {
    /// The timelines of a collection, one for each epoch.
    pub(crate) fn timelines(&self, collection: CollectionIndex) -> Vec<Timeline<'_>> {
        let mut timelines: Vec<Timeline<'_>> = Vec::new();
        for epoch in &self.epochs {
            let earlier = timelines.last().map(|last| last.changes.clone()).unwrap_or_default();
            let mut changes: Vec<_> =
                earlier.into_iter().filter(|change| change.revision <= epoch.base).collect();
            changes.extend(epoch.changes.iter().filter(|change| change.collection == collection));
            timelines.push(Timeline { changes, epoch });
        }
        timelines
    }
}

impl<'a> Timeline<'a> {
    /// The objects at a revision.
    pub(crate) fn objects(&self, revision: u64, form: Form) -> BTreeMap<&'a str, ObjectState> {
        let mut objects = BTreeMap::new();
        for change in self.changes.iter().take_while(|change| change.revision <= revision) {
            match change.content {
                Some(content) => {
                    let state = ObjectState { version: change.revision, digest: content.of(form) };
                    objects.insert(change.name.as_str(), state);
                }
                None => drop(objects.remove(change.name.as_str())),
            }
        }
        objects
    }

    /// The changes after a revision; with `name`, only changes of this object.
    pub(crate) fn after<'s>(
        &'s self,
        revision: u64,
        name: Option<&'s str>,
    ) -> impl Iterator<Item = &'a EtcdChange> + 's {
        let from = self.changes.partition_point(|change| change.revision <= revision);
        let after = self.changes.iter().skip(from).copied();
        after.filter(move |change| name.is_none_or(|name| change.name == name))
    }

    /// When it was known that a change replaced the state at a revision, or that a restore ended
    /// its epoch. `None` if the state is the newest one.
    pub(crate) fn replaced(&self, revision: u64, name: Option<&str>) -> Option<Millis> {
        let changed = self.after(revision, name).next().map(|change| change.known);
        changed.into_iter().chain(self.epoch.ended).min()
    }

    /// The state of an object after the change at `revision`, and the type of this change. As in a
    /// watch event, a deleted object has the version of its deletion and its last content.
    pub(crate) fn change(&self, revision: u64, form: Form) -> Option<(ChangeType, ObjectState)> {
        let at = self.changes.partition_point(|change| change.revision < revision);
        let change = self.changes.get(at).filter(|change| change.revision == revision)?;
        let earlier = self.changes[..at].iter().rev().find(|other| other.name == change.name);
        let before = earlier.and_then(|earlier| earlier.content);
        let (kind, content) = match (before, change.content) {
            (None, Some(now)) => (ChangeType::Added, now),
            (Some(_), Some(now)) => (ChangeType::Modified, now),
            (Some(before), None) => (ChangeType::Deleted, before),
            (None, None) => return None,
        };
        Some((kind, ObjectState { version: revision, digest: content.of(form) }))
    }

    /// The creation of an object that exists at `now`. `None` if it does not exist then.
    pub(crate) fn creation(&self, name: &str, now: Millis) -> Option<&'a EtcdChange> {
        let mut creation = None;
        for change in
            self.changes.iter().filter(|change| change.name == name && change.known <= now)
        {
            if change.content.is_none() {
                creation = None;
            } else if creation.is_none() {
                creation = Some(*change);
            }
        }
        creation
    }
}
