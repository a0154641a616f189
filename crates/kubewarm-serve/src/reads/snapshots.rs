//! What the next pages of a list are answered from: all that was selected at the moment of the first, for
//! as long as there is room.

use super::cover::Candidate;
use jiff::Timestamp;
use kubewarm_api::model::{CellKey, ObjectKey, ResourceVersion};
use kubewarm_cache::{
    informer::{CellReport, Loss},
    store::{Reader, Selected, Wanted},
};
use parking_lot::Mutex;
use std::{collections::VecDeque, fmt, time::Duration};
use tokio::time::Instant;

/// How long pages may take to be asked for, one after another: what the API server remembers of events.
pub(super) const LIFE: Duration = Duration::from_secs(75);
/// Memory for all of them: 250,000 pods, packed.
const MAX_BYTES: usize = 128 << 20;
/// Selections: each is looked at whenever a page is asked for.
const MOST: usize = 1_024;
/// Who takes fewer at once looks for some, not for all: what stands behind them is not taken.
pub(super) const MIN_LIMIT: usize = 50;

/// Selections by cell, version and what was wanted, the oldest first.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<VecDeque<Snapshot>>);

/// How a cell stood: another one where access was lost, or anything was listed again, meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    key: CellKey,
    synced_at: Option<Timestamp>,
    lost: Option<Loss>,
}

struct Snapshot {
    moment: Moment,
    wanted: Wanted,
    selected: Selected,
    bytes: usize,
    used: Instant,
}

impl Moment {
    pub(super) fn of(candidate: &Candidate<'_>) -> Self {
        Self::at(candidate.key, &candidate.report)
    }

    pub(super) fn at(key: &CellKey, report: &CellReport) -> Self {
        Self { key: key.clone(), synced_at: report.synced_at, lost: report.lost }
    }
}

impl Snapshots {
    /// Keeps what was selected behind `after`, and lets go of others for that.
    pub(super) fn put(
        &self,
        moment: Moment,
        wanted: &Wanted,
        (selected, after): (&Selected, Option<&ObjectKey>),
    ) {
        let bytes = size_of::<Snapshot>() + selected.bytes() + wanted.bytes();
        if bytes > MAX_BYTES / 2 {
            return;
        }
        let mut gone = Vec::new();
        let mut held = self.0.lock();
        let now = Instant::now();
        let is_it = |it: &Snapshot| {
            it.moment == moment
                && it.wanted == *wanted
                && it.selected.version() == selected.version()
                && it.selected.reaches(after)
        };
        if let Some(known) = held.iter_mut().find(|it| is_it(it)) {
            known.used = now;
            return;
        }
        let mut total: usize = held.iter().map(|it| it.bytes).sum();
        while let Some(oldest) = held.front()
            && (total + bytes > MAX_BYTES
                || held.len() >= MOST
                || now.duration_since(oldest.used) > LIFE)
        {
            total -= oldest.bytes;
            gone.extend(held.pop_front());
        }
        let (wanted, selected) = (wanted.clone(), selected.clone());
        held.push_back(Snapshot { moment, wanted, selected, bytes, used: now });
        drop(held);
        // Freed outside the lock.
        drop(gone);
    }

    /// What was selected by `wanted` in that version, the objects behind `after` included, if the cell stands
    /// as it did then.
    pub(super) fn get(
        &self,
        (moment, version, wanted): (&Moment, &ResourceVersion, &Wanted),
        after: Option<&ObjectKey>,
        reader: &Reader,
    ) -> Option<Selected> {
        let mut held = self.0.lock();
        let now = Instant::now();
        let at = held.iter().position(|it| {
            it.is_at(moment, version, now)
                && it.wanted == *wanted
                && it.selected.is_of(reader)
                && it.selected.reaches(after)
        })?;
        let mut found = held.remove(at)?;
        found.used = now;
        let selected = found.selected.clone();
        held.push_back(found);
        Some(selected)
    }

    /// Lets go of what was not asked for in time.
    pub(super) fn tidy(&self) {
        let mut held = self.0.lock();
        let now = Instant::now();
        let late = held.iter().take_while(|it| now.duration_since(it.used) > LIFE).count();
        let gone: Vec<_> = held.drain(..late).collect();
        drop(held);
        drop(gone);
    }

    /// Whether there is anything of that version.
    pub(super) fn has(&self, moment: &Moment, version: &ResourceVersion) -> bool {
        let now = Instant::now();
        self.0.lock().iter().any(|it| it.is_at(moment, version, now))
    }
}

impl Snapshot {
    fn is_at(&self, moment: &Moment, version: &ResourceVersion, now: Instant) -> bool {
        self.moment == *moment
            && self.selected.version() == Some(version)
            && now.duration_since(self.used) <= LIFE
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshots").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::sample::{cell, report};
    use kubewarm_api::model::{Delta, DeltaSink as _, Item, Uid};
    use kubewarm_cache::store::Catalog;
    use std::collections::BTreeSet;

    fn version(text: &str) -> ResourceVersion {
        ResourceVersion::parse(text).unwrap()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "a".into(), name: name.into() }
    }

