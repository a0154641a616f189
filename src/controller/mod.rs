//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

mod admission;
mod budget;
mod declarations;
mod desired;
mod fit;
mod intake;
mod kept;
mod kinds;
mod limiter;
mod listing;
mod live;
mod outlook;
mod reconcile;
mod resolve;
mod run;
mod settle;
mod share;
#[cfg(test)]
mod tests;

pub use self::{
    admission::{Admission, ProfileSink},
    declarations::Declarations,
    fit::MemoryBounds,
    outlook::outlook,
    run::{Controller, Sources},
};
