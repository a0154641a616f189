//! An `EventLogFollower` reads the changes in a store's event log one by one.

use super::{
    contents::StoreContents,
    event_log::StoreChange,
    object_store::ObjectStore,
    reader::StoreReader,
    select::{BodyFieldCache, EarlierObjects, ObjectQuery, ObjectSnapshot},
};
use bytes::Bytes;
use kubewarm_api::model::{ObjectEncoding, ResourceVersion};
use kubewarm_wire::ObjectBody;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;

/// Reads each change of one store once, in order. If the event log drops a change that the follower
/// has not read, the follower ends with [`FollowerEvent::Overtaken`].
pub struct EventLogFollower {
    lag: FollowerLag,
    /// The event log's `epoch` when the follower was created.
    epoch: u64,
    /// The resource version after which the client watches, if it is newer than the store's
    /// version, otherwise `None`. The follower skips changes up to this version, because the client
    /// already has them.
    after: Option<ResourceVersion>,
}

/// A handle with which another task counts the changes that an [`EventLogFollower`] has not read.
#[derive(Clone)]
pub struct FollowerLag {
    store: Arc<ObjectStore>,
    next: Arc<AtomicU64>,
}

/// The result of one [`EventLogFollower::next_event`] call.
#[derive(Debug)]
pub enum FollowerEvent {
    /// The next change of an object.
    Change(Arc<StoreChange>),
    /// The follower has read all changes, and the store is complete at this resource version. The
    /// version is `None` if the informer is listing again and this list has found a change.
    None(Option<ResourceVersion>),
    /// The event log has dropped changes before the follower read them.
    Overtaken,
    /// The event log has dropped all its changes. Either a list of the informer found a change, or
    /// the store was purged. The client must list again.
    Lost,
    /// The store was closed, or another store was opened for the same informer key.
    Closed,
}

/// Error: the event log lacks changes after the requested version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event log lacks changes after that version")]
pub struct ExpiredVersion {
    /// The event log contains all changes after this resource version. `None` until a list of the
    /// store is complete.
    pub oldest: Option<ResourceVersion>,
}

impl StoreReader {
    /// Returns a follower of the changes after resource version `version`, which can be newer than
    /// the store's version.
    ///
    /// # Errors
    ///
    /// [`ExpiredVersion`] if the event log lacks changes after `version`.
    pub fn follow(&self, version: &ResourceVersion) -> Result<EventLogFollower, ExpiredVersion> {
        let contents = self.store.contents.read();
        let next = contents.log.first_after(version);
        let next = next.ok_or_else(|| ExpiredVersion { oldest: contents.log.since.clone() })?;
        let is_ahead =
            contents.version.as_ref().is_some_and(|current| current.is_older_than(version));
        let after = is_ahead.then(|| version.clone());
        Ok(EventLogFollower { after, ..self.follower(&contents, next) })
    }

    /// Selects objects as [`StoreReader::select`] does, and returns a follower of all changes after
    /// the selection.
    pub fn select_and_follow(&self, query: &ObjectQuery) -> (ObjectSnapshot, EventLogFollower) {
        let contents = self.store.contents.read();
        let selected = self.select_of(&contents, query, None, None, EarlierObjects::default());
        (selected, self.follower(&contents, contents.log.next()))
    }

    /// Returns a follower of the changes after this call.
    pub fn follow_from_now(&self) -> EventLogFollower {
        let contents = self.store.contents.read();
        self.follower(&contents, contents.log.next())
    }

    fn follower(&self, contents: &StoreContents, next: u64) -> EventLogFollower {
        let next = Arc::new(AtomicU64::new(next));
        let lag = FollowerLag { store: Arc::clone(&self.store), next };
        EventLogFollower { lag, epoch: contents.log.epoch, after: None }
    }
}

impl EventLogFollower {
    /// Returns the `Notify` that the store wakes after each change. The `Notify` wakes only tasks
    /// that already wait. So create the `Notified` future before you call
    /// [`EventLogFollower::next_event`].
    pub fn change_notifier(&self) -> Arc<Notify> {
        Arc::clone(&self.lag.store.changed)
    }

    /// Returns the encoding of the store's objects. If it changes, the follower ends with
    /// [`FollowerEvent::Lost`].
    pub fn encoding(&self) -> ObjectEncoding {
        self.lag.store.contents.read().encoding
    }

    /// Reads the next change. Cost: holds the store's read lock for about 20 ns.
    pub fn next_event(&mut self) -> FollowerEvent {
        let FollowerLag { store, next } = &self.lag;
        let contents = store.contents.read();
        let log = &contents.log;
        if store.is_closed() {
            return FollowerEvent::Closed;
        }
        if log.epoch != self.epoch {
            return FollowerEvent::Lost;
        }
        let mut number = next.load(Ordering::Relaxed);
        let Some(changes) = log.from(number) else { return FollowerEvent::Overtaken };
        let is_known = |change: &&Arc<StoreChange>| {
            self.after.as_ref().is_some_and(|after| !after.is_older_than(&change.version))
        };
        let change = changes.inspect(|_| number += 1).find(|change| !is_known(change));
        next.store(number, Ordering::Relaxed);
        match change {
            Some(change) => FollowerEvent::Change(Arc::clone(change)),
            None => FollowerEvent::None(contents.version.clone().filter(|_| log.is_complete())),
        }
    }

    /// Whether the follower started after a resource version that is newer than `version`. If so, a
    /// bookmark at `version` would move the client's version back.
    pub fn is_ahead_of_store(&self, version: &ResourceVersion) -> bool {
        self.after.as_ref().is_some_and(|after| version.is_older_than(after))
    }

    /// Returns a handle with which another task counts the changes that this follower has not read.
    pub fn lag(&self) -> FollowerLag {
        self.lag.clone()
    }

    /// Returns the object after `change`, in the encoding of the change. Returns `None` if the
    /// object was deleted or cannot be decompressed.
    pub fn bytes_after(&self, change: &StoreChange) -> Option<Bytes> {
        self.lag.store.body(change.now.as_ref()?)
    }

    /// Returns the object before `change`, in the encoding of the change. Returns `None` if the
    /// object did not exist or cannot be decompressed.
    pub fn bytes_before(&self, change: &StoreChange) -> Option<Bytes> {
        self.lag.store.body(change.before.as_ref()?)
    }

    /// Whether the object matches the labels and field conditions of `query`. `fields` caches
    /// the labels and field values of this object.
    ///
    /// # Cost
    ///
    /// Calls with the same `fields` scan the body at most once for its labels and once for each
    /// field path. The paths are the selectable fields of the resource, and the fields for which
    /// profiles declare an index.
    pub fn is_selected(
        &self,
        query: &ObjectQuery,
        body: ObjectBody<'_>,
        fields: &mut BodyFieldCache,
    ) -> bool {
        query.selects(body, fields)
    }
}

impl FollowerLag {
    /// Returns the number of changes that the follower has not read.
    pub fn changes(&self) -> u64 {
        let next = self.store.contents.read().log.next();
        next.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for FollowerLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FollowerLag").field(&self.changes()).finish()
    }
}

impl fmt::Debug for EventLogFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLogFollower").field("next", &self.lag.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
