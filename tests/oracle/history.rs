//! Every change of the collections, as etcd stored it. An etcd restore begins another epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::{ChangeType, CollectionIndex, Form, Millis, ObjectState};

/// One write in etcd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EtcdChange {
    pub(crate) revision: u64,
    /// When `etcdctl` printed the change. It was committed before.
    pub(crate) known: Millis,
    pub(crate) collection: CollectionIndex,
    pub(crate) name: String,
    /// The new content; `None` for a deletion.
    pub(crate) content: Option<Digests>,
}

/// Hashes of one object's content.
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
    /// The changes of earlier epochs up to this revision belong to this epoch too.
    pub(crate) base: u64,
    pub(crate) began: Millis,
    /// When the restore that ended the epoch began.
    pub(crate) ended: Option<Millis>,
    pub(crate) changes: Vec<EtcdChange>,
    /// The last revision.
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
            changes.extend(epoch.changes.iter().filter(|it| it.collection == collection));
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

    /// The changes after a revision; with `name`, only of this object.
    pub(crate) fn after<'s>(
        &'s self,
        revision: u64,
        name: Option<&'s str>,
    ) -> impl Iterator<Item = &'a EtcdChange> + 's {
        let from = self.changes.partition_point(|change| change.revision <= revision);
        let after = self.changes.iter().skip(from).copied();
        after.filter(move |change| name.is_none_or(|name| change.name == name))
    }

    /// When it was known that the state at a revision was replaced. `None` if it is the newest and its epoch has not ended.
    pub(crate) fn replaced(&self, revision: u64, name: Option<&str>) -> Option<Millis> {
        let changed = self.after(revision, name).next().map(|change| change.known);
        changed.into_iter().chain(self.epoch.ended).min()
    }

    /// The state of an object whose version is `revision`, and the type of the change that made it. A deleted object
    /// has the version of its deletion and its last content.
    pub(crate) fn change(&self, revision: u64, form: Form) -> Option<(ChangeType, ObjectState)> {
        let at = self.changes.partition_point(|change| change.revision < revision);
        let change = self.changes.get(at).filter(|change| change.revision == revision)?;
        let earlier = self.changes[..at].iter().rev().find(|it| it.name == change.name);
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
        for change in self.changes.iter().filter(|it| it.name == name && it.known <= now) {
            if change.content.is_none() {
                creation = None;
            } else if creation.is_none() {
                creation = Some(*change);
            }
        }
        creation
    }
}
