//! Follows a table: its changes one after another, from a version on or from a moment on.

use super::{
    contents::Contents,
    event_log::Change,
    query::Reader,
    select::{EarlierRecords, Said, Selected, Wanted},
    table::Table,
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

/// Follows the changes of one table, each once and in their order. It holds none of them: one that falls
/// too far behind is told so.
pub struct Follower {
    lag: Lag,
    epoch: u64,
    /// What is not newer than this is known.
    after: Option<ResourceVersion>,
}

/// How far a [`Follower`] is behind its table, for those who look on.
#[derive(Clone)]
pub struct Lag {
    table: Arc<Table>,
    /// The number of the change that the follower takes next.
    next: Arc<AtomicU64>,
}

/// What a follower finds next.
#[derive(Debug)]
pub enum News {
    /// The next change.
    Change(Arc<Change>),
    /// Nothing: the table is true at this version. `None`: at no version, while a list has found a change and is not done.
    None(Option<ResourceVersion>),
    /// The event log has dropped the next change, because it had too many.
    Overtaken,
    /// What happened is not known: a list has found a change, or the table was emptied.
    Lost,
    /// Nobody fills the table any more.
    Closed,
}

/// What happened after that version is not remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what happened after that version is not remembered")]
pub struct Forgotten {
    /// The oldest version from which on everything is; `None`: there is none.
    pub oldest: Option<ResourceVersion>,
}

impl Reader {
    /// Follows what happens after `version`, which may be one that the table has not come to yet.
    ///
    /// # Errors
    ///
    /// [`Forgotten`].
    pub fn follow(&self, version: &ResourceVersion) -> Result<Follower, Forgotten> {
        let contents = self.table.contents.read();
        let next = contents.log.behind(version);
        let next = next.ok_or_else(|| Forgotten { oldest: contents.log.since.clone() })?;
        let is_ahead = contents.version.as_ref().is_some_and(|held| held.is_older_than(version));
        let after = is_ahead.then(|| version.clone());
        Ok(Follower { after, ..self.follower(&contents, next) })
    }

    /// What `wanted` selects now, as [`Reader::select`] does, and what happens after that moment.
    #[must_use]
    pub fn select_and_follow(&self, wanted: &Wanted) -> (Selected, Follower) {
        let contents = self.table.contents.read();
        let selected = self.select_of(&contents, wanted, None, None, EarlierRecords::default());
        (selected, self.follower(&contents, contents.log.next()))
    }

    /// Follows what happens after this moment.
    #[must_use]
    pub fn follow_from_now(&self) -> Follower {
        let contents = self.table.contents.read();
        self.follower(&contents, contents.log.next())
    }

    fn follower(&self, contents: &Contents, next: u64) -> Follower {
        let next = Arc::new(AtomicU64::new(next));
        let lag = Lag { table: Arc::clone(&self.table), next };
        Follower { lag, epoch: contents.log.epoch, after: None }
    }
}

impl Follower {
    /// Wakes whoever waits on it as often as there may be news.
    #[must_use]
    pub fn told(&self) -> Arc<Notify> {
        Arc::clone(&self.lag.table.told)
    }

    /// Takes the next change. Cost: the table's lock for some 20 ns.
    pub fn take(&mut self) -> News {
        let Lag { table, next } = &self.lag;
        let contents = table.contents.read();
        let log = &contents.log;
        if table.is_closed() {
            return News::Closed;
        }
        if log.epoch != self.epoch {
            return News::Lost;
        }
        let mut number = next.load(Ordering::Relaxed);
        let Some(changes) = log.from(number) else { return News::Overtaken };
        let is_known = |change: &&Arc<Change>| {
            self.after.as_ref().is_some_and(|after| !after.is_older_than(&change.version))
        };
        let change = changes.inspect(|_| number += 1).find(|change| !is_known(change));
        next.store(number, Ordering::Relaxed);
        match change {
            Some(change) => News::Change(Arc::clone(change)),
            None => News::None(contents.version.clone().filter(|_| log.is_complete())),
        }
    }

    /// Whether it was begun from a version that the table has not come to with this one.
    #[must_use]
    pub fn awaits(&self, version: &ResourceVersion) -> bool {
        self.after.as_ref().is_some_and(|after| version.is_older_than(after))
    }

    /// How far it is behind, whoever asks.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.lag.clone()
    }

    /// The body after a change; `None` if the object is gone, or its record does not decode.
    #[must_use]
    pub fn body_after(&self, change: &Change) -> Option<Bytes> {
        self.lag.table.body(change.now.as_ref()?)
    }

    /// The body before a change; `None` if the object was not there, or its record does not decode.
    #[must_use]
    pub fn body_before(&self, change: &Change) -> Option<Bytes> {
        self.lag.table.body(change.before.as_ref()?)
    }

    /// Whether `wanted` selects an object of which this is the body; `said` is what has been read of this body.
    ///
    /// # Cost
    ///
    /// Of all who ask with the same `said`, together: one walk of the body for its labels, and no more walks
    /// than there are paths that anybody asks for, which are fields that the kind has and declared indexes.
    #[must_use]
    pub fn selects(&self, wanted: &Wanted, body: &[u8], said: &mut Said) -> bool {
        wanted.selects(self.lag.table.encoding, body, said)
    }
}

