//! The store of each informer keeps the informer's objects in memory. Each store has one writer and
//! any number of readers.

mod allocation;
mod catalog;
mod compression_contexts;
mod contents;
mod dictionary;
mod dictionary_group;
mod dispatch;
mod event_log;
mod event_log_follower;
#[cfg(test)]
mod fixtures;
mod index;
mod index_entries;
mod maintenance_queue;
#[cfg(test)]
mod managed_fields_tests;
mod namespace_interner;
mod object_sample;
mod object_store;
mod packed_object;
#[cfg(test)]
mod random_history_tests;
mod reader;
mod row_order;
mod row_snapshot;
mod scan_budget;
#[cfg(test)]
mod secrets_tests;
mod select;
mod slab;
mod template_set;
mod transfer;
mod writer;

pub use self::{
    catalog::{INDEXES_PER_STORE, StoreCatalog},
    event_log::StoreChange,
    event_log_follower::{EventLogFollower, ExpiredVersion, FollowerEvent, FollowerLag},
    object_sample::{DictionaryKey, ObjectSample, SampleUsage},
    reader::{DamagedRecordError, StoreReader, StoreUsage, StoredObject, StoredObjectView},
    scan_budget::ScanBudget,
    select::{BodyFieldCache, BodyPredicate, BodyPredicates, ObjectQuery, ObjectSnapshot},
    transfer::StoreTransfer,
    writer::StoreWriter,
};