    /// A table of `count` objects at version 9, and how it is filled.
    fn table(catalog: &Catalog, count: usize) -> (Reader, impl FnMut(&str, &str)) {
        let mut writer = catalog.open(&cell("a", "", ""), &BTreeSet::new());
        let mut put = move |name: &str, at: &str| {
            writer.apply(Delta::Upsert(Item {
                namespace: "a".into(),
                name: name.into(),
                uid: Uid::parse(name),
                version: Some(version(at)),
                body: b"{}",
            }));
            writer.apply(Delta::Progress(version(at)));
        };
        for n in 0..count {
            put(&format!("x{n:03}"), "9");
        }
        (catalog.reader(&cell("a", "", "")).unwrap(), put)
    }

    #[test]
    fn pages_of_a_cell_that_stands_otherwise_are_gone() {
        let catalog = Catalog::new();
        let (reader, mut put) = table(&catalog, 200);
        let (snapshots, wanted) = (Snapshots::default(), Wanted::default());
        let now = report(Instant::now());
        let moment = Moment::at(&cell("a", "", ""), &now);
        let selected = reader.select(&wanted, None, Some(usize::MAX));
        snapshots.put(moment.clone(), &wanted, (&selected, None));
        put("x100a", "10");
        let after = key("x099");
        let get = |moment: &Moment, at: &str, wanted: &Wanted| {
            snapshots.get((moment, &version(at), wanted), Some(&after), &reader)
        };
        let found = get(&moment, "9", &wanted).unwrap();
        assert_eq!(found.behind(Some(&after)), 100, "of the moment of the first page");
        let other = Wanted { name: Some("x".into()), ..Wanted::default() };
        assert!(get(&moment, "10", &wanted).is_none() && get(&moment, "9", &other).is_none());

        let mut lost = now.clone();
        lost.lost = Some(Loss { at: Instant::now(), time: Timestamp::UNIX_EPOCH });
        let mut relisted = now;
        relisted.synced_at = Some(Timestamp::now());
        for report in [lost, relisted] {
            let moment = Moment::at(&cell("a", "", ""), &report);
            assert!(get(&moment, "9", &wanted).is_none(), "{report:?}");
        }
        let replaced = table(&catalog, 1).0;
        let of = (&moment, &version("9"), &wanted);
        assert!(snapshots.get(of, None, &replaced).is_none(), "of another table");
    }

    #[test]
    fn what_begins_behind_a_place_says_nothing_of_what_stands_before() {
        let catalog = Catalog::new();
        let (reader, _) = table(&catalog, 200);
        let (snapshots, wanted) = (Snapshots::default(), Wanted::default());
        let moment = Moment::at(&cell("a", "", ""), &report(Instant::now()));
        let begins = key("x100");
        let selected = reader.select(&wanted, Some(&begins), Some(usize::MAX));
        snapshots.put(moment.clone(), &wanted, (&selected, Some(&begins)));
        let (at, later, earlier) = (version("9"), key("x150"), key("x050"));
        let get = |after| snapshots.get((&moment, &at, &wanted), after, &reader).is_some();
        assert!(get(Some(&begins)) && get(Some(&later)));
        assert!(!get(Some(&earlier)) && !get(None));
        let all = reader.select(&wanted, None, Some(usize::MAX));
        snapshots.put(moment.clone(), &wanted, (&all, None));
        assert!(get(Some(&earlier)) && get(None), "nor does it stand in for that");
    }

    #[test]
    fn what_is_wanted_is_weighed_and_selections_are_counted() {
        let catalog = Catalog::new();
        let (reader, _) = table(&catalog, 60);
        let (snapshots, moment) =
            (Snapshots::default(), Moment::at(&cell("a", "", ""), &report(Instant::now())));
        let kept = |wanted: &Wanted| {
            snapshots.get((&moment, &version("9"), wanted), None, &reader).is_some()
        };
        let named = |name: String| Wanted { name: Some(name.into()), ..Wanted::default() };
        let put = |wanted: &Wanted| {
            let selected = reader.select(wanted, None, Some(usize::MAX));
            snapshots.put(moment.clone(), wanted, (&selected, None));
        };
        let all: Vec<_> = (0..=MOST).map(|n| named(format!("x{n}"))).collect();
        all.iter().for_each(put);
        assert_eq!(snapshots.0.lock().len(), MOST);
        assert!(!kept(&all[0]) && kept(&all[1]), "the oldest made room");
        let large = |n: usize| named(n.to_string().repeat(MAX_BYTES / 3));
        (1..=4).map(large).for_each(|wanted| put(&wanted));
        let kept: Vec<_> = (1..=4).map(large).map(|wanted| kept(&wanted)).collect();
        assert_eq!(kept, [false, false, true, true]);
        put(&named("x".repeat(MAX_BYTES / 2)));
        assert_eq!(snapshots.0.lock().len(), 2, "what takes half of all is not kept");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_goes() {
        let catalog = Catalog::new();
        let (reader, _) = table(&catalog, 60);
        let (snapshots, wanted) = (Snapshots::default(), Wanted::default());
        let moment = Moment::at(&cell("a", "", ""), &report(Instant::now()));
        let selected = reader.select(&wanted, None, Some(usize::MAX));
        snapshots.put(moment.clone(), &wanted, (&selected, None));
        tokio::time::advance(LIFE / 2).await;
        snapshots.tidy();
        assert!(snapshots.has(&moment, &version("9")));
        tokio::time::advance(LIFE).await;
        assert!(!snapshots.has(&moment, &version("9")));
        snapshots.tidy();
        assert!(snapshots.0.lock().is_empty());
    }
}
