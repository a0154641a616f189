//! What warming a profile would cost, found out from a sample before anything is warmed.

mod figures;
mod run;
#[cfg(test)]
mod samples;
mod survey;

pub use self::{
    figures::{Figures, Forecast},
    run::{Forecaster, Forecasts},
    survey::{Surveyor, Trials},
};

use kubewarm_api::model::{CellSpec, ProfileRef};
use std::sync::Arc;

/// A profile whose cost is to be found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which.
    pub profile: ProfileRef,
    /// `metadata.uid` of the profile.
    pub uid: Arc<str>,
    /// The generation that this was computed from.
    pub generation: i64,
    /// How many of its lists may be under way at once; at least 1.
    pub max_concurrent_lists: usize,
    /// Its targets, in the order of the spec.
    pub targets: Vec<OrderTarget>,
}

/// One target of it. One that is refused has no cells and costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTarget {
    /// `targets[].name`.
    pub name: Arc<str>,
    /// The cells that it comes to.
    pub cells: Vec<CellSpec>,
    /// For a selector: the cell that finds its namespaces.
    pub namespaces: Option<CellSpec>,
}
