//! Brings the running cells in line with the profiles: resolve, plan, apply, over all of them.

mod admission;
mod budgets;
mod cluster;
mod declarations;
mod desired;
mod holding;
mod intake;
mod known;
mod limiter;
mod operator_limits;
mod outlook;
mod quota;
mod reconcile;
mod resolve;
mod run;
mod settle;
#[cfg(test)]
mod tests;

pub use self::{
    admission::Admission,
    cluster::Sources,
    declarations::{Declarations, running_cells, running_targets},
    operator_limits::OperatorLimits,
    outlook::outlook,
    run::Controller,
};
