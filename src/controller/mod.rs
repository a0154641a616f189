//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

mod budget;
mod desired;
mod intake;
mod kinds;
mod listing;
mod outlook;
mod reconcile;
mod resolve;
mod run;
mod settle;
#[cfg(test)]
mod tests;

pub use self::{
    outlook::outlook,
    run::{Controller, Declarations, Sources},
};
