//! Followers, which read the changes of a store one by one from its event log.

use super::{
    contents::StoreContents,
    event_log::StoreChange,
    object_store::ObjectStore,
    reader::StoreReader,
    select::{BodyFieldCache, EarlierObjects, ObjectQuery, ObjectSnapshot},
};
use bytes::Bytes;
use kubewarm_api::model::ResourceVersion;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;

/// Reads each change of one store once, in order. [`FollowerEvent::Overtaken`] ends a follower that falls too far behind.
pub struct EventLogFollower {
    lag: FollowerLag,
    epoch: u64,
    /// Changes up to this version are skipped. Set if the follower started ahead of the store.
    after: Option<ResourceVersion>,
}

/// A handle with which other tasks count the changes that a [`EventLogFollower`] has not read.
#[derive(Clone)]
pub struct FollowerLag {
    store: Arc<ObjectStore>,
    /// Number of the change that the follower reads next.
    next: Arc<AtomicU64>,
}

/// The result of [`EventLogFollower::next_event`].
#[derive(Debug)]
pub enum FollowerEvent {
    /// The next change.
    Change(Arc<StoreChange>),
    /// There is no new change, and the store is complete at this version. `None` during a list that found a change.
    None(Option<ResourceVersion>),
    /// The event log has dropped the next change, because the follower was too slow.
    Overtaken,
    /// Changes are missing, because a list found a change or the store was purged. The client must list again.
    Lost,
    /// The store was closed or replaced.
    Closed,
}

/// The event log lacks changes after the requested version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event log lacks changes after that version")]
pub struct ExpiredVersion {
    /// The oldest version after which no change is missing; `None` if there is none.
    pub oldest: Option<ResourceVersion>,
}

impl StoreReader {
    /// Follows the changes after `version`, which can be newer than the store.
    ///
    /// # Errors
    ///
    /// [`ExpiredVersion`] if the event log lacks changes after `version`.
    pub fn follow(&self, version: &ResourceVersion) -> Result<EventLogFollower, ExpiredVersion> {
        let contents = self.store.contents.read();
        let next = contents.log.first_after(version);
        let next = next.ok_or_else(|| ExpiredVersion { oldest: contents.log.since.clone() })?;
        let is_ahead = contents.version.as_ref().is_some_and(|held| held.is_older_than(version));
        let after = is_ahead.then(|| version.clone());
        Ok(EventLogFollower { after, ..self.follower(&contents, next) })
    }

    /// Selects objects as [`StoreReader::select`] does, and follows the changes after the same moment.
    #[must_use]
    pub fn select_and_follow(&self, query: &ObjectQuery) -> (ObjectSnapshot, EventLogFollower) {
        let contents = self.store.contents.read();
        let selected = self.select_of(&contents, query, None, None, EarlierObjects::default());
        (selected, self.follower(&contents, contents.log.next()))
    }

    /// Follows the changes after this moment.
    #[must_use]
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
    /// Returns a notifier of changes. It wakes only waiters that exist at the time of a change, so create the
    /// `Notified` future before calling [`EventLogFollower::next_event`].
    #[must_use]
    pub fn change_notifier(&self) -> Arc<Notify> {
        Arc::clone(&self.lag.store.changed)
    }

    /// Reads the next change. Cost: the store's lock for about 20 ns.
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

    /// Whether [`StoreReader::follow`] was called with a version newer than `version`. A bookmark at `version` would then
    /// go back.
    #[must_use]
    pub fn is_ahead_of_store(&self, version: &ResourceVersion) -> bool {
        self.after.as_ref().is_some_and(|after| version.is_older_than(after))
    }

    /// Returns a handle that counts the changes that the follower has not read.
    #[must_use]
    pub fn lag(&self) -> FollowerLag {
        self.lag.clone()
    }

    /// Returns the body after a change, or `None` if the object was deleted or its body does not decode.
    #[must_use]
    pub fn body_after(&self, change: &StoreChange) -> Option<Bytes> {
        self.lag.store.body(change.now.as_ref()?)
    }

    /// Returns the body before a change, or `None` if the object did not exist or its body does not decode.
    #[must_use]
    pub fn body_before(&self, change: &StoreChange) -> Option<Bytes> {
        self.lag.store.body(change.before.as_ref()?)
    }

    /// Whether a body matches the labels and tests of `query`. `fields` caches values of this body.
    ///
    /// # Cost
    ///
    /// All calls with the same `fields` together scan the body once for its labels, and at most once for each path. The
    /// paths are the selectable fields of the resource and the declared indexes.
    #[must_use]
    pub fn is_selected(
        &self,
        query: &ObjectQuery,
        body: &[u8],
        fields: &mut BodyFieldCache,
    ) -> bool {
        query.selects(self.lag.store.encoding, body, fields)
    }
}

impl FollowerLag {
    /// Returns the number of changes that the follower has not read.
    #[must_use]
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
