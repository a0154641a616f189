//! Holds back what a list names and a complete table lacks, until it is known how old the list is.
//!
//! Lists of custom resources name their version behind the items, streaming lists in their last
//! line. A table that was complete at version 9 lacks an object of version 5 for one of two reasons:
//! it had been deleted by 9, and a lagging server shows it once more; or we have missed it, and the
//! list makes up for that. Only the version of the list can tell: so the object waits for it.

use super::{
    Stage,
    task::{Task, apply},
};
use crate::model::{Delta, Fault, Item, Outcome, Reason, ResourceVersion, Uid};

/// Most objects that one list may have held back. A server lags by seconds; more than that many
/// deletions are rarer than a list that is worth its consistent read.
const MAX_OBJECTS: usize = 4_096;
/// Most bytes of their bodies: little beside the largest object that is taken.
const MAX_BYTES: usize = 4 << 20;

/// What the list under way has named and nobody can judge yet.
#[derive(Debug)]
pub(super) struct Doubts {
    /// The table was complete at this version; `None` if nothing of the list is in doubt.
    complete_at: Option<ResourceVersion>,
    objects: Vec<Doubted>,
    bytes: usize,
}

/// An object that waits.
#[derive(Debug)]
struct Doubted {
    namespace: String,
    name: String,
    uid: Uid,
    version: Option<ResourceVersion>,
    body: Box<[u8]>,
}

/// More are in doubt than are held back.
#[derive(Debug, PartialEq, Eq)]
struct TooMany;

impl Doubts {
    /// Nothing is in doubt: there was no complete table, or the list cannot be older than it.
    pub(super) const fn none() -> Self {
        Self { complete_at: None, objects: Vec::new(), bytes: 0 }
    }

    /// A list begins that may be older than the version at which the table was complete.
    pub(super) const fn of(complete_at: ResourceVersion) -> Self {
        Self { complete_at: Some(complete_at), objects: Vec::new(), bytes: 0 }
    }

    /// Whether the table had this object if it still existed. Without an order of versions nobody
    /// can say so.
    fn concern(&self, item: &Item<'_>) -> bool {
        let Some(complete_at) = &self.complete_at else { return false };
        item.version.as_ref().is_some_and(|version| version <= complete_at)
    }

    fn hold(&mut self, item: &Item<'_>) -> Result<(), TooMany> {
        self.bytes += item.body.len();
        if self.objects.len() >= MAX_OBJECTS || self.bytes > MAX_BYTES {
            return Err(TooMany);
        }
        self.objects.push(Doubted {
            namespace: item.namespace.to_string(),
            name: item.name.to_string(),
            uid: item.uid.clone(),
            version: item.version.clone(),
            body: item.body.into(),
        });
        Ok(())
    }

    /// The object has been deleted meanwhile.
    pub(super) fn forget(&mut self, namespace: &str, name: &str) {
        self.objects.retain(|held| (&*held.namespace, &*held.name) != (namespace, name));
    }
}

impl Doubted {
    fn as_item(&self) -> Item<'_> {
        Item {
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
            uid: self.uid.clone(),
            version: self.version.clone(),
            body: &self.body,
        }
    }
}

impl Task {
    /// Applies an object of the list under way, or holds it back.
    ///
    /// # Errors
    ///
    /// [`Reason::Lagging`] if too much would be held back; the next list is a consistent read then.
    ///
    /// # Cost
    ///
    /// That of decoding and applying it; while the version of a relist is not known, one more
    /// look-up in the table.
    pub(super) fn take_listed(&mut self, json: &[u8], stage: Stage) -> Result<(), Fault> {
        let item = match self.decoder.decode(json, stage) {
            Ok(item) => item,
            Err(rejected) => {
                self.reject(&rejected);
                return Ok(());
            }
        };
        if self.doubts.concern(&item) && !self.sink.lock().holds(&item.namespace, &item.name) {
            return self.doubts.hold(&item).map_err(|TooMany| {
                self.is_proof_wanted = true;
                too_many()
            });
        }
        let version = item.version.clone();
        let outcome = apply(&self.sink, &mut self.objects, Delta::Upsert(item));
        self.gap.replaced += u64::from(outcome == Outcome::Replaced);
        if let Some(version) = version {
            self.saw(&version);
        }
        Ok(())
    }

    /// The list is new enough: what was held back exists.
    pub(super) fn settle_doubts(&mut self) {
        let doubts = std::mem::replace(&mut self.doubts, Doubts::none());
        for held in &doubts.objects {
            self.apply(Delta::Upsert(held.as_item()));
        }
    }
}

fn too_many() -> Fault {
    Fault::new(
        Reason::Lagging,
        "the list names too many objects that are older than the table and not in it: \
         the next one is a consistent read",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item<'a>(version: &str, body: &'a [u8]) -> Item<'a> {
        Item {
            namespace: "ns".into(),
            name: "a".into(),
            uid: Uid::parse("u"),
            version: ResourceVersion::parse(version),
            body,
        }
    }

    #[test]
    fn only_what_the_table_should_have_is_in_doubt() {
        let doubts = Doubts::of(ResourceVersion::from(9));
        let concerned = |version: &str| doubts.concern(&item(version, b"{}"));
        assert_eq!(["8", "9", "10", "x", ""].map(concerned), [true, true, false, false, false]);
        assert!(!Doubts::none().concern(&item("8", b"{}")));
        let opaque = Doubts::of(ResourceVersion::parse("x-9").unwrap());
        assert!(!opaque.concern(&item("x-8", b"{}")), "nothing is older than what has no order");
    }

    #[test]
    fn what_is_held_back_is_bounded_in_number_and_bytes() {
        let mut doubts = Doubts::of(ResourceVersion::from(9));
        for _ in 0..MAX_OBJECTS {
            doubts.hold(&item("8", b"{}")).unwrap();
        }
        assert_eq!(doubts.hold(&item("8", b"{}")), Err(TooMany));
        let mut doubts = Doubts::of(ResourceVersion::from(9));
        let large = vec![b' '; MAX_BYTES / 2];
        doubts.hold(&item("8", &large)).unwrap();
        doubts.hold(&item("8", &large)).unwrap();
        assert_eq!(doubts.hold(&item("8", b"{}")), Err(TooMany));
    }
}
