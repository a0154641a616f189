//! One list-and-watch per cell, and what it tells its observers.

mod latency;
mod report;

pub use self::latency::LatencyWindow;
pub use self::report::{
    CellFault, CellReport, EventKind, ListOutcome, Measured, Meter, Phase, Quantiles, Relist,
    RelistReason, Stage, Strategy, Undecodable, Verb, Warmed, WatchEnd,
};
