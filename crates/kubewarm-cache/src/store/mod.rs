//! The store of each informer keeps the informer's objects in memory. Each store has one writer and any number of
//! readers.

mod catalog;
mod codec;
mod contents;
mod dictionary;
mod dictionary_group;
mod event_log;
mod event_log_follower;
#[cfg(test)]
mod fixtures;
mod index;
mod index_entries;
mod maintenance_queue;
mod namespace_interner;
mod object_store;
mod packed_object;
#[cfg(test)]
mod random_history;
mod reader;
mod row_order;
mod sample;
mod scan_budget;
#[cfg(test)]
mod secrets;
mod select;
mod shared_rows;
mod slab;
mod writer;

pub use self::{
    catalog::{INDEXES_PER_STORE, StoreCatalog},
    event_log::StoreChange,
    event_log_follower::{EventLogFollower, ExpiredVersion, FollowerEvent, FollowerLag},
    reader::{StoreReader, StoreUsage, StoredObject, StoredObjectView},
    sample::{DictionaryKey, SampleUsage, StoreSample},
    scan_budget::ScanBudget,
    select::{BodyFieldCache, BodyPredicate, BodyPredicates, ObjectQuery, ObjectSnapshot},
    writer::StoreWriter,
};
