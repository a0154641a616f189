//! An `EventLogFollower` reads the changes in a store's event log one by one.

use super::{
    contents::StoreContents,
    dispatch::DispatchKey,
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

/// Reads each change of one store once, in order, or after [`EventLogFollower::narrow_to`] only the
/// changes that can concern a query. If the event log drops such a change that the follower has not
/// read, the follower ends with [`FollowerEvent::Overtaken`].
pub struct EventLogFollower {
    lag: FollowerLag,
    changed: Arc<Notify>,
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
    /// The number of the next change to read. Only the follower writes it.
    next: Arc<AtomicU64>,
    /// The key under which the store dispatches changes to the follower; `None` if the follower
    /// reads every change of the event log.
    key: Option<DispatchKey>,
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
        let mut follower = self.follower(&contents, next);
        follower.after = is_ahead.then(|| version.clone());
        Ok(follower)
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
        let lag = FollowerLag { store: Arc::clone(&self.store), next, key: None };
        let (changed, epoch) = (contents.dispatch.every_change(), contents.log.epoch);
        EventLogFollower { lag, changed, epoch, after: None }
    }
}

impl EventLogFollower {
    /// Makes the follower skip changes that cannot concern `query`, and not wake for them, if the
    /// query contains an equality: a name, an indexed field, a label or a namespace. The follower
    /// can still return changes of objects that the query selects neither before nor after.
    ///
    /// The follower reads every change before this call, and then the dispatched ones. Both begin
    /// at the same number, because the call holds the lock under which the writer dispatches.
    ///
    /// # Cost
    ///
    /// Takes the store's write lock for about 1 µs, and for as long again when the follower is
    /// dropped.
    #[must_use]
    pub fn narrow_to(mut self, query: &ObjectQuery) -> Self {
        let mut contents = self.lag.store.contents.write();
        let StoreContents { dispatch, paths, log, .. } = &mut *contents;
        if let Some((key, changed)) = dispatch.register(query, paths, log.next()) {
            self.changed = changed;
            if let Some(replaced) = self.lag.key.replace(key) {
                dispatch.unregister(replaced);
            }
        }
        drop(contents);
        self
    }

    /// Returns the `Notify` that the store wakes after each change that the follower reads. The
    /// `Notify` wakes only tasks that already wait. So create the `Notified` future before you call
    /// [`EventLogFollower::next_event`].
    pub fn change_notifier(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns the encoding of the store's objects. If it changes, the follower ends with
    /// [`FollowerEvent::Lost`].
    pub fn encoding(&self) -> ObjectEncoding {
        self.lag.store.contents.read().encoding
    }

    /// Reads the next change. Cost: holds the store's read lock for about 20 ns.
    pub fn next_event(&mut self) -> FollowerEvent {
        let FollowerLag { store, next, .. } = &self.lag;
        let contents = store.contents.read();
        let log = &contents.log;
        if store.is_closed() {
            return FollowerEvent::Closed;
        }
        if log.epoch != self.epoch {
            return FollowerEvent::Lost;
        }
        let is_known = |change: &StoreChange| {
            self.after.as_ref().is_some_and(|after| !after.is_older_than(&change.version))
        };
        let mut number = next.load(Ordering::Relaxed);
        loop {
            let Some(at) = self.lag.skip(&contents, number) else {
                return FollowerEvent::Overtaken;
            };
            let Some(mut changes) = log.from(at) else { return FollowerEvent::Overtaken };
            let Some(change) = changes.next() else {
                // Under the lock, every change up to the store's version is dispatched. So nothing
                // up to this version is left for the follower, whatever the log has dropped.
                next.store(log.next(), Ordering::Relaxed);
                return FollowerEvent::None(contents.consistent_version().cloned());
            };
            number = at + 1;
            next.store(number, Ordering::Relaxed);
            if !is_known(change) {
                return FollowerEvent::Change(Arc::clone(change));
            }
        }
    }

    /// Makes the next [`EventLogFollower::next_event`] call return the last change again, if the
    /// event log still contains it. Call this function only after a call that returned a change.
    pub fn unread(&mut self) {
        self.lag.next.fetch_sub(1, Ordering::Relaxed);
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
    /// Returns the number of changes that the follower has not read. Does not count changes that
    /// the follower skips.
    pub fn changes(&self) -> u64 {
        let contents = self.store.contents.read();
        let next = self.next.load(Ordering::Relaxed);
        let scanned_until = self.key.map_or_else(|| contents.log.next(), |key| key.since);
        let dispatched = self.key.map_or(0, |key| contents.dispatch.count(key, next));
        scanned_until.saturating_sub(next) + dispatched
    }

    /// Returns the number of the next change at or after `number` that the follower reads. Before
    /// its registration it reads every change, and afterwards the dispatched ones. Returns `None`
    /// if such a change was dropped.
    fn skip(&self, contents: &StoreContents, number: u64) -> Option<u64> {
        match self.key {
            Some(key) if number >= key.since => {
                contents.dispatch.next_number(key, number, contents.log.next())
            }
            Some(_) | None => Some(number),
        }
    }
}

impl Drop for EventLogFollower {
    fn drop(&mut self) {
        if let Some(key) = self.lag.key {
            self.lag.store.contents.write().dispatch.unregister(key);
        }
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
mod dispatch_tests;
#[cfg(test)]
mod tests;
