//! The store of each informer: its objects packed in memory, with one writer and any number of readers.

mod catalog;
mod codec;
mod contents;
mod dictionary;
mod entries;
mod event_log;
mod follow;
#[cfg(test)]
mod history;
mod index;
mod kind;
mod namespaces;
mod order;
mod query;
mod record;
mod sample;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod secrets;
mod select;
mod shared_rows;
mod slab;
mod table;
mod turn;
mod upkeep;
mod writer;

pub use self::{
    catalog::{INDEXES_PER_STORE, StoreCatalog},
    event_log::StoreChange,
    follow::{EventLogFollower, ExpiredVersion, FollowerEvent, FollowerLag},
    query::{StoreReader, StoreUsage, StoredObject, StoredObjectView},
    sample::{DictionaryKey, SampleUsage, StoreSample},
    select::{BodyFieldCache, BodyPredicate, BodyPredicates, ObjectQuery, ObjectSnapshot},
    turn::ScanBudget,
    writer::StoreWriter,
};
