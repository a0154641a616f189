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
    catalog::{Catalog, INDEXES_PER_TABLE},
    event_log::Change,
    follow::{Follower, Forgotten, Lag, News},
    query::{Object, Reader, Seen, Usage},
    sample::{Alike, Sample, Weight},
    select::{Said, Selected, Test, Tests, Wanted},
    turn::Turn,
    writer::Writer,
};