impl Lag {
    /// Changes that it has not taken.
    #[must_use]
    pub fn changes(&self) -> u64 {
        let next = self.table.contents.read().log.next();
        next.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lag").field(&self.changes()).finish()
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("next", &self.lag.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Catalog, Writer,
        event_log::WINDOW,
        samples::{body, informer_key, remove, upsert, version},
    };
    use kubewarm_api::model::{Delta, DeltaSink as _, Reread};
    use std::{collections::BTreeSet, time::Instant};

    /// A table that was listed at version 5.
    fn table() -> (Catalog, Writer, Reader) {
        let catalog = Catalog::new();
        let mut writer = catalog.open(&informer_key("pods"), &BTreeSet::new());
        writer.apply(Delta::ListStarted(Reread::Changed));
        for name in ["a/x", "a/y"] {
            writer.apply(upsert(name, 1, "4", &body(r#"{"app":"web"}"#, "")));
        }
        writer.apply(Delta::ListDone(version("5")));
        let reader = catalog.reader(&informer_key("pods")).unwrap();
        (catalog, writer, reader)
    }

    fn web(text: &str) -> String {
        body(r#"{"app":"web"}"#, &format!(r#","text":"{text}""#))
    }

    /// What is new, as `version namespace/name before>after`; or why nothing is.
    fn news(follower: &mut Follower) -> Vec<String> {
        let there = |body: Option<Bytes>| match body {
            Some(body) => {
                String::from_utf8_lossy(&body).split('"').rev().nth(1).unwrap().to_owned()
            }
            None => String::new(),
        };
        let mut told = Vec::new();
        loop {
            match follower.take() {
                News::Change(change) => {
                    let name = String::from_utf8_lossy(change.name()).into_owned();
                    let (version, namespace) = (change.version(), change.namespace());
                    let (before, now) =
                        (there(follower.body_before(&change)), there(follower.body_after(&change)));
                    told.push(format!("{version} {namespace}/{name} {before}>{now}"));
                }
                News::None(_) => return told,
                other @ (News::Overtaken | News::Lost | News::Closed) => {
                    return [told, vec![format!("{other:?}")]].concat();
                }
            }
        }
    }

    #[test]
    fn every_change_is_told_once_and_in_order() {
        let (_catalog, mut writer, reader) = table();
        let mut from_list = reader.follow(&version("5")).unwrap();
        let mut from_here = reader.follow_from_now();
        let mut ahead = reader.follow(&version("7")).unwrap();
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        writer.apply(upsert("b/z", 2, "7", &web("new")));
        writer.apply(Delta::Progress(version("8")));
        writer.apply(remove("a/x", "9"));
        let all = ["6 a/x web>one", "7 b/z >new", "9 a/x one>"];
        assert_eq!(news(&mut from_list), all);
        assert_eq!(news(&mut from_here), all);
        assert_eq!(news(&mut ahead), all[2..], "of what it awaits");
        assert_eq!(news(&mut from_list), [""; 0]);
        for (at, known) in [("5", 0), ("6", 1), ("7", 2), ("8", 2), ("9", 3), ("99", 3)] {
            let mut follower = reader.follow(&version(at)).unwrap();
            assert_eq!(news(&mut follower), all[known..], "from {at}");
        }
        let forgotten = reader.follow(&version("4")).unwrap_err();
        assert_eq!(forgotten.oldest, Some(version("5")));
    }

    #[test]
    fn what_is_remembered_weighs_what_nothing_else_holds() {
        let (_catalog, mut writer, reader) = table();
        let mut random = fastrand::Rng::with_seed(7);
        let before = reader.usage().bytes;
        for n in 6..16 {
            let text: String = (0..64 << 10).map(|_| random.alphanumeric()).collect();
            writer.apply(upsert("a/x", 1, &n.to_string(), &web(&text)));
        }
        // Each of ten records once, though nine of them are the end of one change and the begin of the next.
        let one = reader.place_of(0).1 as u64;
        let held = reader.usage().bytes - before;
        assert!((one * 10..one * 11).contains(&held), "{held} bytes, of {one} each");
        writer.apply(Delta::Purge);
        assert_eq!(reader.usage(), crate::store::Usage::default());
    }

    #[test]
    fn what_is_selected_and_what_happens_next_meet_without_a_gap() {
        let (_catalog, mut writer, reader) = table();
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        let (selected, mut follower) = reader.select_and_follow(&Wanted::default());
        assert_eq!(selected.version(), Some(&version("6")));
        writer.apply(upsert("a/x", 1, "7", &web("two")));
        writer.apply(upsert("a/x", 9, "8", &web("another")));
        assert_eq!(news(&mut follower), ["7 a/x one>two", "8 a/x two>another"]);
        let (_, mut at_version) = reader.select_and_follow(&Wanted::default());
        assert!(matches!(at_version.take(), News::None(Some(at)) if at == version("8")));
    }

    #[test]
    fn a_list_that_finds_something_new_ends_the_log_and_one_that_does_not_keeps_it() {
        let (_catalog, mut writer, reader) = table();
        let mut follower = reader.follow(&version("5")).unwrap();
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        let relist = |writer: &mut Writer, y: &str, at: &str| {
            writer.apply(Delta::ListStarted(Reread::Changed));
            writer.apply(upsert("a/x", 1, "6", &web("one")));
            writer.apply(upsert("a/y", 1, y, &body(r#"{"app":"web"}"#, "")));
            writer.apply(Delta::ListDone(version(at)));
        };
        relist(&mut writer, "4", "10");
        assert_eq!(news(&mut follower), ["6 a/x web>one"]);
        assert!(reader.follow(&version("5")).is_ok());
        // An object may have come and gone between 6 and 10.
        for (at, is_known) in [("6", true), ("7", false), ("9", false), ("10", true), ("11", true)]
        {
            assert_eq!(reader.follow(&version(at)).is_ok(), is_known, "{at}");
            assert_eq!(reader.remembers(&version(at)), is_known && at != "11", "{at}");
        }
        let mut next = reader.follow(&version("10")).unwrap();
        relist(&mut writer, "12", "20");
        for follower in [&mut follower, &mut next] {
            assert_eq!(news(follower), ["Lost"]);
        }
        assert_eq!(reader.follow(&version("19")).unwrap_err().oldest, Some(version("20")));
        assert!(reader.follow(&version("20")).is_ok());
        // What is gone was not told either.
        let mut follower = reader.follow(&version("20")).unwrap();
        writer.apply(Delta::ListStarted(Reread::Changed));
        let at = |follower: &mut Follower| {
            let News::None(version) = follower.take() else { panic!("nothing is new") };
            version
        };
        assert_eq!(at(&mut follower), Some(version("20")), "the list has found no change");
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        writer.apply(upsert("a/z", 1, "25", &web("new")));
        assert_eq!(at(&mut follower), None, "the list has found a change");
        writer.apply(Delta::ListDone(version("30")));
        assert_eq!(news(&mut follower), ["Lost"]);
    }

    #[test]
    fn what_is_purged_is_never_told_to_anybody_who_comes_later() {
        let (_catalog, mut writer, reader) = table();
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        let mut follower = reader.follow(&version("5")).unwrap();
        writer.apply(Delta::Purge);
        assert_eq!(news(&mut follower), ["Lost"]);
        assert_eq!(reader.follow(&version("5")).unwrap_err().oldest, None);
        writer.apply(upsert("a/x", 1, "9", &web("later")));
        assert!(reader.follow(&version("9")).is_err(), "nothing is known until it is listed");
    }

    #[test]
    fn what_has_no_place_in_the_order_ends_the_log() {
        let (_catalog, mut writer, reader) = table();
        writer.apply(Delta::Progress(version("9")));
        let mut follower = reader.follow(&version("9")).unwrap();
        writer.apply(upsert("a/x", 1, "7", &web("late")));
        assert_eq!(news(&mut follower), ["Lost"]);
        assert!(reader.follow(&version("8")).is_err());
        assert!(reader.follow(&version("9")).is_ok());
    }

    #[test]
    fn followers_of_a_table_that_nobody_fills_are_told() {
        let (catalog, _writer, reader) = table();
        let mut follower = reader.follow_from_now();
        catalog.close(&informer_key("pods"));
        assert_eq!(news(&mut follower), ["Closed"]);
    }

    #[test]
    fn the_log_is_bounded_in_time_and_in_bytes_and_is_counted() {
        let (_catalog, mut writer, reader) = table();
        let began = Instant::now();
        let mut random = fastrand::Rng::with_seed(1);
        let mut text = |length| -> String {
            std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
        };
        let mut slow = reader.follow(&version("5")).unwrap();
        let empty = reader.usage().bytes;
        for number in 0..400_u64 {
            writer.apply(Delta::Arrived(began));
            writer.apply(upsert("a/x", 1, &(number + 6).to_string(), &web(&text(4_096))));
        }
        let full = reader.usage().bytes;
        assert!(full > empty + (1 << 20) && full < empty + (2 << 20), "{full} bytes");
        assert_eq!(slow.lag().changes(), 400);
        assert_eq!(news(&mut slow), ["Overtaken"]);
        assert!(reader.follow(&version("5")).is_err());
        writer.apply(Delta::Arrived(began + WINDOW * 2));
        writer.apply(Delta::Progress(version("1000")));
        let quiet = reader.usage().bytes;
        assert!(quiet < empty + (48 << 10), "{quiet} bytes after a while");
        assert!(reader.follow(&version("405")).is_ok());
        // Of what hardly changes even old versions are known.
        let (_catalog, mut writer, reader) = table();
        writer.apply(Delta::Arrived(began));
        writer.apply(upsert("a/x", 1, "6", &web("one")));
        writer.apply(Delta::Arrived(began + WINDOW * 100));
        writer.apply(Delta::Progress(version("1000")));
        assert_eq!(news(&mut reader.follow(&version("5")).unwrap()), ["6 a/x web>one"]);
    }
}
