//! Copies a store for another replica: the objects at the oldest version that the event log covers,
//! and the changes since then. So the copy has the same event log.

use super::{
    event_log::StoreChange,
    reader::StoreReader,
    select::{EarlierObjects, ObjectQuery, ObjectSnapshot},
};
use bytes::Bytes;
use kubewarm_api::model::{ObjectIdentity, ResourceVersion};
use std::{collections::VecDeque, sync::Arc};

/// The content of a store at one moment, in a form from which another store can be filled. Takes 16
/// bytes for each object and for each change, because the objects are shared with the store.
pub struct StoreTransfer {
    /// The objects at the version `start`.
    pub objects: ObjectSnapshot,
    /// The version at which the copy begins.
    pub start: ResourceVersion,
    /// The changes after `start`, the oldest first.
    pub changes: VecDeque<Arc<StoreChange>>,
    /// The version of the store at the moment of the copy.
    pub end: ResourceVersion,
    reader: StoreReader,
}

impl StoreReader {
    /// Copies the store's objects and its event log, and calls `each` for every object. Returns
    /// `None` in these cases:
    ///
    /// - No list of the store is complete.
    /// - The informer is listing again, and this list has found a change.
    /// - The versions are not numbers, so that a reader could not compare them.
    ///
    /// # Cost
    ///
    /// Holds the store's read lock for about 0.3 µs for each object and 0.5 µs for each change.
    pub fn transfer(&self, mut each: impl FnMut(ObjectIdentity<'_>)) -> Option<StoreTransfer> {
        let contents = self.store.contents.read();
        let end = contents.consistent_version().filter(|version| !version.is_opaque())?.clone();
        let start = contents.log.start()?.clone();
        let first = contents.log.first_after(&start)?;
        let changes: VecDeque<_> = contents.log.from(first)?.map(Arc::clone).collect();
        let mut earlier = EarlierObjects::default();
        earlier.add(&changes, &ObjectQuery::default(), None);
        let objects = self.select_of(&contents, &ObjectQuery::default(), None, None, earlier);
        contents.visit(&mut each);
        drop(contents);
        Some(StoreTransfer { objects, start, changes, end, reader: self.clone() })
    }
}

impl StoreTransfer {
    /// Returns the object after `change`, in the encoding of the change. Returns `None` if the
    /// object was deleted or cannot be decompressed.
    pub fn bytes_after(&self, change: &StoreChange) -> Option<Bytes> {
        self.reader.store.body(change.now.as_ref()?)
    }

    /// Returns the object before `change`, in the encoding of the change. Returns `None` if the
    /// object did not exist or cannot be decompressed.
    pub fn bytes_before(&self, change: &StoreChange) -> Option<Bytes> {
        self.reader.store.body(change.before.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        StoreCatalog,
        fixtures::{body, informer_key, remove, upsert, version},
    };
    use kubewarm_api::model::{Delta, DeltaSink as _, ReplacePolicy};
    use std::{collections::BTreeSet, ops::ControlFlow};

    fn names(transfer: &mut StoreTransfer) -> Vec<String> {
        let mut names = Vec::new();
        transfer.objects.visit_next(|seen| {
            names.push(String::from_utf8_lossy(seen.name).into_owned());
            ControlFlow::Continue(())
        });
        names
    }

    #[test]
    fn a_copy_begins_with_the_event_log_and_leaves_its_gaps_out() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        let reader = writer.reader();
        let object = body("{}", "");
        let transfer = || reader.transfer(|_| {});
        assert!(transfer().is_none(), "there is no list");
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(upsert("a/x", 1, "4", &object));
        assert!(transfer().is_none(), "the list is not complete");
        writer.apply(Delta::ListDone(version("5")));
        for delta in [
            upsert("a/y", 2, "6", &object),
            remove("a/x", "7"),
            upsert("a/z", 3, "8", &object),
            Delta::Progress(version("9")),
        ] {
            writer.apply(delta);
        }
        let mut seen = Vec::new();
        let mut copy = reader.transfer(|object| seen.push(object.name.to_owned())).unwrap();
        assert_eq!((copy.start.clone(), copy.end.clone()), (version("5"), version("9")));
        assert_eq!((names(&mut copy), seen), (vec!["x".to_owned()], vec!["y".into(), "z".into()]));
        let changes: Vec<_> = copy.changes.iter().map(|change| change.version().clone()).collect();
        assert_eq!(changes, ["6", "7", "8"].map(version));
        assert!(copy.bytes_before(&copy.changes[1]).is_some(), "the deleted object");
        assert!(copy.bytes_after(&copy.changes[1]).is_none());

        // A relist that finds no change can miss an object that was created and deleted meanwhile.
        // The log of a copy has no gaps, so it begins after the last one.
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(upsert("a/y", 2, "6", &object));
        writer.apply(upsert("a/z", 3, "8", &object));
        writer.apply(Delta::ListDone(version("12")));
        writer.apply(upsert("a/z", 3, "13", &object));
        let mut copy = transfer().unwrap();
        assert_eq!((copy.start.clone(), copy.changes.len()), (version("12"), 1));
        assert_eq!(names(&mut copy), ["y", "z"]);
    }

    #[test]
    fn a_store_with_opaque_versions_has_no_copy() {
        let (catalog, key) = (StoreCatalog::new(), informer_key("pods"));
        let mut writer = catalog.open(&key, &BTreeSet::new());
        writer.apply(Delta::ListStarted(ReplacePolicy::Changed));
        writer.apply(Delta::ListDone(version("x")));
        assert!(writer.reader().transfer(|_| {}).is_none());
    }
}
