//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

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
mod quota;
mod reconcile;
mod resolve;
mod run;
mod settle;
mod share;
mod sift;
#[cfg(test)]
mod tests;

pub use self::{
    declarations::Declarations,
    fit::MemoryBounds,
    outlook::outlook,
    run::{Controller, Sources},
    sift::{Sieve, Sift, Waiting},
};
