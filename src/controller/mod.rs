//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

mod admission;
mod declarations;
mod desired;
mod fit;
mod footprint;
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
#[cfg(test)]
mod tests;

pub use self::{
    admission::{Admission, ProfileSink},
    declarations::Declarations,
    limiter::MemoryBounds,
    outlook::outlook,
    quota::InformerLimits,
    run::{Controller, Sources},
};
