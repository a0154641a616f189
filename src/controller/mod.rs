//! Starts and stops informers so that they match the profiles.
//!
//! One reconciliation covers all profiles: it resolves their targets, plans the informers and
//! applies the plan.

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
    admission::ProfileAdmission,
    cluster::ControllerSources,
    declarations::{ProfileReceiver, running_informers, running_targets},
    operator_limits::OperatorLimits,
    outlook::outlook,
    run::Controller,
};
