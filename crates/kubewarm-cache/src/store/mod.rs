//! Compact tables: the objects of each cell, packed, with one writer and many readers.

mod catalog;
mod codec;
mod contents;
mod dictionary;
mod entries;
mod follow;
mod heap;
#[cfg(test)]
mod history;
mod index;
mod kind;
mod namespaces;
mod order;
mod past;
mod paths;
mod piece;
mod query;
mod record;
mod sample;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod secrets;
mod select;
mod slab;
mod table;
mod turn;
mod upkeep;
mod values;
mod writer;

pub use self::{
    catalog::{Catalog, INDEXES_PER_TABLE},
    follow::{Follower, Forgotten, Lag, News},
    past::Change,
    query::{Object, Reader, Seen, Usage},
    sample::{Alike, Sample, Weight},
    select::{Choosing, Chosen, Is, Said, Selected, Test, Tests, Wanted},
    turn::Turn,
    writer::Writer,
};
