//! One list-and-watch per cell, and what it tells its observers.

mod report;

pub use self::report::{
    CellFault, CellReport, EventKind, ListOutcome, Measured, Meter, Phase, Quantiles, Relist,
    RelistReason, Stage, Strategy, Undecodable, Verb, Warmed, WatchEnd,
};
